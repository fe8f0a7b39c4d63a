//! Where a request is forwarded to.

use crate::failure::{Failure, Subject};
use crate::storage::State;
use crate::values::fields::elements;

/// Default port of kubelets.
const KUBELET_PORT: u64 = 10250;

/// The target of a proxied request.
#[derive(Debug, PartialEq)]
pub(super) struct Location {
    pub(super) secure: bool,
    pub(super) host: String,
    pub(super) port: u64,
    /// Path and query.
    pub(super) path: String,
}

impl Location {
    /// Returns host and port.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Returns the address of a node's kubelet.
pub(super) fn kubelet(state: &State, name: &str) -> Result<Location, Failure> {
    let node = state.get("nodes", "", name).ok_or_else(|| {
        Failure::not_found(&Subject {
            group: "",
            resource: "nodes",
            name,
        })
    })?;
    let addresses = || elements(&node["status"]["addresses"]);
    let host = addresses()
        .find(|address| address["type"] == "InternalIP")
        .and_then(|address| address["address"].as_str())
        .ok_or_else(|| {
            let known: Vec<String> = addresses()
                .map(|address| {
                    format!(
                        "{{{} {}}}",
                        address["type"].as_str().unwrap_or_default(),
                        address["address"].as_str().unwrap_or_default()
                    )
                })
                .collect();
            Failure::internal(format!(
                "no preferred addresses found; known addresses: [{}]",
                known.join(" ")
            ))
        })?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .filter(|port| *port > 0)
        .unwrap_or(KUBELET_PORT);
    Ok(Location {
        secure: true,
        host: host.to_owned(),
        port,
        path: String::new(),
    })
}

/// Splits `scheme:name:port`, of which only the name is required.
pub(super) fn split(text: &str) -> (&str, &str, Option<u64>) {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [scheme, name, port] => (scheme, name, port.parse().ok()),
        [name, port] => ("", name, port.parse().ok()),
        _ => ("", text, None),
    }
}
