//! What changes of pods, nodes and namespaces mean for the account and the queue.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};

use super::pending::Change;
use super::{Scheduler, State, pod};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

impl Scheduler {
    /// Subscribes to the changes of the mirrors.
    pub(super) fn listen(&self) {
        let (state, wake) = (Arc::clone(&self.state), Arc::clone(&self.wake));
        let profile = self.options.profile.clone();
        self.pods.listen(move |before, after| {
            on_pod_change(&mut state.lock(), &profile, before, after);
            wake.notify_one();
        });
        let (state, wake) = (Arc::clone(&self.state), Arc::clone(&self.wake));
        self.nodes.listen(move |before, after| {
            let Some(name) = after.or(before).map(|node| objects::name(&**node)) else {
                return;
            };
            let matters = |node: &Arc<Node>| {
                let spec = node.spec.clone().unwrap_or_default();
                let status = node.status.clone().unwrap_or_default();
                (
                    node.metadata.labels.clone(),
                    (spec.taints, spec.unschedulable),
                    status.allocatable,
                )
            };
            let mut state = state.lock();
            state.ledger.node(name, after);
            if before.map(matters) != after.map(matters)
                && state.pending.changed(if after.is_some() {
                    Change::Room
                } else {
                    Change::OtherPods
                })
            {
                wake.notify_one();
            }
        });
        let (state, wake) = (Arc::clone(&self.state), Arc::clone(&self.wake));
        self.namespaces
            .listen(move |before: Option<&Arc<Namespace>>, after| {
                let labels = |namespace: &Arc<Namespace>| namespace.metadata.labels.clone();
                if before.map(labels) != after.map(labels)
                    && state.lock().pending.changed(Change::OtherPods)
                {
                    wake.notify_one();
                }
            });
    }
}

/// Applies a change of a pod to the account and the queue.
fn on_pod_change(
    state: &mut State,
    profile: &str,
    before: Option<&Arc<Pod>>,
    after: Option<&Arc<Pod>>,
) {
    let Some(pod) = after.or(before) else { return };
    let key = ObjectKey::of(&pod.metadata);
    let placed = |pod: &Arc<Pod>| objects::node_of(pod).is_some() && !objects::terminal(pod);
    let Some(pod) = after else {
        state.ledger.forget(&key);
        state.pending.forget(&key);
        state.pending.changed(Change::Room);
        return;
    };
    state.ledger.pod(pod);
    if pod::pending(pod, profile) {
        let matters = |pod: &Arc<Pod>| {
            let waiting = pod::pending(pod, profile);
            let uid = pod.metadata.uid.clone();
            (waiting, uid, pod.metadata.labels.clone(), pod.spec.clone())
        };
        if before.map(matters) != Some(matters(pod)) {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
            state.pending.add(&key, priority.unwrap_or(0));
        }
        return;
    }
    if state.pending.has(&key) {
        state.pending.forget(&key);
    }
    let seen_by_others = |pod: &Arc<Pod>| {
        (
            placed(pod),
            pod.metadata.labels.clone(),
            objects::deleting(&**pod),
        )
    };
    let resized = before.is_some_and(|before| pod::resized(before, pod));
    if resized || before.is_some_and(placed) && !placed(pod) {
        state.pending.changed(Change::Room);
    } else if before.map(seen_by_others) != Some(seen_by_others(pod)) {
        state.pending.changed(Change::OtherPods);
    }
}
