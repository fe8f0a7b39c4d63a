//! Nodes and the pods on them: what the watches told, and what this scheduler has placed and not yet seen back.
//!
//! A plain structure without I/O, fed change by change. A pod that was assumed on a node stays there until the watch shows it there,
//! it is deleted, or the binding failed ([`Cluster::forget`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node as WireNode, Taint};
use topology::resource::Resources;

use crate::pod::{Phase, Pod, PodKey, resources};

/// A node as its object tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Closed to new pods.
    pub unschedulable: bool,
    /// What pods may use in total.
    pub allocatable: Resources,
}

impl Node {
    /// Reads a node. Nothing for objects without a name, which no API server sends.
    pub fn read(wire: WireNode) -> Option<Self> {
        let (spec, status) = (
            wire.spec.unwrap_or_default(),
            wire.status.unwrap_or_default(),
        );
        Some(Self {
            name: wire.metadata.name?,
            labels: wire.metadata.labels.unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            allocatable: resources(status.allocatable.as_ref()),
        })
    }
}

/// A node with what its pods take.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// The object; none while only pods name the node.
    pub node: Option<Node>,
    /// Pods that hold something there.
    pub pods: BTreeSet<PodKey>,
    /// Sum of their requests.
    pub used: Resources,
    /// The same for scores: CPU (milli), memory.
    pub scored: (i64, i64),
}

/// What a change of a pod means to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodEffect {
    /// Something on a node became free.
    pub freed: bool,
    /// A pod appeared on a node, which matters to those that want to be near it.
    pub placed: bool,
}

/// All nodes and pods.
#[derive(Debug, Default)]
pub struct Cluster {
    nodes: BTreeMap<String, NodeState>,
    pods: HashMap<PodKey, Pod>,
    assumed: BTreeSet<PodKey>,
    /// Pods with required anti-affinity: every pod must respect theirs.
    exclusive: BTreeSet<PodKey>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

impl Cluster {
    /// A cluster without anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nodes whose object is known, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&Node, &NodeState)> {
        self.nodes
            .values()
            .filter_map(|state| Some((state.node.as_ref()?, state)))
    }

    /// One node.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// One pod.
    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key)
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// Pods that do not want certain others near them.
    pub fn pods_with_anti_affinity(&self) -> impl Iterator<Item = &Pod> {
        self.exclusive.iter().filter_map(|key| self.pods.get(key))
    }

    /// Whether a pod is placed by us and not yet seen back.
    pub fn is_assumed(&self, key: &PodKey) -> bool {
        self.assumed.contains(key)
    }

    /// Number of pods that are placed by us and not yet seen back.
    pub fn assumed_count(&self) -> usize {
        self.assumed.len()
    }

    /// Labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(name)
    }

    /// A namespace was added or changed.
    pub fn apply_namespace(&mut self, name: String, labels: BTreeMap<String, String>) {
        self.namespaces.insert(name, labels);
    }

    /// A namespace is gone.
    pub fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// A node was added or changed. True if anything that placing looks at is different.
    pub fn apply_node(&mut self, node: Node) -> bool {
        let state = self.nodes.entry(node.name.clone()).or_default();
        let changed = state.node.as_ref() != Some(&node);
        state.node = Some(node);
        changed
    }

    /// A node is gone. Its pods remain known until they are deleted.
    pub fn delete_node(&mut self, name: &str) {
        if let Some(state) = self.nodes.get_mut(name) {
            state.node = None;
            if state.pods.is_empty() {
                self.nodes.remove(name);
            }
        }
    }

    /// A pod was added or changed.
    pub fn apply_pod(&mut self, mut pod: Pod) -> PodEffect {
        let key = pod.key.clone();
        let before = self.pods.get(&key);
        let replaced = before.is_some_and(|before| before.uid != pod.uid);
        if self.assumed.contains(&key) {
            if replaced || pod.node.is_some() {
                self.assumed.remove(&key);
            } else {
                // Older than our binding: only the node is kept from what we know.
                pod.node = before.and_then(|before| before.node.clone());
            }
        }
        let held = before.is_some_and(holds);
        let elsewhere = before.is_some_and(|before| before.node != pod.node);
        self.release(&key);
        let holds_now = holds(&pod);
        if holds_now {
            self.charge(&pod);
        }
        if pod.anti_affinity.is_empty() {
            self.exclusive.remove(&key);
        } else {
            self.exclusive.insert(key.clone());
        }
        self.pods.insert(key, pod);
        PodEffect {
            freed: held && (!holds_now || replaced || elsewhere),
            placed: holds_now && (!held || replaced),
        }
    }

    /// A pod is gone; gives back what was known of it.
    pub fn delete_pod(&mut self, key: &PodKey) -> Option<Pod> {
        self.release(key);
        self.assumed.remove(key);
        self.exclusive.remove(key);
        self.pods.remove(key)
    }

    /// Counts a pod on a node before the API server knows. False if the pod is gone.
    pub fn assume(&mut self, key: &PodKey, node: &str) -> bool {
        let Some(mut pod) = self.pods.get(key).cloned() else {
            return false;
        };
        self.release(key);
        pod.node = Some(node.to_owned());
        self.charge(&pod);
        self.assumed.insert(key.clone());
        self.pods.insert(key.clone(), pod);
        true
    }

    /// Takes back an assumption, if it still stands for that very pod.
    pub fn forget(&mut self, key: &PodKey, uid: &str) -> bool {
        if self.pods.get(key).is_none_or(|pod| pod.uid != uid) || !self.assumed.remove(key) {
            return false;
        }
        self.release(key);
        if let Some(pod) = self.pods.get_mut(key) {
            pod.node = None;
        }
        true
    }

    fn charge(&mut self, pod: &Pod) {
        let Some(name) = &pod.node else { return };
        let state = self.nodes.entry(name.clone()).or_default();
        if state.pods.insert(pod.key.clone()) {
            state.used.add(&pod.node_request);
            state.scored.0 += pod.scored.0;
            state.scored.1 += pod.scored.1;
        }
    }

    fn release(&mut self, key: &PodKey) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let Some(name) = &pod.node else { return };
        let Some(state) = self.nodes.get_mut(name) else {
            return;
        };
        if state.pods.remove(key) {
            state.used.subtract_listed(&pod.node_request);
            state.scored.0 -= pod.scored.0;
            state.scored.1 -= pod.scored.1;
        }
        if state.pods.is_empty() && state.node.is_none() {
            let name = name.clone();
            self.nodes.remove(&name);
        }
    }
}

