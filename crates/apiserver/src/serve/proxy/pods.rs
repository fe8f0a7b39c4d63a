//! Requests about a pod: its kubelet answers them, or the pod itself at a port of its own.

use form_urlencoded::Serializer;
use http::Uri;
use serde_json::Value;

use super::location::{Location, kubelet, split};
use crate::access::target::Target;
use crate::failure::{Cause, Failure, Subject};
use crate::storage::State;
use crate::values::fields::elements;

fn find_pod<'s>(state: &'s State, target: &Target<'_>, name: &str) -> Result<&'s Value, Failure> {
    state
        .get("pods", target.namespace, name)
        .map(|pod| pod.value())
        .ok_or_else(|| {
            Failure::not_found(&Subject {
                group: "",
                resource: "pods",
                name,
            })
        })
}

/// Returns the requested container: the named one, or the only one.
fn container(pod: &Value, container: &str) -> Result<String, Failure> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let names = |list: &str| -> Vec<String> {
        let list = elements(&pod["spec"][list]);
        list.filter_map(|container| container["name"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let (main, first, later) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    if container.is_empty() {
        return match main.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Failure::bad_request(format!(
                "a container name must be specified for pod {name}"
            ))),
            many => {
                let mut text = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    many.join(" ")
                );
                for (kind, list) in [("init", first), ("ephemeral", later)] {
                    if !list.is_empty() {
                        text.push_str(" or one of the ");
                        text.push_str(kind);
                        text.push_str(" containers: [");
                        text.push_str(&list.join(" "));
                        text.push(']');
                    }
                }
                Err(Failure::bad_request(text))
            }
        };
    }
    if [main, first, later]
        .iter()
        .any(|list| list.iter().any(|known| known == container))
    {
        return Ok(container.to_owned());
    }
    Err(Failure::bad_request(format!(
        "container {container} is not valid for pod {name}"
    )))
}

/// The query of a request.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(uri: &Uri) -> Self {
        let text = uri.query().unwrap_or_default();
        Self(
            form_urlencoded::parse(text.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// Returns the first value of a parameter; empty when there is none.
    fn value(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    fn values<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let found = self.0.iter().filter(move |(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    fn is_true(&self, name: &str) -> bool {
        matches!(self.value(name), "true" | "1")
    }

    /// Checks the numbers in the query of a log.
    fn check_log_options(&self, pod: &str) -> Result<(), Failure> {
        let mut causes = Vec::new();
        for (field, least, why) in [
            ("tailLines", 0, "must be greater than or equal to 0"),
            ("limitBytes", 1, "must be greater than 0"),
            ("sinceSeconds", 1, "must be greater than 0"),
        ] {
            if let Ok(number) = self.value(field).parse::<i64>()
                && number < least
            {
                causes.push(Cause::invalid(field, &serde_json::json!(number), why));
            }
        }
        if causes.is_empty() {
            return Ok(());
        }
        let subject = Subject {
            group: "",
            resource: "PodLogOptions",
            name: pod,
        };
        Err(Failure::invalid(&subject, &causes))
    }

    /// Returns the query of a log in the kubelet's words.
    fn for_log(&self) -> String {
        let mut query = Serializer::new(String::new());
        for name in ["follow", "previous", "timestamps"] {
            if self.is_true(name) {
                query.append_pair(name, "true");
            }
        }
        for name in ["sinceSeconds", "sinceTime", "tailLines", "limitBytes"] {
            if !self.value(name).is_empty() {
                query.append_pair(name, self.value(name));
            }
        }
        query.finish()
    }

    /// Returns the query of forwarded ports in the kubelet's words.
    fn for_ports(&self) -> String {
        let mut query = Serializer::new(String::new());
        let ports: Vec<&str> = self.values("ports").collect();
        if !ports.is_empty() {
            query.append_pair("port", &ports.join(","));
        }
        query.finish()
    }

    /// Returns the query of a command, or of an attachment, in the kubelet's words.
    fn for_streams(&self) -> String {
        let mut query = Serializer::new(String::new());
        for (name, sent) in [
            ("stdin", "input"),
            ("stdout", "output"),
            ("stderr", "error"),
            ("tty", "tty"),
        ] {
            if self.is_true(name) {
                query.append_pair(sent, "1");
            }
        }
        for word in self.values("command") {
            query.append_pair("command", word);
        }
        query.finish()
    }
}

/// Returns where a pod's kubelet answers a request about it; `None` for the log of a pod that is not bound to a node yet.
pub(super) fn pod_request(
    state: &State,
    uri: &Uri,
    target: &Target<'_>,
) -> Result<Option<Location>, Failure> {
    let query = Query::of(uri);
    if target.subresource == "log" {
        query.check_log_options(target.name)?;
    }
    let pod = find_pod(state, target, target.name)?;
    let forwards = target.subresource == "portforward";
    let container = if forwards {
        String::new()
    } else {
        container(pod, query.value("container"))?
    };
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        if target.subresource == "log" {
            return Ok(None);
        }
        return Err(Failure::bad_request(format!(
            "pod {} does not have a host assigned",
            target.name
        )));
    }
    let mut location = kubelet(state, node)?;
    let (path, query) = match target.subresource {
        "log" => ("containerLogs", query.for_log()),
        "portforward" => ("portForward", query.for_ports()),
        other => (other, query.for_streams()),
    };
    location.path = format!("/{path}/{}/{}", target.namespace, target.name);
    if !forwards {
        location.path.push('/');
        location.path.push_str(&container);
    }
    if !query.is_empty() {
        location.path.push('?');
        location.path.push_str(&query);
    }
    Ok(Some(location))
}

/// Returns the location of a pod's own port.
pub(super) fn pod_proxy(
    state: &State,
    target: &Target<'_>,
    path: String,
) -> Result<Location, Failure> {
    let (scheme, name, port) = split(target.name);
    let pod = find_pod(state, target, name)?;
    let own = elements(&pod["spec"]["containers"])
        .flat_map(|container| elements(&container["ports"]))
        .find_map(|port| port["containerPort"].as_u64());
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    if address.is_empty() {
        return Err(Failure::bad_request("address not allowed"));
    }
    Ok(Location {
        secure: scheme == "https",
        host: address.to_owned(),
        port: port
            .or(own)
            .unwrap_or(if scheme == "https" { 443 } else { 80 }),
        path,
    })
}
