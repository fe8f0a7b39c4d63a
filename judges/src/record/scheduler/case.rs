//! One case: its objects, which have names of their own, and how its pod is pinned to its node.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

/// How a pod is pinned to its node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    /// Every node has a taint with its name.
    Taint,
    /// The pod has an affinity to the name.
    Name,
}

/// Returns the plugin that pins pods to nodes.
pub(super) fn pinned_by(pin: Pin) -> &'static str {
    match pin {
        Pin::Taint => "TaintToleration",
        Pin::Name => "NodeAffinity",
    }
}

/// Objects of one case.
pub(super) struct Case {
    /// Distinguishes its names from those of other cases.
    pub(super) id: String,
    pub(super) namespaces: Vec<Value>,
    pub(super) nodes: Vec<Value>,
    pub(super) pods: Vec<Value>,
    pub(super) pod: Value,
    /// Services and controllers of pods.
    pub(super) groups: Vec<Value>,
    /// Volumes, claims and the objects that they depend on.
    pub(super) storage: Vec<Value>,
    /// The node to which the pod is pinned.
    pub(super) node: String,
}

impl Case {
    /// Builds a case with a pod in its own namespace, for the scheduler of that name.
    pub(super) fn empty(seed: u64, scheduler: &str) -> Self {
        let id = format!("c{seed}");
        let mut case = Self {
            namespaces: vec![json!({"metadata": {"name": id, "labels": {"case": id}}})],
            nodes: Vec::new(),
            pods: Vec::new(),
            pod: Value::Null,
            groups: Vec::new(),
            storage: Vec::new(),
            node: format!("{id}-0"),
            id,
        };
        case.pod = case.new_pod("pod", &json!({}));
        case.pod["spec"]["schedulerName"] = json!(scheduler);
        case
    }

    /// Pins the pod to its node.
    pub(super) fn hold(&mut self, pin: Pin) {
        match pin {
            Pin::Taint => {
                for node in &mut self.nodes {
                    let taint = json!({"key": "pin", "value": node["metadata"]["name"], "effect": "NoSchedule"});
                    push(&mut node["spec"]["taints"], taint);
                }
                let toleration = json!({"key": "pin", "operator": "Equal", "value": self.node, "effect": "NoSchedule"});
                push(&mut self.pod["spec"]["tolerations"], toleration);
            }
            Pin::Name => {
                let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.node]}]});
                self.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!({"nodeSelectorTerms": [term]});
            }
        }
    }

    pub(super) fn new_node(&mut self, labels: &Value) -> &mut Value {
        let name = format!("{}-{}", self.id, self.nodes.len());
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        self.nodes.push(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": allocatable},
        }));
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    fn new_pod(&self, name: &str, labels: &Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": self.id, "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]},
        })
    }

    /// Builds a pod on one of the nodes, in a phase in which it counts or no longer counts.
    pub(super) fn guest(&self, random: &mut Random, labels: &Value) -> Value {
        let mut pod = self.new_pod(&format!("guest-{}", self.pods.len()), labels);
        let node = random.between(0, self.nodes.len() as u64 - 1);
        pod["spec"]["nodeName"] = json!(format!("{}-{node}", self.id));
        match random.between(0, 9) {
            0 => pod["status"] = json!({"phase": "Succeeded"}),
            // the finalizer keeps it from being deleted
            1 => {
                pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            _ => {}
        }
        pod
    }
}

pub(super) fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    }
}

pub(super) fn pick<'a>(random: &mut Random, choices: &[&'a str]) -> &'a str {
    choices[random.between(0, choices.len() as u64 - 1) as usize]
}
