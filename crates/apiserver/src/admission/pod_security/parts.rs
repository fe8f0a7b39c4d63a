//! What the rules share: the parts of a pod that they look at, and how they name what violates them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::values::fields::elements;
use crate::values::pods::all_containers;

pub(super) fn name(container: &Value) -> String {
    container["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns the names of the containers that meet a condition.
pub(super) fn named(spec: &Value, meets: impl FnMut(&&Value) -> bool) -> Vec<String> {
    all_containers(spec).filter(meets).map(name).collect()
}

/// Returns `one` or `many`, by the number.
pub(super) fn plural<'t>(one: &'t str, many: &'t str, count: usize) -> &'t str {
    if count == 1 { one } else { many }
}

/// Returns texts in quotes, with commas between them.
pub(super) fn quoted<'t>(texts: impl IntoIterator<Item = &'t String>) -> String {
    let quoted = texts.into_iter().map(|text| format!("\"{text}\""));
    quoted.collect::<Vec<_>>().join(", ")
}

/// Returns containers as the subject of a sentence: `container "a"`.
pub(super) fn subject(names: &[String]) -> String {
    let noun = plural("container", "containers", names.len());
    format!("{noun} {}", quoted(names))
}

/// Who sets something that is forbidden, and to which values.
#[derive(Debug, Default)]
pub(super) struct Setters {
    pub(super) pod: bool,
    pub(super) containers: Vec<String>,
    pub(super) values: BTreeSet<String>,
}

impl Setters {
    /// Looks at a field of the security contexts of the pod and of its containers; `wrong` returns the forbidden value.
    pub(super) fn of(spec: &Value, mut wrong: impl FnMut(&Value) -> Option<String>) -> Self {
        let mut found = Self::default();
        if let Some(value) = wrong(&spec["securityContext"]) {
            found.pod = true;
            found.values.insert(value);
        }
        for container in all_containers(spec) {
            if let Some(value) = wrong(&container["securityContext"]) {
                found.containers.push(name(container));
                found.values.insert(value);
            }
        }
        found
    }

    pub(super) fn are_none(&self) -> bool {
        !self.pod && self.containers.is_empty()
    }

    /// Returns them as the subject of a sentence: `pod and container "a"`.
    pub(super) fn subject(&self) -> String {
        let pod = self.pod.then(|| "pod".to_owned());
        let containers = (!self.containers.is_empty()).then(|| subject(&self.containers));
        let parts: Vec<String> = pod.into_iter().chain(containers).collect();
        parts.join(" and ")
    }
}

/// The parts of a pod that rules look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodParts<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
}

impl<'a> PodParts<'a> {
    /// Returns the parts of a pod or of a template.
    pub(super) fn of(pod: &'a Value) -> Self {
        Self {
            annotations: &pod["metadata"]["annotations"],
            spec: &pod["spec"],
        }
    }

    pub(super) fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Returns whether the pod has users of its own, so that root in it is not root on the node.
    pub(super) fn has_own_users(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// A rule that a pod violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

/// Makes a violation.
pub(super) fn violation(reason: &'static str, detail: String) -> Violation {
    Violation { reason, detail }
}

/// Returns the texts of a list.
pub(super) fn texts(value: &Value) -> impl Iterator<Item = &str> {
    elements(value).filter_map(Value::as_str)
}
