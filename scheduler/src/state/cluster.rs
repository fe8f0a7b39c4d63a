//! Nodes and the pods on them: what the watches reported, and what this scheduler has placed but not yet seen in the watch.
//!
//! A plain structure without I/O, updated by every change. A pod that is assumed on a node stays there until the watch shows it there,
//! it is deleted, or the binding fails ([`Cluster::forget`]).
//!
//! In reading order: this file, `node`, `charging` (what pods take of their nodes), `group` (services and controllers), `budget`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use charging::holds_resources;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::state::group_kind::GroupKind;
use crate::state::images::ImageId;
use crate::state::node::{Node, NodeState};
use crate::state::pod::{Phase, Pod, PodKey};
use crate::state::storage::Storage;
use crate::state::touched::Touched;

mod budget;
mod charging;
mod group;

pub use budget::Budget;
pub use group::labelled;

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
    /// Pods that this scheduler placed and the watch has not shown on their node yet.
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
}

#[cfg(test)]
mod tests;
