//! Cells of services, endpoints, ingresses and network policies.

use serde_json::{Value, json};

use crate::values::words::{cut, items, labels, none_if_empty, number, or, selector, text};

/// Returns the cells of an object; `None` for kinds of other modules.
pub(super) fn cells(storage: &str, object: &Value, created: &str) -> Option<Vec<Value>> {
    let name = json!(text(&object["metadata"]["name"]));
    let spec = &object["spec"];
    Some(match storage {
        "services" => service(object, created),
        "endpoints" => vec![name, json!(endpoints(object)), json!(created)],
        "endpointslices.discovery.k8s.io" => endpoint_slice(object, created),
        "networkpolicies.networking.k8s.io" => vec![
            name,
            json!(none_if_empty(selector(&spec["podSelector"]))),
            json!(created),
        ],
        "ingressclasses.networking.k8s.io" => ingress_class(object, created),
        "ingresses.networking.k8s.io" => ingress(object, created),
        _ => return None,
    })
}

fn endpoint_slice(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let ports: Vec<String> = items(&object["ports"])
        .iter()
        .map(|port| match port["port"].as_i64() {
            Some(number) => number.to_string(),
            None => or(&port["name"], "*"),
        })
        .collect();
    let addresses: Vec<String> = items(&object["endpoints"])
        .iter()
        .flat_map(|endpoint| items(&endpoint["addresses"]).iter().map(text))
        .collect();
    let shown = |list: &[String]| {
        if list.is_empty() {
            "<unset>".to_owned()
        } else {
            cut(list)
        }
    };
    vec![
        name,
        json!(text(&object["addressType"])),
        json!(shown(&ports)),
        json!(shown(&addresses)),
        json!(created),
    ]
}

fn ingress_class(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let spec = &object["spec"];
    let parameters = &spec["parameters"];
    let shown = if parameters.is_object() {
        let kind = match parameters["apiGroup"].as_str() {
            Some(group) => format!("{}.{group}", text(&parameters["kind"])),
            None => text(&parameters["kind"]),
        };
        format!("{kind}/{}", text(&parameters["name"]))
    } else {
        "<none>".into()
    };
    vec![
        name,
        spec["controller"].clone(),
        json!(shown),
        json!(created),
    ]
}

fn service(service: &Value, created: &str) -> Vec<Value> {
    let spec = &service["spec"];
    let given: Vec<String> = items(&spec["externalIPs"]).iter().map(text).collect();
    let balanced: Vec<String> = balanced(&service["status"]);
    let external = match spec["type"].as_str() {
        Some("ClusterIP" | "NodePort") => none_if_empty(given.join(",")),
        Some("LoadBalancer") => {
            let all: Vec<String> = balanced.into_iter().chain(given).collect();
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",")
            }
        }
        Some("ExternalName") => text(&spec["externalName"]),
        _ => "<unknown>".into(),
    };
    let ports: Vec<String> = items(&spec["ports"])
        .iter()
        .map(|port| {
            let protocol = text(&port["protocol"]);
            match number(&port["nodePort"]) {
                0 => format!("{}/{protocol}", number(&port["port"])),
                node => format!("{}:{node}/{protocol}", number(&port["port"])),
            }
        })
        .collect();
    vec![
        service["metadata"]["name"].clone(),
        json!(text(&spec["type"])),
        json!(or(&spec["clusterIPs"][0], "<none>")),
        json!(external),
        json!(none_if_empty(ports.join(","))),
        json!(created),
        json!(labels(&spec["selector"])),
    ]
}

/// Returns the addresses of a load balancer, sorted.
fn balanced(status: &Value) -> Vec<String> {
    let mut all: Vec<String> = items(&status["loadBalancer"]["ingress"])
        .iter()
        .map(|ingress| or(&ingress["ip"], &text(&ingress["hostname"])))
        .filter(|address| !address.is_empty())
        .collect();
    all.sort();
    all.dedup();
    all
}

fn ingress(ingress: &Value, created: &str) -> Vec<Value> {
    let spec = &ingress["spec"];
    let rules = items(&spec["rules"]);
    let hosts: Vec<String> = rules
        .iter()
        .map(|rule| text(&rule["host"]))
        .filter(|host| !host.is_empty())
        .collect();
    let hosts = if hosts.is_empty() {
        "*".to_owned()
    } else {
        cut(&hosts)
    };
    let ports = if items(&spec["tls"]).is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        ingress["metadata"]["name"].clone(),
        json!(or(&spec["ingressClassName"], "<none>")),
        json!(hosts),
        json!(balanced(&ingress["status"]).join(",")),
        json!(ports),
        json!(created),
    ]
}

fn endpoints(object: &Value) -> String {
    let mut list = Vec::new();
    for subset in items(&object["subsets"]) {
        let addresses = items(&subset["addresses"]);
        let ports = items(&subset["ports"]);
        if ports.is_empty() {
            list.extend(addresses.iter().map(|address| text(&address["ip"])));
        }
        for port in ports {
            list.extend(addresses.iter().map(|address| {
                let ip = text(&address["ip"]);
                let host = if ip.contains(':') {
                    format!("[{ip}]")
                } else {
                    ip
                };
                format!("{host}:{}", number(&port["port"]))
            }));
        }
    }
    none_if_empty(cut(&list))
}
