//! The ReplicaSets of a deployment, and which of them has the current template.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::controllers::objects;

/// Label that distinguishes the pods of one template from those of others.
pub(super) const HASH: &str = "pod-template-hash";

/// The ReplicaSets of a deployment.
#[derive(Clone, Default)]
pub(super) struct Sets {
    /// The ReplicaSet with the current template.
    pub(super) new: Option<Arc<ReplicaSet>>,
    /// All others, oldest first.
    pub(super) old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    /// Returns all ReplicaSets, the new one last.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Returns the ReplicaSets that are scaled above zero.
    pub(super) fn active(&self) -> Vec<Arc<ReplicaSet>> {
        self.all()
            .filter(|set| replicas(set) > 0)
            .cloned()
            .collect()
    }

    /// Replaces one of the ReplicaSets with its new state.
    pub(super) fn update(&mut self, set: &Arc<ReplicaSet>) {
        let same = |held: &Arc<ReplicaSet>| objects::uid(&**held) == objects::uid(&**set);
        if let Some(held) = self
            .new
            .iter_mut()
            .chain(&mut self.old)
            .find(|held| same(held))
        {
            *held = Arc::clone(set);
        }
    }
}

/// Returns the desired number of pods of a ReplicaSet.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// Returns a template without the hash label, so that templates can be compared.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.remove(HASH);
        }
        meta.labels = meta.labels.take().filter(|labels| !labels.is_empty());
        meta.creation_timestamp = None;
    }
    template
}

/// Returns whether a ReplicaSet has the current template of a deployment.
pub(super) fn same_template(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let Some(spec) = &deployment.spec else {
        return false;
    };
    let held = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    held.is_some_and(|held| without_hash(&spec.template) == without_hash(held))
}
