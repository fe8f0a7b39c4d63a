//! What pods take of their nodes, and which pods have rules about others.

use std::collections::BTreeSet;

use super::Cluster;
use crate::state::pod::{Phase, Pod, PodKey};

impl Cluster {
    /// Indexes the affinity rules of a pod that affect other pods.
    pub(super) fn index(&mut self, pod: &Pod) {
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

    /// Counts what a pod takes of its node.
    pub(super) fn charge(&mut self, pod: &Pod) {
        let Some(name) = &pod.node else { return };
        let state = self.nodes.entry(name.clone()).or_default();
        if state.pods.insert(pod.key.clone()) {
            self.touched.note(name);
            state.used.add(&pod.node_request);
            state.nonzero_request.0 += i128::from(pod.nonzero_request.0);
            state.nonzero_request.1 += i128::from(pod.nonzero_request.1);
            *state.priorities.entry(pod.priority).or_default() += 1;
            for claim in named_claims(pod) {
                *self.claim_users.entry(claim).or_default() += 1;
            }
        }
    }

    /// Takes back what [`Cluster::charge`] counted.
    pub(super) fn release(&mut self, key: &PodKey) {
        let Some(pod) = self.pods.get(key) else {
            return;
        };
        let Some(name) = &pod.node else { return };
        let Some(state) = self.nodes.get_mut(name) else {
            return;
        };
        if state.pods.remove(key) {
            self.touched.note(name);
            state.used.subtract(&pod.node_request);
            state.nonzero_request.0 -= i128::from(pod.nonzero_request.0);
            state.nonzero_request.1 -= i128::from(pod.nonzero_request.1);
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
pub(super) fn holds_resources(pod: &Pod) -> bool {
    pod.node.is_some() && pod.phase != Phase::Terminal
}
