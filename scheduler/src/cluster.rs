//! Nodes and the pods on them: what the watches told, and what this scheduler has placed and not yet seen back.
//!
//! A plain structure without I/O, fed change by change. A pod that was assumed on a node stays there until the watch shows it there,
//! it is deleted, or the binding failed ([`Cluster::forget`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node as WireNode, Taint};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use topology::resource::Resources;

use crate::filter::selector;
use crate::images::{ImageId, Images};
use crate::pod::{Phase, Pod, PodKey, resources};
use crate::storage::Storage;
use crate::touched::Touched;

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
    /// Images that are there already; these only matter to scores.
    pub images: Images,
}

impl Node {
    /// Whether every filter judges it as it judges the other.
    fn filters_alike(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.taints == other.taints
            && self.unschedulable == other.unschedulable
            && self.allocatable == other.allocatable
    }

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
            images: Images::read(status.images.as_deref().unwrap_or_default()),
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
    /// How many of them have which priority.
    pub priorities: BTreeMap<i32, usize>,
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
    budgets: BTreeMap<PodKey, Budget>,
    /// Waiting pods for which others gave way, with the node.
    nominations: BTreeMap<PodKey, String>,
    /// Pods with a say on who should be near them.
    sociable: BTreeSet<PodKey>,
    groups: BTreeMap<(GroupKind, PodKey), LabelSelector>,
    /// Number of nodes that have an image.
    images: HashMap<ImageId, usize>,
    storage: Storage,
    /// How many pods with a node use a claim that they name themselves.
    claim_users: BTreeMap<PodKey, usize>,
    touched: Touched,
}

/// What makes pods one group.
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

    /// The kind of a pod's controller; none if it is no such one.
    pub fn of_controller(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }

    /// Its objects, as the API names them.
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
    /// The pods that it covers; none or an empty one covers nothing.
    pub selector: Option<LabelSelector>,
    /// How many of them may go now.
    pub allowed: i32,
    /// Names of pods that are about to go and are accounted for.
    pub disrupted: BTreeSet<String>,
}

