//! The scheduler's account of the cluster: the nodes, and what the pods on them use.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};

use super::pod::{Amounts, Task, amounts};
use crate::controllers::mirror::{Mirror, ObjectKey};
use crate::controllers::objects;

/// A node and the pods on it.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeState {
    /// `None` for a node that so far only pods have named.
    pub(super) node: Option<Arc<Node>>,
    pub(super) allocatable: Amounts,
    pub(super) used: Amounts,
    /// CPU and memory that count for the score.
    pub(super) scored: (i64, i64),
    pub(super) pods: BTreeSet<ObjectKey>,
}

/// All nodes and placed pods.
pub(super) struct Ledger {
    nodes: BTreeMap<String, NodeState>,
    placed: HashMap<ObjectKey, (String, Task)>,
    /// Pods with a node that the API server has not confirmed yet.
    assumed: HashSet<ObjectKey>,
    /// Pods that a preemption makes room for, with the node.
    nominated: HashMap<ObjectKey, (String, Task)>,
    with_anti_affinity: BTreeSet<ObjectKey>,
    namespaces: Arc<Mirror<Namespace>>,
}

impl Ledger {
    pub(super) fn new(namespaces: Arc<Mirror<Namespace>>) -> Self {
        Self {
            nodes: BTreeMap::new(),
            placed: HashMap::new(),
            assumed: HashSet::new(),
            nominated: HashMap::new(),
            with_anti_affinity: BTreeSet::new(),
            namespaces,
        }
    }

    /// Stores a node, or its deletion.
    pub(super) fn node(&mut self, name: &str, node: Option<&Arc<Node>>) {
        let state = self.nodes.entry(name.to_owned()).or_default();
        state.node = node.cloned();
        state.allocatable = amounts(
            node.and_then(|node| node.status.as_ref())
                .and_then(|status| status.allocatable.as_ref()),
        );
        if state.node.is_none() && state.pods.is_empty() {
            self.nodes.remove(name);
        }
    }

    /// Stores a pod as the API server reports it.
    pub(super) fn pod(&mut self, pod: &Arc<Pod>) {
        let key = ObjectKey::of(&pod.metadata);
        match objects::node_of(pod).filter(|_| !objects::terminal(pod)) {
            Some(node) => {
                self.assumed.remove(&key);
                self.nominated.remove(&key);
                self.take(&key);
                self.put(node, Task::new(pod));
            }
            None if self.assumed.contains(&key) && !objects::terminal(pod) => {}
            None => {
                self.take(&key);
                self.assumed.remove(&key);
                let task = Task::new(pod);
                match task.nominated().map(str::to_owned) {
                    Some(node) if !objects::terminal(pod) => {
                        self.nominated.insert(key, (node, task));
                    }
                    _ => {
                        self.nominated.remove(&key);
                    }
                }
            }
        }
    }

    /// Removes a pod that is gone.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.assumed.remove(key);
        self.nominated.remove(key);
        self.take(key);
    }

    /// Places a pod on a node before the API server confirms it.
    pub(super) fn assume(&mut self, node: &str, task: Task) {
        self.assumed.insert(task.key.clone());
        self.nominated.remove(&task.key);
        self.put(node, task);
    }

    /// Takes back the placement of a pod whose binding failed.
    pub(super) fn unassume(&mut self, key: &ObjectKey) {
        if self.assumed.remove(key) {
            self.take(key);
        }
    }

    /// Records that a preemption makes room for a pod on a node.
    pub(super) fn nominate(&mut self, node: &str, task: Task) {
        self.nominated
            .insert(task.key.clone(), (node.to_owned(), task));
    }

    /// Places a pod on a node.
    pub(super) fn put(&mut self, node: &str, task: Task) {
        let state = self.nodes.entry(node.to_owned()).or_default();
        for (name, amount) in &task.requests {
            *state.used.entry(name.clone()).or_default() += amount;
        }
        state.scored.0 += task.scored.0;
        state.scored.1 += task.scored.1;
        state.pods.insert(task.key.clone());
        if !task.required_anti_affinity().is_empty() {
            self.with_anti_affinity.insert(task.key.clone());
        }
        self.placed
            .insert(task.key.clone(), (node.to_owned(), task));
    }

    /// Removes a pod from its node.
    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<Task> {
        let (node, task) = self.placed.remove(key)?;
        self.with_anti_affinity.remove(key);
        if let Some(state) = self.nodes.get_mut(&node) {
            for (name, amount) in &task.requests {
                if let Some(used) = state.used.get_mut(name) {
                    *used -= amount;
                }
            }
            state.scored.0 -= task.scored.0;
            state.scored.1 -= task.scored.1;
            state.pods.remove(key);
            if state.node.is_none() && state.pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
        Some(task)
    }

    /// Returns all nodes that exist.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Arc<Node>, &NodeState)> {
        self.nodes
            .values()
            .filter_map(|state| Some((state.node.as_ref()?, state)))
    }

    /// Returns a node that exists.
    pub(super) fn get(&self, name: &str) -> Option<(&Arc<Node>, &NodeState)> {
        let state = self.nodes.get(name)?;
        Some((state.node.as_ref()?, state))
    }

    /// Returns all pods that have a node.
    pub(super) fn placed(&self) -> impl Iterator<Item = (&str, &Task)> {
        self.placed
            .values()
            .map(|(node, task)| (node.as_str(), task))
    }

    /// Returns the placed pods with required anti-affinity.
    pub(super) fn with_anti_affinity(&self) -> impl Iterator<Item = (&str, &Task)> {
        self.with_anti_affinity
            .iter()
            .filter_map(|key| self.placed.get(key))
            .map(|(node, task)| (node.as_str(), task))
    }

    /// Returns the pods on a node.
    pub(super) fn on<'a>(&'a self, state: &'a NodeState) -> impl Iterator<Item = &'a Task> {
        state
            .pods
            .iter()
            .filter_map(|key| self.placed.get(key))
            .map(|(_, task)| task)
    }

    /// Returns the resources and the number of other nominated pods of at least the priority of `task` on a node.
    pub(super) fn reserved(&self, node: &str, task: &Task) -> (Amounts, usize) {
        let mut total = Amounts::new();
        let mut count = 0;
        for (key, (nominated, other)) in &self.nominated {
            if nominated == node && *key != task.key && other.priority >= task.priority {
                count += 1;
                for (name, amount) in &other.requests {
                    *total.entry(name.clone()).or_default() += amount;
                }
            }
        }
        (total, count)
    }

    /// Returns the labels of a namespace.
    pub(super) fn namespace_labels(&self, name: &str) -> BTreeMap<String, String> {
        self.namespaces
            .get(&ObjectKey::new("", name))
            .map(|namespace| objects::labels(&*namespace).clone())
            .unwrap_or_default()
    }
}
