//! AppArmor profiles in annotations of pods, as they were written before there were fields.

use serde_json::{Value, json};

use super::annotations::LOCAL;

/// The beginning of the annotation with the profile of a container.
pub(crate) const OF_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Most bytes of the path of a file.
pub(crate) const LONGEST_PATH: usize = 4095;

/// Returns the annotation of a container, null if there is none.
pub(crate) fn annotation<'v>(annotations: &'v Value, container: &Value) -> &'v Value {
    let name = container["name"].as_str().unwrap_or_default();
    &annotations[format!("{OF_CONTAINER}{name}")]
}

/// Returns the field that an annotation stands for, or null if it stands for none.
pub(crate) fn profile(annotation: &str) -> Value {
    match annotation {
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        "unconfined" => json!({"type": "Unconfined"}),
        other => match other.strip_prefix(LOCAL) {
            None | Some("") => Value::Null,
            Some(name) => json!({"type": "Localhost", "localhostProfile": name}),
        },
    }
}

/// Returns whether a field may have this value, which an annotation stands for.
pub(crate) fn is_valid(profile: &Value) -> bool {
    let name = profile["localhostProfile"].as_str().unwrap_or_default();
    !profile.is_null() && name.trim() == name && name.len() <= LONGEST_PATH
}

/// Returns whether a text is the value of an annotation; an empty one means nothing.
pub(crate) fn is_profile(annotation: &str) -> bool {
    annotation.is_empty()
        || annotation.starts_with(LOCAL)
        || ["runtime/default", "unconfined"].contains(&annotation)
}

/// Returns the warning about the annotation of a container. `prefix` is the path of the template, and ends with a dot unless it is a pod.
pub(crate) fn warning(prefix: &str, container: &Value) -> String {
    let name = container["name"].as_str().unwrap_or_default();
    format!(
        "{prefix}metadata.annotations[{OF_CONTAINER}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
    )
}
