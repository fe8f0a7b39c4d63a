//! Cells of nodes, of pods and of the kinds that create pods.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::Resource;
use crate::values::words::{
    age, boolean, containers, duration, items, labels, none_if_empty, number, or, parsed, selector,
    since, text,
};

/// Returns the cells of an object; `None` for kinds of other modules.
pub(super) fn cells(storage: &str, object: &Value, created: &str) -> Option<Vec<Value>> {
    let name = text(&object["metadata"]["name"]);
    let (spec, status) = (&object["spec"], &object["status"]);
    let containers_of = |template: &Value| containers(&template["spec"]["containers"]);
    let selected = || none_if_empty(selector(&spec["selector"]));
    Some(match storage {
        "pods" => pod(object, created),
        "nodes" => node(object, created),
        "podtemplates" => {
            let [names, images] = containers_of(&object["template"]);
            let labels = labels(&object["template"]["metadata"]["labels"]);
            vec![json!(name), json!(names), json!(images), json!(labels)]
        }
        "deployments.apps" => {
            let [names, images] = containers_of(&spec["template"]);
            let ready = format!(
                "{}/{}",
                number(&status["readyReplicas"]),
                number(&spec["replicas"])
            );
            vec![
                json!(name),
                json!(ready),
                json!(number(&status["updatedReplicas"])),
                json!(number(&status["availableReplicas"])),
                json!(created),
                json!(names),
                json!(images),
                json!(selector(&spec["selector"])),
            ]
        }
        "replicasets.apps" | "replicationcontrollers" => {
            let [names, images] = containers_of(&spec["template"]);
            let selected = if storage == "replicasets.apps" {
                selected()
            } else {
                labels(&spec["selector"])
            };
            vec![
                json!(name),
                json!(number(&spec["replicas"])),
                json!(number(&status["replicas"])),
                json!(number(&status["readyReplicas"])),
                json!(created),
                json!(names),
                json!(images),
                json!(selected),
            ]
        }
        "daemonsets.apps" => {
            let [names, images] = containers_of(&spec["template"]);
            vec![
                json!(name),
                json!(number(&status["desiredNumberScheduled"])),
                json!(number(&status["currentNumberScheduled"])),
                json!(number(&status["numberReady"])),
                json!(number(&status["updatedNumberScheduled"])),
                json!(number(&status["numberAvailable"])),
                json!(labels(&spec["template"]["spec"]["nodeSelector"])),
                json!(created),
                json!(names),
                json!(images),
                json!(selected()),
            ]
        }
        "statefulsets.apps" => {
            let [names, images] = containers_of(&spec["template"]);
            let ready = format!(
                "{}/{}",
                number(&status["readyReplicas"]),
                number(&spec["replicas"])
            );
            vec![
                json!(name),
                json!(ready),
                json!(created),
                json!(names),
                json!(images),
            ]
        }
        "controllerrevisions.apps" => {
            let owners = items(&object["metadata"]["ownerReferences"]).iter();
            let controller = owners
                .filter(|owner| owner["controller"] == true)
                .map(|owner| {
                    let version = text(&owner["apiVersion"]);
                    let kind = text(&owner["kind"]);
                    let kind = match version.split_once('/') {
                        Some((group, _)) => format!("{kind}.{group}"),
                        None => kind,
                    };
                    format!("{}/{}", kind.to_lowercase(), text(&owner["name"]))
                })
                .next();
            vec![
                json!(name),
                json!(controller.unwrap_or_else(|| "<none>".into())),
                json!(number(&object["revision"])),
                json!(created),
            ]
        }
        "jobs.batch" => {
            let [names, images] = containers_of(&spec["template"]);
            vec![
                json!(name),
                json!(job_status(object)),
                json!(job_completions(object)),
                json!(job_duration(status)),
                json!(created),
                json!(names),
                json!(images),
                json!(selected()),
            ]
        }
        "cronjobs.batch" => {
            let inner = &spec["jobTemplate"]["spec"];
            let [names, images] = containers_of(&inner["template"]);
            let last = match parsed(&status["lastScheduleTime"]) {
                Some(last) => since(last),
                None => "<none>".into(),
            };
            vec![
                json!(name),
                json!(text(&spec["schedule"])),
                json!(or(&spec["timeZone"], "<none>")),
                json!(boolean(&spec["suspend"])),
                json!(items(&status["active"]).len()),
                json!(last),
                json!(created),
                json!(names),
                json!(images),
                json!(none_if_empty(selector(&inner["selector"]))),
            ]
        }
        _ => return None,
    })
}

/// Returns the conditions in the row of a finished pod; null for all other objects.
pub(super) fn row_conditions(resource: &Resource, object: &Value) -> Value {
    let completed = |reason: &str, message: &str| json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]);
    match object["status"]["phase"].as_str() {
        Some("Succeeded") if resource.storage == "pods" => {
            completed("Succeeded", "The pod has completed successfully.")
        }
        Some("Failed") if resource.storage == "pods" => completed("Failed", "The pod failed."),
        _ => Value::Null,
    }
}

