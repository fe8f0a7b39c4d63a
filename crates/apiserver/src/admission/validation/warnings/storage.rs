//! Warnings about volumes, and about what provides them.

use serde_json::Value;

use super::super::checks::{filled, indexed, text};
use super::{Warnings, old_label};
use crate::values::fields::members;

const OLD_CLASS: (&str, &str) = (
    "volume.beta.kubernetes.io/storage-class",
    "deprecated since v1.8; use \"storageClassName\" attribute instead",
);
const OLD_OPTIONS: (&str, &str) = (
    "volume.beta.kubernetes.io/mount-options",
    "deprecated since v1.31; use \"mountOptions\" attribute instead",
);
/// Types of volumes that are deprecated, as their fields are called and as the server calls them.
const OLD_TYPES: [(&str, &str, &str); 6] = [
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];
const TOKENS_IN_CONTEXT: &str = "is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

pub(super) fn volume(object: &Value, warnings: &mut Warnings) {
    annotations(object, &[OLD_CLASS, OLD_OPTIONS], warnings);
    let spec = &object["spec"];
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        warnings.warn("spec.persistentVolumeReclaimPolicy", why);
    }
    let at = "spec.nodeAffinity.required.nodeSelectorTerms";
    for (at, term) in indexed(&spec["nodeAffinity"]["required"]["nodeSelectorTerms"], at) {
        warnings.expressions(term, &at);
    }
    for (field, called, why) in OLD_TYPES {
        if !spec[field].is_null() {
            warnings.warn(&format!("spec.{called}"), why);
        }
    }
}

fn annotations(object: &Value, old: &[(&str, &str)], warnings: &mut Warnings) {
    for (name, why) in old {
        if !object["metadata"]["annotations"][name].is_null() {
            warnings.warn(&format!("metadata.annotations[{name}]"), why);
        }
    }
}

pub(super) fn whole_claim(object: &Value, warnings: &mut Warnings) {
    annotations(object, &[OLD_CLASS], warnings);
    claim(&object["spec"], "spec", warnings);
}

/// Warns about the specification of a claim, which may be part of another object.
pub(super) fn claim(spec: &Value, path: &str, warnings: &mut Warnings) {
    for kind in ["requests", "limits"] {
        let amount = &spec["resources"][kind]["storage"];
        warnings.fraction(amount, &format!("{path}.resources.{kind}[storage]"));
    }
}

pub(super) fn class(object: &Value, warnings: &mut Warnings) {
    for (at, topology) in indexed(&object["allowedTopologies"], "allowedTopologies") {
        let at = format!("{at}.matchLabelExpressions");
        for (at, expression) in indexed(&topology["matchLabelExpressions"], &at) {
            if let Some(why) = old_label(text(&expression["key"])) {
                warnings.warn(&format!("{at}.key"), why);
            }
        }
    }
}

pub(super) fn capacity(object: &Value, warnings: &mut Warnings) {
    let topology = &object["nodeTopology"];
    warnings.expressions(topology, "nodeTopology");
    for (label, _) in members(&topology["matchLabels"]) {
        if let Some(why) = old_label(label) {
            warnings.warn(&format!("nodeTopology.matchLabels.{label}"), why);
        }
    }
}

pub(super) fn driver(before: Option<&Value>, object: &Value, warnings: &mut Warnings) {
    let requests = |object: &Value| object["spec"]["tokenRequests"].clone();
    let is_news = before.is_none_or(|before| requests(before) != requests(object));
    let is_unset = object["spec"]["serviceAccountTokenInSecrets"].is_null();
    if is_news && is_unset && filled(&object["spec"]["tokenRequests"]) {
        let told = format!("spec.serviceAccountTokenInSecrets {TOKENS_IN_CONTEXT}");
        warnings.0.push(told);
    }
}
