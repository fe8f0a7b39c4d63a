//! The conditions of a namespace that is being deleted: what is left and what holds it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NamespaceCondition;

use super::Remaining;
use crate::controllers::objects;

/// A condition: type, status, reason and message.
type Found = (&'static str, bool, &'static str, String);

/// Returns the conditions; those that did not change keep their times.
pub(super) fn of(before: &[NamespaceCondition], remaining: &Remaining) -> Vec<NamespaceCondition> {
    let ours = found(remaining).map(|(kind, is, reason, message)| {
        let new = NamespaceCondition {
            type_: kind.to_owned(),
            status: if is { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(objects::now()),
        };
        let old = before.iter().find(|held| held.type_ == kind);
        match old {
            Some(old) if old.status == new.status && old.message == new.message => old.clone(),
            _ => new,
        }
    });
    let mut conditions: Vec<NamespaceCondition> = before
        .iter()
        .filter(|held| ours.iter().all(|new| new.type_ != held.type_))
        .cloned()
        .collect();
    conditions.extend(ours);
    conditions
}

/// Returns what each condition says now.
fn found(remaining: &Remaining) -> [Found; 5] {
    [
        (
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        if remaining.failures.is_empty() {
            (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_owned(),
            )
        } else {
            let message = format!(
                "Failed to delete all resource types, {} remaining: {}",
                remaining.failures.len(),
                remaining.failures.join(", ")
            );
            let reason = "ContentDeletionFailed";
            ("NamespaceDeletionContentFailure", true, reason, message)
        },
        if remaining.objects.is_empty() {
            (
                "NamespaceContentRemaining",
                false,
                "ContentRemoved",
                "All content successfully removed".to_owned(),
            )
        } else {
            let listed = listed(&remaining.objects, "has");
            let message = format!("Some resources are remaining: {listed}");
            let reason = "SomeResourcesRemain";
            ("NamespaceContentRemaining", true, reason, message)
        },
        if remaining.finalizers.is_empty() {
            (
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".to_owned(),
            )
        } else {
            let listed = listed(&remaining.finalizers, "in");
            let message =
                format!("Some content in the namespace has finalizers remaining: {listed}");
            let reason = "SomeFinalizersRemain";
            ("NamespaceFinalizersRemaining", true, reason, message)
        },
    ]
}

fn listed(counts: &BTreeMap<String, usize>, between: &str) -> String {
    let counts = counts.iter();
    let texts: Vec<String> = counts
        .map(|(what, count)| format!("{what} {between} {count} resource instances"))
        .collect();
    texts.join(", ")
}
