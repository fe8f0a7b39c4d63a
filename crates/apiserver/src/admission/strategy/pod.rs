//! What the server sets in new pods.

use serde_json::{Value, json};

use crate::values::{app_armor, pods};

/// Prepares a new pod. Returns warnings.
pub(super) fn prepare(object: &mut Value) -> Vec<String> {
    let qos_class = pods::qos_class(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": qos_class});
    let gates = object["spec"]["schedulingGates"].as_array();
    if gates.is_some_and(|gates| !gates.is_empty()) {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": object["metadata"]["creationTimestamp"],
        }]);
    }
    profiles(object)
}

/// Copies AppArmor profiles from annotations to containers without one. Returns a warning for each that is copied or cannot be.
fn profiles(object: &mut Value) -> Vec<String> {
    let annotations = object["metadata"]["annotations"].clone();
    let spec = &mut object["spec"];
    if spec["os"]["name"] == "windows" {
        return Vec::new();
    }
    let of_pod = spec["securityContext"]["appArmorProfile"].clone();
    let mut warnings = Vec::new();
    for list in pods::CONTAINERS {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let own = &container["securityContext"]["appArmorProfile"];
            let (true, Some(given)) = (
                own.is_null(),
                app_armor::annotation(&annotations, container).as_str(),
            ) else {
                continue;
            };
            let profile = Some(app_armor::profile(given)).filter(app_armor::is_valid);
            if profile.as_ref() == Some(&of_pod) {
                continue;
            }
            warnings.push(app_armor::warning("", container));
            if let Some(profile) = profile {
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a pod whose first container has the annotation `localhost/a`, its second one `unconfined` and its third an unknown one.
    fn pod() -> Value {
        json!({
            "metadata": {"annotations": {
                "container.apparmor.security.beta.kubernetes.io/a": "localhost/a",
                "container.apparmor.security.beta.kubernetes.io/b": "unconfined",
                "container.apparmor.security.beta.kubernetes.io/c": "localhost/ padded",
            }},
            "spec": {
                "securityContext": {"appArmorProfile": {"type": "Unconfined"}},
                "containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            },
        })
    }

    #[test]
    fn profiles_become_fields_where_they_differ_from_the_pods() {
        let mut pod = pod();
        let warnings = prepare(&mut pod);
        assert_eq!(
            pod["spec"]["containers"],
            json!([
                {"name": "a", "securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}},
                {"name": "b"},
                {"name": "c"},
            ])
        );
        let texts = ["a", "c"].map(|name| {
            format!(
                "metadata.annotations[container.apparmor.security.beta.kubernetes.io/{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            )
        });
        assert_eq!(warnings, texts);
    }

    #[test]
    fn profiles_of_windows_stay_as_they_are() {
        let mut pod = pod();
        pod["spec"]["os"] = json!({"name": "windows"});
        assert!(prepare(&mut pod).is_empty());
        assert_eq!(pod["spec"]["containers"][0], json!({"name": "a"}));
    }
}