fn node(node: &Value, created: &str) -> Vec<Value> {
    let status = &node["status"];
    let ready = items(&status["conditions"])
        .iter()
        .find(|condition| condition["type"] == "Ready");
    let mut words = vec![match ready {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node["spec"]["unschedulable"] == true {
        words.push("SchedulingDisabled");
    }
    let node_labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<String> = node_labels
        .filter_map(|(key, value)| {
            if key == "kubernetes.io/role" {
                return Some(text(value));
            }
            key.strip_prefix("node-role.kubernetes.io/")
                .map(str::to_owned)
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort();
    roles.dedup();
    let address = |kind: &str| {
        let found = items(&status["addresses"])
            .iter()
            .find(|address| address["type"] == kind);
        found.map_or_else(|| "<none>".to_owned(), |found| text(&found["address"]))
    };
    let info = &status["nodeInfo"];
    vec![
        node["metadata"]["name"].clone(),
        json!(words.join(",")),
        json!(none_if_empty(roles.join(","))),
        json!(created),
        json!(text(&info["kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(or(&info["osImage"], "<unknown>")),
        json!(or(&info["kernelVersion"], "<unknown>")),
        json!(or(&info["containerRuntimeVersion"], "<unknown>")),
    ]
}

/// Number of restarts of containers, and the time of the last one.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(&container["restartCount"]);
        let ended = parsed(&container["lastState"]["terminated"]["finishedAt"]);
        self.last = self.last.max(ended);
    }
}

fn pod(pod: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let phase = text(&status["phase"]);
    let conditions = items(&status["conditions"]);
    let has_condition = |kind: &str| {
        conditions
            .iter()
            .any(|condition| condition["type"] == kind && condition["status"] == "True")
    };
    let mut reason = or(&status["reason"], &phase);
    if conditions.iter().any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    }) {
        reason = "SchedulingGated".into();
    }
    let starts_again = |container: &Value| {
        items(&spec["initContainers"])
            .iter()
            .any(|known| known["name"] == container["name"] && known["restartPolicy"] == "Always")
    };
    let sidecars = items(&spec["initContainers"])
        .iter()
        .filter(|container| starts_again(container))
        .count();
    let total = items(&spec["containers"]).len() + sidecars;
    let mut ready = 0;
    let mut restarts = Restarts::default();
    let mut sidecar_restarts = Restarts::default();
    let mut initializing = false;
    for (index, container) in items(&status["initContainerStatuses"]).iter().enumerate() {
        restarts.add(container);
        if starts_again(container) {
            sidecar_restarts.add(container);
        }
        let ended = &container["state"]["terminated"];
        if ended.is_object() && number(&ended["exitCode"]) == 0 {
            continue;
        }
        if starts_again(container) && container["started"] == true {
            ready += usize::from(container["ready"] == true);
            continue;
        }
        let waits = text(&container["state"]["waiting"]["reason"]);
        reason = if ended.is_object() {
            format!("Init:{}", end_reason(ended))
        } else if !waits.is_empty() && waits != "PodInitializing" {
            format!("Init:{waits}")
        } else {
            format!("Init:{index}/{}", items(&spec["initContainers"]).len())
        };
        initializing = true;
        break;
    }
    if !initializing || has_condition("Initialized") {
        restarts = sidecar_restarts;
        let mut has_running = false;
        let mut failed = String::new();
        for container in items(&status["containerStatuses"]).iter().rev() {
            restarts.add(container);
            let state = &container["state"];
            let waits = text(&state["waiting"]["reason"]);
            if !waits.is_empty() {
                reason = waits;
            } else if state["terminated"].is_object() {
                reason = end_reason(&state["terminated"]);
                if number(&state["terminated"]["exitCode"]) != 0 {
                    failed.clone_from(&reason);
                }
            } else if container["ready"] == true && state["running"].is_object() {
                has_running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if has_running && has_condition("Ready") {
                reason = "Running".into();
            } else if !failed.is_empty() {
                reason = failed;
            } else if has_running {
                reason = "NotReady".into();
            }
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        if status["reason"] == "NodeLost" {
            reason = "Unknown".into();
        } else if phase != "Succeeded" && phase != "Failed" {
            reason = "Terminating".into();
        }
    }
    let restart_count = match restarts.last {
        Some(last) if restarts.count != 0 => format!("{} ({} ago)", restarts.count, since(last)),
        _ => restarts.count.to_string(),
    };
    let gates = items(&spec["readinessGates"]);
    let open = gates
        .iter()
        .filter(|gate| has_condition(&text(&gate["conditionType"])))
        .count();
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        format!("{open}/{}", gates.len())
    };
    vec![
        pod["metadata"]["name"].clone(),
        json!(format!("{ready}/{total}")),
        json!(reason),
        json!(restart_count),
        json!(created),
        json!(or(&status["podIPs"][0]["ip"], "<none>")),
        json!(or(&spec["nodeName"], "<none>")),
        json!(or(&status["nominatedNodeName"], "<none>")),
        json!(gates),
    ]
}

/// Returns why a container ended.
fn end_reason(ended: &Value) -> String {
    let reason = text(&ended["reason"]);
    if !reason.is_empty() {
        reason
    } else if number(&ended["signal"]) != 0 {
        format!("Signal:{}", number(&ended["signal"]))
    } else {
        format!("ExitCode:{}", number(&ended["exitCode"]))
    }
}

fn job_status(job: &Value) -> &'static str {
    let is = |kind: &str| {
        let condition = items(&job["status"]["conditions"])
            .iter()
            .find(|condition| condition["type"] == kind);
        condition.is_some_and(|condition| condition["status"] == "True")
    };
    for ended in ["Complete", "Failed"] {
        if is(ended) {
            return ended;
        }
    }
    if job["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|kind| is(kind))
        .unwrap_or("Running")
}

fn job_completions(job: &Value) -> String {
    let succeeded = number(&job["status"]["succeeded"]);
    let parallelism = number(&job["spec"]["parallelism"]);
    match job["spec"]["completions"].as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn job_duration(status: &Value) -> String {
    match (
        parsed(&status["startTime"]),
        parsed(&status["completionTime"]),
    ) {
        (None, _) => String::new(),
        (Some(_), None) => age(&status["startTime"]),
        (Some(start), Some(end)) => duration(end.duration_since(start).as_secs_f64()),
    }
}
