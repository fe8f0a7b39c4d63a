//! Definitions in the groups of Kubernetes itself need an approval, which an annotation records.

use serde_json::{Value, json};

use super::parts::text;
use crate::failure::Cause;

/// The annotation with the approval.
const ANNOTATION: &str = "api-approved.kubernetes.io";
/// Domains of the protected groups.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// What the annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    /// There is no annotation.
    Missing,
    /// The definition is deliberately unapproved.
    Bypassed(String),
    /// The place of the approval.
    Approved(String),
    /// The annotation is not valid.
    Invalid,
}

/// Returns whether a group needs an approval.
pub(crate) fn is_protected(group: &str) -> bool {
    PROTECTED.iter().any(|domain| {
        group
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// Returns what a definition says about its approval.
pub(crate) fn of(definition: &Value) -> Approval {
    let annotation = text(&definition["metadata"]["annotations"][ANNOTATION]);
    let is_address = || {
        annotation
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some())
    };
    if annotation.is_empty() {
        Approval::Missing
    } else if annotation.starts_with("unapproved") {
        Approval::Bypassed(annotation.to_owned())
    } else if is_address() {
        Approval::Approved(annotation.to_owned())
    } else {
        Approval::Invalid
    }
}

impl Approval {
    /// Returns status and reason of the condition that shows the approval.
    pub(crate) fn condition(&self) -> (&'static str, &'static str) {
        match self {
            Self::Missing => ("False", "MissingAnnotation"),
            Self::Bypassed(_) => ("False", "UnapprovedAnnotation"),
            Self::Approved(_) => ("True", "ApprovedAnnotation"),
            Self::Invalid => ("False", "InvalidAnnotation"),
        }
    }

    /// Returns a real server's message about the approval.
    pub(crate) fn why(&self) -> String {
        const MORE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
        match self {
            Self::Missing => {
                format!("protected groups must have approval annotation {ANNOTATION:?}, {MORE}")
            }
            Self::Bypassed(annotation) => format!("not approved: {annotation:?}"),
            Self::Approved(place) => format!("approved in {place}"),
            Self::Invalid => format!(
                "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \"unapproved\", {MORE}"
            ),
        }
    }
}

/// Refuses a definition without approval, unless its approval is of the same sort as before.
pub(super) fn check(before: Option<&Value>, definition: &Value, causes: &mut Vec<Cause>) {
    if !is_protected(text(&definition["spec"]["group"])) {
        return;
    }
    let approval = of(definition);
    let kind = std::mem::discriminant(&approval);
    if before.is_some_and(|before| std::mem::discriminant(&of(before)) == kind) {
        return;
    }
    let path = format!("metadata.annotations[{ANNOTATION}]");
    match approval {
        Approval::Missing => causes.push(Cause::required(path, &approval.why())),
        Approval::Invalid => {
            let annotation = text(&definition["metadata"]["annotations"][ANNOTATION]);
            causes.push(Cause::invalid(path, &json!(annotation), &approval.why()));
        }
        Approval::Bypassed(_) | Approval::Approved(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_kubernetes_itself_are_protected() {
        assert!(is_protected("topology.node.k8s.io") && is_protected("k8s.io"));
        assert!(!is_protected("xk8s.io") && !is_protected("example.com"));
    }

    #[test]
    fn an_approval_is_an_address_or_a_refusal() {
        let annotation = |text: &str| of(&json!({"metadata": {"annotations": {ANNOTATION: text}}}));
        assert_eq!(
            annotation("unapproved, a trial"),
            Approval::Bypassed("unapproved, a trial".into())
        );
        assert_eq!(
            annotation("https://example.com/1"),
            Approval::Approved("https://example.com/1".into())
        );
        assert_eq!(annotation("yes"), Approval::Invalid);
        assert_eq!(of(&json!({})), Approval::Missing);
    }
}
