//! Nodes and the pods on them: what the watches reported, and what this scheduler has placed but not yet seen in the watch.
//!
//! A plain structure without I/O, updated by every change. A pod that is assumed on a node stays there until the watch shows it there,
//! it is deleted, or the binding fails ([`Cluster::forget`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node as WireNode, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use topology::resource::Resources;

use crate::state::images::{ImageId, Images};
use crate::state::pod::{Phase, Pod, PodKey, resources};
use crate::state::selector;
use crate::state::storage::Storage;
use crate::state::touched::Touched;

/// The fields of a node object that the scheduler reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Whether it is closed to new pods.
    pub unschedulable: bool,
    /// What pods may use in total.
    pub allocatable: Resources,
    /// Images on the node. They affect scores only.
    pub images: Images,
}

impl Node {
    /// Returns whether every filter treats both nodes alike.
    fn is_alike_for_filters(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.taints == other.taints
            && self.unschedulable == other.unschedulable
            && self.allocatable == other.allocatable
    }

    /// Reads a node. Returns `None` for objects without a name, which no API server sends.
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
            images: Images::read(status.images.as_deref().unwrap_or_default()),
        })
    }
}

/// A node and what its pods use.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// The object; `None` while only pods name the node.
    pub node: Option<Node>,
    /// Pods that hold resources there.
    pub pods: BTreeSet<PodKey>,
    /// Sum of their requests.
    pub used: Resources,
    /// Sum of their requests as scores count them: CPU (milli), memory.
    pub nonzero_request: (i64, i64),
    /// Number of these pods by priority.
    pub priorities: BTreeMap<i32, usize>,
}

/// How a change of a pod affects other pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodEffect {
    /// Resources on a node became free.
    pub freed: bool,
    /// A pod appeared on a node, which matters to pods with affinity to it.
    pub placed: bool,
}

/// All nodes and pods.
#[derive(Debug, Default)]
pub struct Cluster {
    nodes: BTreeMap<String, NodeState>,
    pods: HashMap<PodKey, Pod>,
    assumed: BTreeSet<PodKey>,
    /// Pods with required anti-affinity, which every other pod must respect.
    with_anti_affinity: BTreeSet<PodKey>,
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    budgets: BTreeMap<PodKey, Budget>,
    /// Waiting pods for which others were preempted, with the node.
    nominations: BTreeMap<PodKey, String>,
    /// Pods with required affinity to other pods, or with preferences about them.
    with_affinity: BTreeSet<PodKey>,
    groups: BTreeMap<(GroupKind, PodKey), LabelSelector>,
    /// Number of nodes that have each image.
    images: HashMap<ImageId, usize>,
    storage: Storage,
    /// Number of pods with a node that use a claim by its name.
    claim_users: BTreeMap<PodKey, usize>,
    touched: Touched,
}

/// Kind of object that groups pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum GroupKind {
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
}

impl GroupKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [
        Self::Service,
        Self::ReplicationController,
        Self::ReplicaSet,
        Self::StatefulSet,
    ];

    /// Returns the kind of a pod's controller; `None` if it is none of these kinds.
    pub fn of_controller(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }

    /// Returns the plural name of its objects in the API.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Service => "services",
            Self::ReplicationController => "replicationcontrollers",
            Self::ReplicaSet => "replicasets",
            Self::StatefulSet => "statefulsets",
        }
    }
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Selector of the pods that it covers. An absent or empty one covers nothing.
    pub selector: Option<LabelSelector>,
    /// How many of them may be disrupted now.
    pub allowed: i32,
    /// Names of pods whose disruption is in progress and already counted.
    pub disrupted: BTreeSet<String>,
}

impl Budget {
    /// Reads a budget with its namespace and name. Returns `None` for objects without them, which no API server sends.
    pub fn read(wire: PodDisruptionBudget) -> Option<(PodKey, Self)> {
        let key = PodKey {
            namespace: wire.metadata.namespace?,
            name: wire.metadata.name?,
        };
        let status = wire.status.unwrap_or_default();
        let budget = Self {
            selector: wire.spec.and_then(|spec| spec.selector),
            allowed: status.disruptions_allowed,
            disrupted: status
                .disrupted_pods
                .into_iter()
                .flatten()
                .map(|(name, _)| name)
                .collect(),
        };
        Some((key, budget))
    }
}

