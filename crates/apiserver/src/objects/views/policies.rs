//! Cells of the kinds for configuration, network, storage, permissions and events.

use serde_json::{Value, json};

use crate::values::words::{age, cut, items, labels, none_if_empty, number, or, selector, text};

/// Returns the cells of an object; `None` for kinds of other modules.
pub(super) fn cells(storage: &str, object: &Value, created: &str) -> Option<Vec<Value>> {
    let name = json!(text(&object["metadata"]["name"]));
    let (spec, status) = (&object["spec"], &object["status"]);
    let entries = |map: &Value| map.as_object().map_or(0, serde_json::Map::len);
    Some(match storage {
        "configmaps" => vec![
            name,
            json!(entries(&object["data"]) + entries(&object["binaryData"])),
            json!(created),
        ],
        "secrets" => vec![
            name,
            json!(text(&object["type"])),
            json!(entries(&object["data"])),
            json!(created),
        ],
        "namespaces" => vec![name, json!(text(&status["phase"])), json!(created)],
        "services" => service(object, created),
        "endpoints" => vec![name, json!(endpoints(object)), json!(created)],
        "endpointslices.discovery.k8s.io" => {
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
        "events" => event(object),
        "resourcequotas" => quota(object, created),
        "priorityclasses.scheduling.k8s.io" => vec![
            name,
            json!(number(&object["value"])),
            json!(object["globalDefault"] == true),
            json!(created),
            json!(text(&object["preemptionPolicy"])),
        ],
        "rolebindings.rbac.authorization.k8s.io"
        | "clusterrolebindings.rbac.authorization.k8s.io" => binding(object, created),
        "poddisruptionbudgets.policy" => {
            let limit = |value: &Value| match value {
                Value::Null => "N/A".to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            vec![
                name,
                json!(limit(&spec["minAvailable"])),
                json!(limit(&spec["maxUnavailable"])),
                json!(number(&status["disruptionsAllowed"])),
                json!(created),
            ]
        }
        "networkpolicies.networking.k8s.io" => vec![
            name,
            json!(none_if_empty(selector(&spec["podSelector"]))),
            json!(created),
        ],
        "ingressclasses.networking.k8s.io" => {
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
        "ingresses.networking.k8s.io" => ingress(object, created),
        "storageclasses.storage.k8s.io" => {
            let default =
                &object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"];
            let mark = if default == "true" { " (default)" } else { "" };
            vec![
                json!(format!("{}{mark}", text(&name))),
                json!(text(&object["provisioner"])),
                json!(or(&object["reclaimPolicy"], "Delete")),
                json!(or(&object["volumeBindingMode"], "Immediate")),
                json!(object["allowVolumeExpansion"] == true),
                json!(created),
            ]
        }
        "persistentvolumes" => volume(object, created),
        "persistentvolumeclaims" => claim(object, created),
        "csidrivers.storage.k8s.io" => {
            let modes: Vec<String> = items(&spec["volumeLifecycleModes"])
                .iter()
                .map(text)
                .collect();
            let tokens = match spec["tokenRequests"].as_array() {
                Some(tokens) => tokens
                    .iter()
                    .map(|token| text(&token["audience"]))
                    .collect::<Vec<_>>()
                    .join(","),
                None => "<unset>".into(),
            };
            vec![
                name,
                json!(spec["attachRequired"] != false),
                json!(spec["podInfoOnMount"] == true),
                json!(spec["storageCapacity"] == true),
                json!(tokens),
                json!(spec["requiresRepublish"] == true),
                json!(none_if_empty(modes.join(","))),
                json!(created),
            ]
        }
        "volumeattachments.storage.k8s.io" => vec![
            name,
            json!(text(&spec["attacher"])),
            json!(text(&spec["source"]["persistentVolumeName"])),
            json!(text(&spec["nodeName"])),
            json!(status["attached"] == true),
            json!(created),
        ],
        "horizontalpodautoscalers.autoscaling" => {
            let target = &spec["scaleTargetRef"];
            let least = spec["minReplicas"].as_i64();
            vec![
                name,
                json!(format!(
                    "{}/{}",
                    text(&target["kind"]),
                    text(&target["name"])
                )),
                json!(scaling_targets(spec, status)),
                json!(least.map_or_else(|| "<unset>".to_owned(), |least| least.to_string())),
                json!(number(&spec["maxReplicas"])),
                json!(number(&status["currentReplicas"])),
                json!(created),
            ]
        }
        "certificatesigningrequests.certificates.k8s.io" => certificate(object, created),
        "flowschemas.flowcontrol.apiserver.k8s.io" => {
            let dangling = items(&status["conditions"])
                .iter()
                .find(|condition| condition["type"] == "Dangling");
            vec![
                name,
                json!(text(&spec["priorityLevelConfiguration"]["name"])),
                json!(number(&spec["matchingPrecedence"])),
                json!(or(&spec["distinguisherMethod"]["type"], "<none>")),
                json!(created),
                json!(dangling.map_or_else(|| "?".to_owned(), |one| text(&one["status"]))),
            ]
        }
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => {
            let limited = &spec["limited"];
            let queuing = &limited["limitResponse"]["queuing"];
            let shown = |value: &Value| {
                if value.is_null() {
                    json!("<none>")
                } else {
                    value.clone()
                }
            };
            vec![
                name,
                json!(text(&spec["type"])),
                shown(&limited["nominalConcurrencyShares"]),
                shown(&queuing["queues"]),
                shown(&queuing["handSize"]),
                shown(&queuing["queueLengthLimit"]),
                json!(created),
            ]
        }
        "resourceclaims.resource.k8s.io" => {
            let mut states = Vec::new();
            if object["metadata"]["deletionTimestamp"].is_string() {
                states.push("deleted");
            }
            if status["allocation"].is_object() {
                states.push("allocated");
            }
            if !items(&status["reservedFor"]).is_empty() {
                states.push("reserved");
            }
            if states.is_empty() {
                states.push("pending");
            }
            vec![name, json!(states.join(",")), json!(created)]
        }
        _ => return None,
    })
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

/// Returns current and target utilization of an autoscaler's resources.
fn scaling_targets(spec: &Value, status: &Value) -> String {
    let shown: Vec<String> = items(&spec["metrics"])
        .iter()
        .map(|metric| {
            let resource = &metric["resource"];
            let Some(wanted) = resource["target"]["averageUtilization"].as_i64() else {
                return format!("<unknown>/{}", text(&resource["target"]["averageValue"]));
            };
            let current = items(&status["currentMetrics"])
                .iter()
                .find(|current| current["resource"]["name"] == resource["name"])
                .and_then(|current| current["resource"]["current"]["averageUtilization"].as_i64());
            let current = current.map_or_else(|| "<unknown>".to_owned(), |now| format!("{now}%"));
            format!("{}: {current}/{wanted}%", text(&resource["name"]))
        })
        .collect();
    if shown.is_empty() {
        "<none>".into()
    } else {
        shown.join(", ")
    }
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

fn event(event: &Value) -> Vec<Value> {
    let first_age = |time: &Value, other: &Value| {
        if time.is_string() {
            age(time)
        } else {
            age(other)
        }
    };
    let first = first_age(&event["firstTimestamp"], &event["eventTime"]);
    let series = &event["series"];
    let (last, count) = if series.is_object() {
        (age(&series["lastObservedTime"]), number(&series["count"]))
    } else {
        let last = if event["lastTimestamp"].is_string() {
            age(&event["lastTimestamp"])
        } else {
            first.clone()
        };
        (last, number(&event["count"]).max(1))
    };
    let about = &event["involvedObject"];
    let about = if about.is_object() {
        about
    } else {
        &event["regarding"]
    };
    let kind = text(&about["kind"]).to_lowercase();
    let target = match about["name"].as_str() {
        Some(name) if !name.is_empty() => format!("{kind}/{name}"),
        _ => kind,
    };
    let component = or(
        &event["source"]["component"],
        &text(&event["reportingComponent"]),
    );
    let instance = or(&event["source"]["host"], &text(&event["reportingInstance"]));
    let source = if instance.is_empty() {
        component
    } else {
        format!("{component}, {instance}")
    };
    vec![
        json!(last),
        json!(text(&event["type"])),
        json!(text(&event["reason"])),
        json!(target),
        json!(text(&about["fieldPath"])),
        json!(source),
        json!(text(&event["message"]).trim()),
        json!(first),
        json!(count),
        event["metadata"]["name"].clone(),
    ]
}

fn quota(quota: &Value, created: &str) -> Vec<Value> {
    let status = &quota["status"];
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = status["hard"].as_object();
    let mut names: Vec<&String> = hard.into_iter().flatten().map(|(name, _)| name).collect();
    names.sort();
    for name in names {
        let used = or(&status["used"][name], "0");
        let line = format!("{name}: {used}/{}", text(&status["hard"][name]));
        if name.starts_with("limits.") {
            limits.push(line);
        } else {
            requests.push(line);
        }
    }
    vec![
        quota["metadata"]["name"].clone(),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        json!(created),
    ]
}

fn binding(binding: &Value, created: &str) -> Vec<Value> {
    let of_kind = |kind: &str| {
        let subjects = items(&binding["subjects"]).iter();
        let names: Vec<String> = subjects
            .filter(|subject| subject["kind"] == kind)
            .map(|subject| match subject["namespace"].as_str() {
                Some(namespace) if kind == "ServiceAccount" => {
                    format!("{namespace}/{}", text(&subject["name"]))
                }
                _ => text(&subject["name"]),
            })
            .collect();
        json!(names.join(", "))
    };
    let role = &binding["roleRef"];
    vec![
        binding["metadata"]["name"].clone(),
        json!(format!("{}/{}", text(&role["kind"]), text(&role["name"]))),
        json!(created),
        of_kind("User"),
        of_kind("Group"),
        of_kind("ServiceAccount"),
    ]
}

/// Returns access modes by their short names.
fn modes(list: &Value) -> String {
    let all = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown: Vec<&str> = all
        .into_iter()
        .filter(|(mode, _)| items(list).iter().any(|given| given == mode))
        .map(|(_, short)| short)
        .collect();
    shown.join(",")
}

fn volume(volume: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let claim = &spec["claimRef"];
    let claim = if claim.is_object() {
        format!("{}/{}", text(&claim["namespace"]), text(&claim["name"]))
    } else {
        String::new()
    };
    let phase = if volume["metadata"]["deletionTimestamp"].is_string() {
        "Terminating".to_owned()
    } else {
        text(&status["phase"])
    };
    vec![
        volume["metadata"]["name"].clone(),
        json!(or(&spec["capacity"]["storage"], "0")),
        json!(modes(&spec["accessModes"])),
        json!(text(&spec["persistentVolumeReclaimPolicy"])),
        json!(phase),
        json!(claim),
        json!(text(&spec["storageClassName"])),
        json!(or(&spec["volumeAttributesClassName"], "<unset>")),
        json!(text(&status["reason"])),
        json!(created),
        json!(or(&spec["volumeMode"], "<unset>")),
    ]
}

fn claim(claim: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let phase = if claim["metadata"]["deletionTimestamp"].is_string() {
        "Terminating".to_owned()
    } else {
        text(&status["phase"])
    };
    let bound = !text(&spec["volumeName"]).is_empty();
    let (capacity, access) = if bound {
        (
            or(&status["capacity"]["storage"], "0"),
            modes(&status["accessModes"]),
        )
    } else {
        (String::new(), String::new())
    };
    vec![
        claim["metadata"]["name"].clone(),
        json!(phase),
        json!(text(&spec["volumeName"])),
        json!(capacity),
        json!(access),
        json!(text(&spec["storageClassName"])),
        json!(or(&spec["volumeAttributesClassName"], "<unset>")),
        json!(created),
        json!(or(&spec["volumeMode"], "<unset>")),
    ]
}

fn certificate(request: &Value, created: &str) -> Vec<Value> {
    let spec = &request["spec"];
    let has = |kind: &str| {
        let conditions = items(&request["status"]["conditions"]);
        conditions.iter().any(|condition| condition["type"] == kind)
    };
    let mut state = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if has("Failed") {
        state.push_str(",Failed");
    }
    if !text(&request["status"]["certificate"]).is_empty() {
        state.push_str(",Issued");
    }
    let expiration = spec["expirationSeconds"].as_i64();
    let expiration = expiration.map_or_else(
        || "<none>".to_owned(),
        |seconds| crate::values::words::duration(seconds as f64),
    );
    vec![
        request["metadata"]["name"].clone(),
        json!(created),
        json!(or(&spec["signerName"], "<none>")),
        json!(text(&spec["username"])),
        json!(expiration),
        json!(state),
    ]
}