/// Whether a pod takes anything from a node.
fn holds(pod: &Pod) -> bool {
    pod.node.is_some() && pod.phase != Phase::Terminal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};

    fn used(cluster: &Cluster, node: &str) -> (usize, i64) {
        cluster
            .node(node)
            .map_or((0, 0), |state| (state.pods.len(), state.used.amount("cpu")))
    }

    #[test]
    fn an_assumed_pod_counts_until_seen_or_forgotten() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4"));
        let pod = mk_pod("p", "cpu=1");
        cluster.apply_pod(pod.clone());
        assert_eq!(used(&cluster, "n"), (0, 0));
        assert!(cluster.assume(&pod.key, "n"));
        assert_eq!(
            (used(&cluster, "n"), cluster.assumed_count()),
            ((1, 1000), 1)
        );
        // A stale update without a node does not free it.
        assert_eq!(cluster.apply_pod(pod.clone()), PodEffect::default());
        assert_eq!(used(&cluster, "n"), (1, 1000));
        assert!(cluster.forget(&pod.key, &pod.uid));
        assert_eq!(used(&cluster, "n"), (0, 0));
        assert!(cluster.assume(&pod.key, "n"));
        let bound = Pod {
            node: Some("n".to_owned()),
            ..pod.clone()
        };
        cluster.apply_pod(bound);
        assert_eq!(
            (used(&cluster, "n"), cluster.assumed_count()),
            ((1, 1000), 0)
        );
        assert!(!cluster.forget(&pod.key, &pod.uid));
    }

    #[test]
    fn an_assumption_ends_with_the_pod_it_was_made_for() {
        let mut cluster = Cluster::new();
        let pod = mk_pod("p", "cpu=1");
        cluster.apply_pod(pod.clone());
        cluster.assume(&pod.key, "n");
        let successor = Pod {
            uid: "other".to_owned(),
            ..pod.clone()
        };
        assert!(cluster.apply_pod(successor).freed);
        assert_eq!((used(&cluster, "n"), cluster.assumed_count()), ((0, 0), 0));
    }

    #[test]
    fn finished_and_deleted_pods_free_what_they_held() {
        let mut cluster = Cluster::new();
        cluster.apply_node(mk_node("n", "cpu=4"));
        let bound = |name| Pod {
            node: Some("n".to_owned()),
            ..mk_pod(name, "cpu=1")
        };
        assert_eq!(
            cluster.apply_pod(bound("a")),
            PodEffect {
                freed: false,
                placed: true
            }
        );
        assert_eq!(cluster.apply_pod(bound("a")), PodEffect::default());
        cluster.apply_pod(bound("b"));
        let done = Pod {
            phase: Phase::Terminal,
            ..bound("a")
        };
        assert!(cluster.apply_pod(done).freed);
        assert_eq!(used(&cluster, "n"), (1, 1000));
        cluster.delete_pod(&bound("b").key);
        assert_eq!(used(&cluster, "n"), (0, 0));
    }

    #[test]
    fn a_node_that_vanishes_and_returns_keeps_its_pods() {
        let mut cluster = Cluster::new();
        let pod = Pod {
            node: Some("n".to_owned()),
            ..mk_pod("a", "cpu=1")
        };
        cluster.apply_pod(pod.clone());
        assert_eq!(cluster.nodes().count(), 0);
        assert!(cluster.apply_node(mk_node("n", "cpu=4")));
        assert!(!cluster.apply_node(mk_node("n", "cpu=4")));
        cluster.delete_node("n");
        cluster.apply_node(mk_node("n", "cpu=4"));
        assert_eq!(used(&cluster, "n"), (1, 1000));
        cluster.delete_node("n");
        cluster.delete_pod(&pod.key);
        assert!(cluster.node("n").is_none());
    }
}
