//! The rules that the level `restricted` adds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{added, wrong_seccomp_fields};
use super::parts::{Setters, Violation, name, named, plural, quoted, subject, texts, violation};
use crate::values::fields::{elements, members};

/// Volumes that the restricted level allows.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Checks that all capabilities are dropped.
pub(super) fn dropped_capabilities(spec: &Value) -> Option<Violation> {
    let without_drop = named(spec, |container| {
        !texts(&container["securityContext"]["capabilities"]["drop"]).any(|name| name == "ALL")
    });
    let (adding, forbidden) = added(spec, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !without_drop.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            subject(&without_drop)
        ));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            subject(&adding),
            quoted(&forbidden)
        ));
    }
    if details.is_empty() {
        return None;
    }
    Some(violation("unrestricted capabilities", details.join("; ")))
}

/// Checks that each container has a seccomp profile.
pub(super) fn seccomp(spec: &Value) -> Option<Violation> {
    if let Some(wrong) = wrong_seccomp_fields(spec) {
        return Some(wrong);
    }
    if spec["securityContext"]["seccompProfile"].is_object() {
        return None;
    }
    let without = named(spec, |container| {
        !container["securityContext"]["seccompProfile"].is_object()
    });
    if without.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        subject(&without)
    );
    Some(violation("seccompProfile", detail))
}

/// Checks that no container gains privileges.
pub(super) fn escalation(spec: &Value) -> Option<Violation> {
    let names = named(spec, |container| {
        container["securityContext"]["allowPrivilegeEscalation"] != false
    });
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        subject(&names)
    );
    Some(violation("allowPrivilegeEscalation != false", detail))
}

/// Checks the kinds of volumes.
pub(super) fn volumes(spec: &Value) -> Option<Violation> {
    let mut names = Vec::new();
    let mut kinds = BTreeSet::new();
    for volume in elements(&spec["volumes"]) {
        let mut sources = members(volume);
        let is_allowed = VOLUMES.iter().any(|kind| !volume[kind].is_null());
        if is_allowed {
            continue;
        }
        let source = sources.find(|(key, value)| *key != "name" && !value.is_null());
        kinds.insert(source.map_or_else(|| "unknown".to_owned(), |(kind, _)| kind.clone()));
        names.push(name(volume));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural(
            "restricted volume type",
            "restricted volume types",
            kinds.len()
        ),
        quoted(&kinds)
    );
    Some(violation("restricted volume types", detail))
}

/// Checks that no container runs as root.
pub(super) fn run_as_non_root(spec: &Value) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let setters = Setters::of(spec, |context| {
        (context["runAsNonRoot"] == false).then(String::new)
    });
    if !setters.are_none() {
        let detail = format!(
            "{} must not set securityContext.runAsNonRoot=false",
            setters.subject()
        );
        return Some(violation(REASON, detail));
    }
    if spec["securityContext"]["runAsNonRoot"] == true {
        return None;
    }
    let without = named(spec, |container| {
        container["securityContext"]["runAsNonRoot"] != true
    });
    if without.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.runAsNonRoot=true",
        subject(&without)
    );
    Some(violation(REASON, detail))
}

/// Checks that nobody asks for root.
pub(super) fn run_as_user(spec: &Value) -> Option<Violation> {
    let setters = Setters::of(spec, |context| {
        (context["runAsUser"] == 0).then(String::new)
    });
    if setters.are_none() {
        return None;
    }
    let detail = format!("{} must not set runAsUser=0", setters.subject());
    Some(violation("runAsUser=0", detail))
}
