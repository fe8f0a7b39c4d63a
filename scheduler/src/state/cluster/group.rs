//! Services and controllers, which say what pods belong together.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::Cluster;
use crate::state::group_kind::GroupKind;
use crate::state::pod::{Pod, PodKey};
use crate::state::selector;

impl Cluster {
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
}

/// Creates a selector of these labels.
pub fn labelled(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector {
        match_labels: Some(labels),
        ..LabelSelector::default()
    }
}
