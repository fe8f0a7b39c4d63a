//! Where a webhook is: at a URL, or behind a service.

use serde_json::Value;

use super::Endpoint;
use crate::storage::State;
use crate::values::fields::elements;

/// Port of HTTPS.
const HTTPS: u16 = 443;

/// Returns the URL that a client configuration names, without parameters.
pub(super) fn url(client: &Value) -> String {
    let service = &client["service"];
    if !service.is_object() {
        return text(&client["url"]).to_owned();
    }
    let path = text(&service["path"]);
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!(
        "https://{}:{}{slash}{path}",
        host_name(service),
        port(service)
    )
}

/// Returns host and port of a client configuration; the error says why there is none. A service is resolved to a ready endpoint, as a real
/// server does it that runs without kube-proxy.
pub(super) fn resolve(state: &State, client: &Value) -> Result<Endpoint, String> {
    let service = &client["service"];
    if service.is_object() {
        return behind_service(state, service);
    }
    let url = text(&client["url"]);
    let parsed: http::Uri = url
        .parse()
        .map_err(|error| format!("parse {url:?}: {error}"))?;
    let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']);
    Ok(Endpoint {
        host: host.to_owned(),
        port: parsed.port_u16().unwrap_or(HTTPS),
        server_name: host.to_owned(),
    })
}

fn behind_service(state: &State, reference: &Value) -> Result<Endpoint, String> {
    let (namespace, name) = (text(&reference["namespace"]), text(&reference["name"]));
    let wanted = port(reference);
    let service = state
        .get("services", namespace, name)
        .ok_or_else(|| format!("service {name:?} not found"))?;
    if service["spec"]["type"] == "ExternalName" {
        return Ok(Endpoint {
            host: text(&service["spec"]["externalName"]).to_owned(),
            port: wanted,
            server_name: host_name(reference),
        });
    }
    let mut ports = elements(&service["spec"]["ports"]);
    let known = ports
        .find(|known| known["port"] == wanted)
        .ok_or_else(|| format!("no service port {wanted} found for service {name:?}"))?;
    let port_name = text(&known["name"]);
    state
        .list("endpointslices.discovery.k8s.io", namespace)
        .filter(|(_, slice)| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name)
        .find_map(|(_, slice)| {
            let mut ports = slice["ports"].as_array()?.iter();
            let port = ports.find(|port| text(&port["name"]) == port_name)?["port"].as_u64()?;
            let mut endpoints = slice["endpoints"].as_array()?.iter();
            let endpoint = endpoints.find(|endpoint| endpoint["conditions"]["ready"] != false)?;
            Some(Endpoint {
                host: text(&endpoint["addresses"][0]).to_owned(),
                port: u16::try_from(port).ok()?,
                server_name: host_name(reference),
            })
        })
        .ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

fn host_name(service: &Value) -> String {
    format!(
        "{}.{}.svc",
        text(&service["name"]),
        text(&service["namespace"])
    )
}

fn port(service: &Value) -> u16 {
    let port = service["port"].as_u64();
    port.and_then(|port| u16::try_from(port).ok())
        .unwrap_or(HTTPS)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::storage::{Key, Store};

    /// Resolves a client configuration in a cluster with a service whose second endpoint is ready, and one without endpoints.
    fn resolved(client: &Value) -> Result<String, String> {
        let store = Store::new(10);
        let mut state = store.lock();
        let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443}]}});
        for name in ["hook", "empty"] {
            state.put(Key::new("services", "ns", name), service(name));
        }
        let slice = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": "hook"}},
            "ports": [{"name": "a", "port": 8080}, {"name": "b", "port": 8443}],
            "endpoints": [
                {"addresses": ["127.1.0.1"], "conditions": {"ready": false}},
                {"addresses": ["127.1.0.2"], "conditions": {"ready": true}}],
        });
        state.put(
            Key::new("endpointslices.discovery.k8s.io", "ns", "hook-1"),
            slice,
        );
        resolve(&state, client).map(|endpoint| {
            let Endpoint {
                host,
                port,
                server_name,
            } = endpoint;
            format!("{host}:{port} as {server_name}, {}", url(client))
        })
    }

    #[rstest]
    #[case::url(json!({"url": "https://example.com/a/b"}), Ok("example.com:443 as example.com, https://example.com/a/b"))]
    #[case::url_with_port(json!({"url": "https://127.0.0.1:9443"}), Ok("127.0.0.1:9443 as 127.0.0.1, https://127.0.0.1:9443"))]
    #[case::service(json!({"service": {"namespace": "ns", "name": "hook", "path": "/a"}}),
        Ok("127.1.0.2:8443 as hook.ns.svc, https://hook.ns.svc:443/a"))]
    #[case::port(json!({"service": {"namespace": "ns", "name": "hook", "port": 80}}), Ok("127.1.0.2:8080 as hook.ns.svc, https://hook.ns.svc:80/"))]
    #[case::no_port(json!({"service": {"namespace": "ns", "name": "hook", "port": 81}}), Err("no service port 81 found for service \"hook\""))]
    #[case::no_endpoint(json!({"service": {"namespace": "ns", "name": "empty"}}), Err("no endpoints available for service \"empty\""))]
    #[case::no_service(json!({"service": {"namespace": "other", "name": "hook"}}), Err("service \"hook\" not found"))]
    fn clients_lead_to_where_the_webhook_listens(
        #[case] client: Value,
        #[case] expected: Result<&str, &str>,
    ) {
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(resolved(&client), expected);
    }
}