impl Cluster {
    /// Creates an empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the nodes that changed since the last call: the node itself or its pods.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.take()
    }

    /// Returns volumes and claims.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns volumes and claims for modification.
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// Returns whether a pod with a node uses a claim.
    pub fn is_claim_in_use(&self, claim: &PodKey) -> bool {
        self.claim_users.contains_key(claim)
    }

    /// Iterates over the nodes whose object is known, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&Node, &NodeState)> + Clone {
        self.nodes
            .values()
            .filter_map(|state| Some((state.node.as_ref()?, state)))
    }

    /// Returns a node by name.
    pub fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    /// Returns a pod.
    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        self.pods.get(key)
    }

    /// Iterates over all pods.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// Iterates over the pods with required anti-affinity.
    pub fn pods_with_anti_affinity(&self) -> impl Iterator<Item = &Pod> {
        self.with_anti_affinity
            .iter()
            .filter_map(|key| self.pods.get(key))
    }

    /// Iterates over the pods with any affinity to other pods, required or preferred, or with preferred anti-affinity.
    pub fn pods_with_affinity(&self) -> impl Iterator<Item = &Pod> {
        self.with_affinity
            .iter()
            .filter_map(|key| self.pods.get(key))
    }

    /// Returns the number of nodes that have an image.
    pub fn nodes_with(&self, image: ImageId) -> usize {
        self.images.get(&image).copied().unwrap_or(0)
    }

    /// Returns the combined selector of a pod's controller and of the services that select the pod; `None` if it is empty.
    pub fn default_selector(&self, pod: &Pod) -> Option<LabelSelector> {
        let namespace = &pod.key.namespace;
        let first = PodKey {
            namespace: namespace.clone(),
            name: String::new(),
        };
        let mut labels = BTreeMap::new();
        let services = self.groups.range((GroupKind::Service, first)..);
        let services = services.take_while(|((kind, key), _)| {
            *kind == GroupKind::Service && key.namespace == *namespace
        });
        for (_, selector) in services {
            if selector::labels(Some(selector), &pod.labels) {
                labels.extend(selector.match_labels.clone().unwrap_or_default());
            }
        }
        let mut expressions = Vec::new();
        let controller = pod.constraints.controller.as_ref();
        if let Some(selector) = controller.and_then(|(kind, name)| {
            let key = PodKey {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            self.groups.get(&(*kind, key))
        }) {
            let equal = selector.match_labels.iter().flatten();
            expressions.extend(equal.map(|(key, value)| LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            }));
            expressions.extend(selector.match_expressions.iter().flatten().cloned());
        }
        let combined = LabelSelector {
            match_labels: Some(labels),
            match_expressions: Some(expressions),
        };
        (!selector::is_empty(Some(&combined))).then_some(combined)
    }

    /// Adds or updates a service or a controller of pods.
    pub fn apply_group(&mut self, kind: GroupKind, key: PodKey, selector: LabelSelector) {
        self.groups.insert((kind, key), selector);
    }

    /// Removes a service or a controller of pods.
    pub fn delete_group(&mut self, kind: GroupKind, key: &PodKey) {
        self.groups.remove(&(kind, key.clone()));
    }

    /// Keeps only the listed services or controllers of one kind.
    pub fn retain_groups(&mut self, kind: GroupKind, keys: &BTreeSet<PodKey>) {
        self.groups
            .retain(|(other, key), _| *other != kind || keys.contains(key));
    }

    /// Returns whether this scheduler placed the pod and the watch has not shown that yet.
    pub fn is_assumed(&self, key: &PodKey) -> bool {
        self.assumed.contains(key)
    }

    /// Returns the number of pods that this scheduler placed and the watch has not shown yet.
    pub fn assumed_count(&self) -> usize {
        self.assumed.len()
    }

    /// Returns the labels of a namespace.
    pub fn namespace_labels(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(name)
    }

    /// Adds or updates a namespace.
    pub fn apply_namespace(&mut self, name: String, labels: BTreeMap<String, String>) {
        self.namespaces.insert(name, labels);
    }

    /// Removes a namespace.
    pub fn delete_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Keeps only the namespaces whose names are accepted.
    pub fn retain_namespaces(&mut self, keep: impl Fn(&str) -> bool) {
        self.namespaces.retain(|name, _| keep(name));
    }

    /// Iterates over all disruption budgets with their namespaces and names.
    pub fn budgets(&self) -> impl Iterator<Item = (&PodKey, &Budget)> {
        self.budgets.iter()
    }

    /// Adds or updates a disruption budget.
    pub fn apply_budget(&mut self, key: PodKey, budget: Budget) {
        self.budgets.insert(key, budget);
    }

    /// Removes a disruption budget.
    pub fn delete_budget(&mut self, key: &PodKey) {
        self.budgets.remove(key);
    }

    /// Keeps only the listed disruption budgets.
    pub fn retain_budgets(&mut self, keys: &BTreeSet<PodKey>) {
        self.budgets.retain(|key, _| keys.contains(key));
    }

    /// Returns the node where others were preempted for a waiting pod.
    pub fn nomination(&self, key: &PodKey) -> Option<&str> {
        self.nominations.get(key).map(String::as_str)
    }

    /// Iterates over the waiting pods for which others were preempted, with the node.
    pub fn nominations(&self) -> impl Iterator<Item = (&Pod, &str)> {
        self.nominations
            .iter()
            .filter_map(|(key, node)| Some((self.pods.get(key)?, node.as_str())))
    }

    /// Nominates a waiting pod to the node where others are preempted for it; `None` removes the nomination.
    pub fn nominate(&mut self, key: &PodKey, node: Option<String>) {
        match node {
            Some(node) => drop(self.nominations.insert(key.clone(), node)),
            None => drop(self.nominations.remove(key)),
        }
    }

    /// Removes a pod to simulate the cluster without it; [`Cluster::put_back`] undoes it.
    pub fn take_out(&mut self, key: &PodKey) -> Option<Pod> {
        self.release(key);
        self.with_anti_affinity.remove(key);
        self.with_affinity.remove(key);
        self.pods.remove(key)
    }

    /// Puts back what [`Cluster::take_out`] returned.
    pub fn put_back(&mut self, pod: Pod) {
        if holds_resources(&pod) {
            self.charge(&pod);
        }
        self.index(&pod);
        self.pods.insert(pod.key.clone(), pod);
    }

    /// Adds or updates a node. Returns whether anything that filters read has changed.
    pub fn apply_node(&mut self, node: Node) -> bool {
        let state = self.nodes.entry(node.name.clone()).or_default();
        let before = state.node.take();
        let is_alike = before
            .as_ref()
            .is_some_and(|before| before.is_alike_for_filters(&node));
        if before
            .as_ref()
            .is_some_and(|before| before.images == node.images)
        {
            self.touched.note(&node.name);
        } else {
            // the number of nodes, and of nodes with an image, affects the other nodes too
            self.touched.note_all();
        }
        for image in node.images.ids() {
            *self.images.entry(image).or_default() += 1;
        }
        state.node = Some(node);
        self.forget_images(before.as_ref());
        !is_alike
    }

    fn forget_images(&mut self, node: Option<&Node>) {
        for image in node.iter().flat_map(|node| node.images.ids()) {
            if let Some(count) = self.images.get_mut(&image) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(&image);
                }
            }
        }
    }

    /// Removes a node. Its pods remain known until they are deleted.
    pub fn delete_node(&mut self, name: &str) {
        if let Some(state) = self.nodes.get_mut(name) {
            let node = state.node.take();
            self.touched.note_all();
            if state.pods.is_empty() {
                self.nodes.remove(name);
            }
            self.forget_images(node.as_ref());
        }
    }

    /// Adds or updates a pod.
    pub fn apply_pod(&mut self, mut pod: Pod) -> PodEffect {
        let key = pod.key.clone();
        let before = self.pods.get(&key);
        let replaced = before.is_some_and(|before| before.uid != pod.uid);
        if self.assumed.contains(&key) {
            if replaced || pod.node.is_some() {
                self.assumed.remove(&key);
            } else {
                // The update is older than our binding: keep the node that we know.
                pod.node = before.and_then(|before| before.node.clone());
            }
        }
        // A status that repeats the old nomination may be older than a decision made here, so only a changed one counts.
        if pod.node.is_some() || pod.phase == Phase::Terminal || pod.deleting || replaced {
            self.nominations.remove(&key);
        }
        let waits = pod.node.is_none() && pod.phase != Phase::Terminal && !pod.deleting;
        let previous = before.and_then(|before| before.nominated.as_ref());
        if waits && (replaced || previous != pod.nominated.as_ref()) {
            match &pod.nominated {
                Some(node) => drop(self.nominations.insert(key.clone(), node.clone())),
                None => drop(self.nominations.remove(&key)),
            }
        }
        let held = before.is_some_and(holds_resources);
        let elsewhere = before.is_some_and(|before| before.node != pod.node);
        self.release(&key);
        let holds_now = holds_resources(&pod);
        if holds_now {
            self.charge(&pod);
        }
        self.index(&pod);
        self.pods.insert(key, pod);
        PodEffect {
            freed: held && (!holds_now || replaced || elsewhere),
            placed: holds_now && (!held || replaced),
        }
    }

    /// Removes a pod and returns it.
    pub fn delete_pod(&mut self, key: &PodKey) -> Option<Pod> {
        self.release(key);
        self.assumed.remove(key);
        self.with_anti_affinity.remove(key);
        self.with_affinity.remove(key);
        self.nominations.remove(key);
        self.pods.remove(key)
    }

    /// Counts a pod on a node before the API server knows. Returns false if the pod is gone.
    pub fn assume(&mut self, key: &PodKey, node: &str) -> bool {
        let Some(mut pod) = self.pods.get(key).cloned() else {
            return false;
        };
        self.release(key);
        self.nominations.remove(key);
        pod.node = Some(node.to_owned());
        self.charge(&pod);
        self.assumed.insert(key.clone());
        self.pods.insert(key.clone(), pod);
        true
    }

    /// Takes back an assumption if it still exists for the pod with that uid. Returns whether it did.
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

    /// Indexes the affinity rules of a pod that affect other pods.
    fn index(&mut self, pod: &Pod) {
        let note = |set: &mut BTreeSet<PodKey>, is_in: bool| {
            if is_in {
                set.insert(pod.key.clone());
            } else {
                set.remove(&pod.key);
            }
        };
        note(&mut self.with_anti_affinity, !pod.anti_affinity.is_empty());
        note(
            &mut self.with_affinity,
            !pod.constraints.affinity.is_empty() || pod.constraints.preferences.is_some(),
        );
    }

    fn charge(&mut self, pod: &Pod) {
        let Some(name) = &pod.node else { return };
        let state = self.nodes.entry(name.clone()).or_default();
        if state.pods.insert(pod.key.clone()) {
            self.touched.note(name);
            state.used.add(&pod.node_request);
            state.nonzero_request.0 += pod.nonzero_request.0;
            state.nonzero_request.1 += pod.nonzero_request.1;
            *state.priorities.entry(pod.priority).or_default() += 1;
            for claim in named_claims(pod) {
                *self.claim_users.entry(claim).or_default() += 1;
            }
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
            self.touched.note(name);
            state.used.subtract_listed(&pod.node_request);
            state.nonzero_request.0 -= pod.nonzero_request.0;
            state.nonzero_request.1 -= pod.nonzero_request.1;
            if let Some(count) = state.priorities.get_mut(&pod.priority) {
                *count -= 1;
                if *count == 0 {
                    state.priorities.remove(&pod.priority);
                }
            }
            for claim in named_claims(pod) {
                if let Some(count) = self.claim_users.get_mut(&claim) {
                    *count -= 1;
                    if *count == 0 {
                        self.claim_users.remove(&claim);
                    }
                }
            }
        }
        if state.pods.is_empty() && state.node.is_none() {
            let name = name.clone();
            self.nodes.remove(&name);
        }
    }
}

/// Creates a selector of these labels.
pub fn labelled(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

/// Iterates over the claims that a pod refers to by name.
fn named_claims(pod: &Pod) -> impl Iterator<Item = PodKey> {
    let claims = pod
        .volumes
        .iter()
        .flat_map(|volumes| volumes.named_claims());
    claims.map(|claim| PodKey {
        namespace: pod.key.namespace.clone(),
        name: claim.name.clone(),
    })
}

/// Returns whether a pod takes resources of a node.
fn holds_resources(pod: &Pod) -> bool {
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