impl Budget {
    /// Reads a budget with its namespace and name. Nothing for objects without, which no API server sends.
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
    /// A cluster without anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nodes that changed since the last call, they themselves or their pods.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.take()
    }

    /// Volumes and claims.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Volumes and claims, to be changed.
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// Whether a pod with a node uses a claim.
    pub fn is_claim_in_use(&self, claim: &PodKey) -> bool {
        self.claim_users.contains_key(claim)
    }

    /// Nodes whose object is known, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&Node, &NodeState)> + Clone {
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

    /// Pods with any affinity to other pods, required or preferred, or with preferred anti-affinity.
    pub fn sociable_pods(&self) -> impl Iterator<Item = &Pod> {
        self.sociable.iter().filter_map(|key| self.pods.get(key))
    }

    /// How many nodes have an image.
    pub fn nodes_with(&self, image: ImageId) -> usize {
        self.images.get(&image).copied().unwrap_or(0)
    }

    /// What the services that select a pod, and its controller, select together; nothing if there are none.
    pub fn siblings(&self, pod: &Pod) -> Option<LabelSelector> {
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
        let controller = pod.wishes.controller.as_ref();
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
        let together = LabelSelector {
            match_labels: Some(labels),
            match_expressions: Some(expressions),
        };
        (!selector::is_empty(Some(&together))).then_some(together)
    }

    /// A service or a controller of pods was added or changed.
    pub fn apply_group(&mut self, kind: GroupKind, key: PodKey, selector: LabelSelector) {
        self.groups.insert((kind, key), selector);
    }

    /// A service or a controller of pods is gone.
    pub fn delete_group(&mut self, kind: GroupKind, key: &PodKey) {
        self.groups.remove(&(kind, key.clone()));
    }

    /// Only these services, or controllers of one kind, are left.
    pub fn retain_groups(&mut self, kind: GroupKind, keys: &BTreeSet<PodKey>) {
        self.groups
            .retain(|(other, key), _| *other != kind || keys.contains(key));
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

    /// Every disruption budget with its namespace and name.
    pub fn budgets(&self) -> impl Iterator<Item = (&PodKey, &Budget)> {
        self.budgets.iter()
    }

    /// A disruption budget was added or changed.
    pub fn apply_budget(&mut self, key: PodKey, budget: Budget) {
        self.budgets.insert(key, budget);
    }

    /// A disruption budget is gone.
    pub fn delete_budget(&mut self, key: &PodKey) {
        self.budgets.remove(key);
    }

    /// The node where others gave way to a waiting pod.
    pub fn nomination(&self, key: &PodKey) -> Option<&str> {
        self.nominations.get(key).map(String::as_str)
    }

    /// Waiting pods for which others gave way, with the node.
    pub fn nominations(&self) -> impl Iterator<Item = (&Pod, &str)> {
        self.nominations
            .iter()
            .filter_map(|(key, node)| Some((self.pods.get(key)?, node.as_str())))
    }

    /// Others give way to a waiting pod on this node, or nowhere any more.
    pub fn nominate(&mut self, key: &PodKey, node: Option<String>) {
        match node {
            Some(node) => drop(self.nominations.insert(key.clone(), node)),
            None => drop(self.nominations.remove(key)),
        }
    }

    /// Takes a pod away to see what would be without it; [`Cluster::put_back`] undoes it.
    pub fn take_out(&mut self, key: &PodKey) -> Option<Pod> {
        self.release(key);
        self.exclusive.remove(key);
        self.sociable.remove(key);
        self.pods.remove(key)
    }

    /// Puts back what [`Cluster::take_out`] gave.
    pub fn put_back(&mut self, pod: Pod) {
        if holds(&pod) {
            self.charge(&pod);
        }
        self.index(&pod);
        self.pods.insert(pod.key.clone(), pod);
    }

    /// A node was added or changed. True if anything that placing looks at is different.
    pub fn apply_node(&mut self, node: Node) -> bool {
        let state = self.nodes.entry(node.name.clone()).or_default();
        let before = state.node.take();
        let is_alike = before
            .as_ref()
            .is_some_and(|before| before.filters_alike(&node));
        if before
            .as_ref()
            .is_some_and(|before| before.images == node.images)
        {
            self.touched.note(&node.name);
        } else {
            // how many nodes there are, and have an image, matters to the others
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

    /// A node is gone. Its pods remain known until they are deleted.
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
        // A status that says nothing new may be older than what was decided here.
        if pod.node.is_some() || pod.phase == Phase::Terminal || pod.deleting || replaced {
            self.nominations.remove(&key);
        }
        let waits = pod.node.is_none() && pod.phase != Phase::Terminal && !pod.deleting;
        let told = before.and_then(|before| before.nominated.as_ref());
        if waits && (replaced || told != pod.nominated.as_ref()) {
            match &pod.nominated {
                Some(node) => drop(self.nominations.insert(key.clone(), node.clone())),
                None => drop(self.nominations.remove(&key)),
            }
        }
        let held = before.is_some_and(holds);
        let elsewhere = before.is_some_and(|before| before.node != pod.node);
        self.release(&key);
        let holds_now = holds(&pod);
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

    /// A pod is gone; gives back what was known of it.
    pub fn delete_pod(&mut self, key: &PodKey) -> Option<Pod> {
        self.release(key);
        self.assumed.remove(key);
        self.exclusive.remove(key);
        self.sociable.remove(key);
        self.nominations.remove(key);
        self.pods.remove(key)
    }

    /// Counts a pod on a node before the API server knows. False if the pod is gone.
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

    /// Remembers which rules of a pod others have to look at.
    fn index(&mut self, pod: &Pod) {
        let note = |set: &mut BTreeSet<PodKey>, is_in: bool| {
            if is_in {
                set.insert(pod.key.clone());
            } else {
                set.remove(&pod.key);
            }
        };
        note(&mut self.exclusive, !pod.anti_affinity.is_empty());
        note(
            &mut self.sociable,
            !pod.wishes.affinity.is_empty() || pod.wishes.preferences.is_some(),
        );
    }

    fn charge(&mut self, pod: &Pod) {
        let Some(name) = &pod.node else { return };
        let state = self.nodes.entry(name.clone()).or_default();
        if state.pods.insert(pod.key.clone()) {
            self.touched.note(name);
            state.used.add(&pod.node_request);
            state.scored.0 += pod.scored.0;
            state.scored.1 += pod.scored.1;
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
            state.scored.0 -= pod.scored.0;
            state.scored.1 -= pod.scored.1;
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

/// A selector of these labels.
pub fn labelled(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}

/// Claims that a pod names itself.
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
