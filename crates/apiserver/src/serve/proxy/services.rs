//! Requests for a port of a service: a ready endpoint answers them.

use super::location::Location;
use crate::access::target::Target;
use crate::failure::{Failure, Subject};
use crate::storage::State;
use crate::values::fields::elements;

/// Returns the location of a ready endpoint of a service.
pub(super) fn service(state: &State, target: &Target<'_>, path: &str) -> Result<Location, Failure> {
    let parts: Vec<&str> = target.name.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [scheme, name, port] => (*scheme, *name, *port),
        [name, port] => ("", *name, *port),
        _ => ("", target.name, ""),
    };
    let subject = Subject {
        group: "",
        resource: "services",
        name,
    };
    let service = state
        .get("services", target.namespace, name)
        .ok_or_else(|| Failure::not_found(&subject))?;
    let wanted = elements(&service["spec"]["ports"]).find(|entry| {
        port.is_empty()
            || entry["name"] == port
            || port.parse::<u64>().is_ok_and(|port| entry["port"] == port)
    });
    let none = || Failure::unreachable(format!("no endpoints available for service {name:?}"));
    let wanted = wanted.ok_or_else(none)?;
    state
        .list("endpointslices.discovery.k8s.io", target.namespace)
        .filter(|(_, slice)| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name)
        .find_map(|(_, slice)| {
            let name = wanted["name"].as_str().unwrap_or_default();
            let port = slice["ports"]
                .as_array()?
                .iter()
                .find(|port| port["name"].as_str().unwrap_or_default() == name)?["port"]
                .as_u64()?;
            let endpoint = slice["endpoints"]
                .as_array()?
                .iter()
                .find(|endpoint| endpoint["conditions"]["ready"] != false)?;
            Some(Location {
                secure: scheme == "https",
                host: endpoint["addresses"][0].as_str()?.to_owned(),
                port,
                path: path.to_owned(),
            })
        })
        .ok_or_else(none)
}
