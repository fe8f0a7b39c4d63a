//! Cells of pods, and the conditions in their rows.

use std::mem;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::Resource;
use crate::values::words::{items, number, or, parsed, since, text};

/// Returns the cells of a pod.
pub(super) fn cells(pod: &Value, created: &str) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let sidecars = items(&spec["initContainers"])
        .iter()
        .filter(|container| starts_again(spec, container))
        .count();
    let total = items(&spec["containers"]).len() + sidecars;
    let Summary {
        reason,
        ready,
        restarts,
        ..
    } = Summary::of(pod);
    vec![
        pod["metadata"]["name"].clone(),
        json!(format!("{ready}/{total}")),
        json!(reason),
        json!(restarts.cell()),
        json!(created),
        json!(or(&status["podIPs"][0]["ip"], "<none>")),
        json!(or(&spec["nodeName"], "<none>")),
        json!(or(&status["nominatedNodeName"], "<none>")),
        json!(readiness_gates(pod)),
    ]
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

    fn cell(&self) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, since(last)),
            _ => self.count.to_string(),
        }
    }
}

/// What a row says of a pod's containers.
#[derive(Default)]
struct Summary {
    /// Why the pod is where it is: its phase, or what is closer to the cause.
    reason: String,
    /// Number of ready containers.
    ready: usize,
    restarts: Restarts,
    /// Restarts of the init containers that run as long as the pod does.
    sidecar_restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let status = &pod["status"];
        let is_gated = items(&status["conditions"]).iter().any(|condition| {
            condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
        });
        let mut summary = Self {
            reason: if is_gated {
                "SchedulingGated".into()
            } else {
                or(&status["reason"], &text(&status["phase"]))
            },
            ..Self::default()
        };
        let is_initializing = summary.add_init_containers(pod);
        if !is_initializing || has_condition(status, "Initialized") {
            summary.add_containers(status);
        }
        summary.add_deletion(pod);
        summary
    }

    /// Adds the init containers up to the first one that the pod waits for; returns whether there is one.
    fn add_init_containers(&mut self, pod: &Value) -> bool {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        for (index, container) in items(&status["initContainerStatuses"]).iter().enumerate() {
            let is_sidecar = starts_again(spec, container);
            self.restarts.add(container);
            if is_sidecar {
                self.sidecar_restarts.add(container);
            }
            let ended = &container["state"]["terminated"];
            if ended.is_object() && number(&ended["exitCode"]) == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waits = text(&container["state"]["waiting"]["reason"]);
            self.reason = if ended.is_object() {
                format!("Init:{}", end_reason(ended))
            } else if !waits.is_empty() && waits != "PodInitializing" {
                format!("Init:{waits}")
            } else {
                format!("Init:{index}/{}", items(&spec["initContainers"]).len())
            };
            return true;
        }
        false
    }

    /// Adds the containers of a pod that is initialized. From then on the restarts of ended init containers do not count.
    fn add_containers(&mut self, status: &Value) {
        self.restarts = mem::take(&mut self.sidecar_restarts);
        let mut has_running = false;
        let mut failed = String::new();
        for container in items(&status["containerStatuses"]).iter().rev() {
            self.restarts.add(container);
            let state = &container["state"];
            let waits = text(&state["waiting"]["reason"]);
            if !waits.is_empty() {
                self.reason = waits;
            } else if state["terminated"].is_object() {
                self.reason = end_reason(&state["terminated"]);
                if number(&state["terminated"]["exitCode"]) != 0 {
                    failed.clone_from(&self.reason);
                }
            } else if container["ready"] == true && state["running"].is_object() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if has_running && has_condition(status, "Ready") {
                self.reason = "Running".into();
            } else if !failed.is_empty() {
                self.reason = failed;
            } else if has_running {
                self.reason = "NotReady".into();
            }
        }
    }

    fn add_deletion(&mut self, pod: &Value) {
        if !pod["metadata"]["deletionTimestamp"].is_string() {
            return;
        }
        let status = &pod["status"];
        if status["reason"] == "NodeLost" {
            self.reason = "Unknown".into();
        } else if !["Succeeded", "Failed"].contains(&text(&status["phase"]).as_str()) {
            self.reason = "Terminating".into();
        }
    }
}

/// Returns whether a container is an init container that starts again when it ends: a sidecar.
fn starts_again(spec: &Value, container: &Value) -> bool {
    items(&spec["initContainers"])
        .iter()
        .any(|known| known["name"] == container["name"] && known["restartPolicy"] == "Always")
}

fn has_condition(status: &Value, kind: &str) -> bool {
    items(&status["conditions"])
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Returns how many of a pod's readiness gates are open.
fn readiness_gates(pod: &Value) -> String {
    let gates = items(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let open = gates
        .iter()
        .filter(|gate| has_condition(&pod["status"], &text(&gate["conditionType"])))
        .count();
    format!("{open}/{}", gates.len())
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
