//! Pods that have finished. Old kubelets still list such pods although they hold nothing any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use podresources::v1;

use super::demand::Key;

/// The finished pods of the node, by namespace and name. Clones share the data.
#[derive(Clone, Debug, Default)]
pub(crate) struct TerminalPods(Arc<Mutex<BTreeSet<Key>>>);

impl TerminalPods {
    /// Removes the finished pods from an answer of the kubelet.
    pub(crate) fn exclude_from(&self, pods: &mut Vec<v1::PodResources>) {
        let finished = self.0.lock();
        if !finished.is_empty() {
            pods.retain(|pod| !finished.contains(&(pod.namespace.clone(), pod.name.clone())));
        }
    }

    /// Reads or changes the names under one lock.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut BTreeSet<Key>) -> T) -> T {
        act(&mut self.0.lock())
    }
}
