//! Cells of the kinds for configuration, permissions, limits and events.

use serde_json::{Value, json};

use crate::values::fields::members;
use crate::values::words::{age, items, number, or, text};

/// Returns the cells of an object; `None` for kinds of other modules.
pub(super) fn cells(storage: &str, object: &Value, created: &str) -> Option<Vec<Value>> {
    let name = json!(text(&object["metadata"]["name"]));
    let status = &object["status"];
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
        "poddisruptionbudgets.policy" => disruption_budget(object, created),
        "horizontalpodautoscalers.autoscaling" => autoscaler(object, created),
        "certificatesigningrequests.certificates.k8s.io" => certificate(object, created),
        "flowschemas.flowcontrol.apiserver.k8s.io" => flow_schema(object, created),
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io" => {
            priority_level(object, created)
        }
        "resourceclaims.resource.k8s.io" => resource_claim(object, created),
        _ => return None,
    })
}

fn disruption_budget(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let (spec, status) = (&object["spec"], &object["status"]);
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

fn autoscaler(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let (spec, status) = (&object["spec"], &object["status"]);
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

fn flow_schema(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let (spec, status) = (&object["spec"], &object["status"]);
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

fn priority_level(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let spec = &object["spec"];
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

fn resource_claim(object: &Value, created: &str) -> Vec<Value> {
    let name = json!(text(&object["metadata"]["name"]));
    let status = &object["status"];
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
    let mut names: Vec<&String> = members(&status["hard"]).map(|(name, _)| name).collect();
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
