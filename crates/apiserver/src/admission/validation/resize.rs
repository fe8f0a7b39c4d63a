//! Changes of the resources of a pod that runs, through its subresource `resize`.

use serde_json::{Map, Value, json};

use super::checks::{indexed, text};
use crate::failure::Cause;
use crate::values::annotations::MIRROR;
use crate::values::fields::{copy, elements, members};
use crate::values::{pods, quantity};

/// Resources that a running container may get more or less of.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// Returns why no resize of this pod is possible, in place of anything else that is wrong.
pub(super) fn impossible(before: &Value, object: &Value) -> Option<Cause> {
    let has_own = |pod: &Value| {
        let resources = &pod["spec"]["resources"];
        ["requests", "limits"].into_iter().any(|what| {
            let amounts = resources[what].as_object();
            amounts.is_some_and(|amounts| !amounts.is_empty())
        })
    };
    let is_mirror = before["metadata"]["annotations"][MIRROR].is_string();
    let why = if has_own(before) || has_own(object) {
        "pods with pod-level resources cannot be resized"
    } else if is_mirror {
        "static pods cannot be resized"
    } else if before["spec"]["os"]["name"] == "windows" {
        "windows pods cannot be resized"
    } else {
        return None;
    };
    Some(Cause::forbidden("", why))
}

/// Checks a change after the pod itself was checked.
pub(super) fn check(before: &Value, object: &Value, causes: &mut Vec<Cause>) {
    let (old, new) = (&before["spec"], &object["spec"]);
    let class = &before["status"]["qosClass"];
    let had = class.as_str().unwrap_or_else(|| pods::qos_class(old));
    if had != pods::qos_class(new) {
        let why = "Pod QOS Class may not change as a result of resizing";
        let class = json!(text(&object["status"]["qosClass"]));
        causes.push(Cause::invalid("spec", &class, why));
    }
    if !node_can(&before["status"]) {
        let why = "Pod running on node without support for resize";
        causes.push(Cause::forbidden("spec", why));
    }
    for list in ["initContainers", "containers"] {
        for (container, (at, was)) in
            elements(&new[list]).zip(indexed(&old[list], &format!("spec.{list}")))
        {
            if list == "containers" || is_sidecar(was) {
                kept(&was["resources"], &container["resources"], &at, causes);
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (container, was) in elements(&new[list]).zip(elements(&old[list])) {
            let why = match list {
                "containers" => "only cpu and memory resources are mutable",
                _ if is_sidecar(was) => {
                    "only cpu and memory resources for sidecar containers are mutable"
                }
                _ => "resources for non-sidecar init containers are immutable",
            };
            let is_free = list == "containers" || is_sidecar(was);
            let fixed = if is_free {
                without_resizable(container, was)
            } else {
                container.clone()
            };
            if fixed != *was {
                causes.push(Cause::forbidden("spec", why));
            }
        }
    }
    // Fields outside of the containers are those of the stored pod, unless the containers are not the same ones.
    let count = |spec: &Value, list: &str| elements(&spec[list]).count();
    let differs = |list| count(old, list) != count(new, list);
    if causes.is_empty() && (differs("containers") || differs("initContainers")) {
        let why = "only cpu and memory resources are mutable";
        causes.push(Cause::forbidden("spec", why));
    }
}

fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Returns whether the pod's kubelet tells the resources of its containers, as all do that can resize them. While nothing runs, nobody knows.
fn node_can(status: &Value) -> bool {
    let mut running = elements(&status["containerStatuses"])
        .filter(|status| status["state"]["running"].is_object());
    running
        .next()
        .is_none_or(|status| status["resources"].is_object())
}

/// Refuses to take a request or a limit away.
fn kept(old: &Value, new: &Value, path: &str, causes: &mut Vec<Cause>) {
    for what in ["requests", "limits"] {
        if members(&old[what]).any(|(name, _)| new[what].get(name).is_none()) {
            causes.push(Cause::forbidden(
                format!("{path}.resources.{what}"),
                &format!("resource {what} cannot be removed"),
            ));
        }
    }
}

/// Returns a container with the old amounts of what may change. A list of amounts that it did not have is not looked at.
fn without_resizable(container: &Value, old: &Value) -> Value {
    let mut resources = container["resources"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for what in ["requests", "limits"] {
        let given = resources.remove(what).unwrap_or_default();
        let Some(had) = old["resources"][what].as_object() else {
            continue;
        };
        let others = members(&given);
        let others = others.filter(|(name, _)| !RESIZABLE.contains(&name.as_str()));
        let mut amounts: Map<String, Value> = others
            .map(|(name, amount)| {
                let known = had.get(name);
                let known =
                    known.filter(|known| quantity::amount(known) == quantity::amount(amount));
                (name.clone(), known.unwrap_or(amount).clone())
            })
            .collect();
        let kept = RESIZABLE
            .into_iter()
            .filter_map(|name| had.get_key_value(name));
        amounts.extend(kept.map(|(name, amount)| (name.clone(), amount.clone())));
        resources.insert(what.to_owned(), amounts.into());
    }
    let mut fixed = container.clone();
    if resources.is_empty() {
        copy(old, &mut fixed, "resources");
    } else {
        fixed["resources"] = resources.into();
    }
    fixed
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "initContainers": [
                    {"name": "first", "resources": {"requests": {"cpu": "1"}}},
                    {"name": "beside", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                ],
                "containers": [{"name": "c", "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi", "a.b/c": "1"}, "limits": {"memory": "2Gi", "a.b/c": "1"}}}, {"name": "d"}],
            },
            "status": {"qosClass": "Burstable"},
        })
    }

    fn told(before: &Value, after: &Value) -> Vec<String> {
        if let Some(cause) = impossible(before, after) {
            return vec![cause.text()];
        }
        let mut causes = Vec::new();
        check(before, after, &mut causes);
        causes.iter().map(Cause::text).collect()
    }

    #[rstest]
    #[case::more("/spec/containers/0/resources/requests/cpu", json!("2"), &[])]
    #[case::a_lower_limit_of_memory("/spec/containers/0/resources/limits/memory", json!("1Gi"), &[])]
    #[case::a_new_limit("/spec/containers/0/resources/limits", json!({"cpu": "3", "memory": "2Gi", "a.b/c": "1"}), &[])]
    #[case::amounts_where_there_were_none("/spec/containers/1/resources", json!({"requests": {"cpu": "1"}}), &[])]
    #[case::a_sidecar("/spec/initContainers/1/resources/requests/cpu", json!("2"), &[])]
    #[case::an_init_container("/spec/initContainers/0/resources/requests/cpu", json!("2"),
        &["spec: Forbidden: resources for non-sidecar init containers are immutable"])]
    #[case::another_resource("/spec/containers/0/resources/limits/a.b~1c", json!("2"),
        &["spec: Forbidden: only cpu and memory resources are mutable"])]
    #[case::no_request("/spec/containers/0/resources/requests", json!({"cpu": "1", "a.b/c": "1"}),
        &["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"])]
    #[case::no_limit_of_a_sidecar("/spec/initContainers/1/resources", json!({"limits": {"cpu": "1"}}),
        &["spec.initContainers[1].resources.requests: Forbidden: resource requests cannot be removed"])]
    #[case::its_policy("/spec/containers/0/resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
        &["spec: Forbidden: only cpu and memory resources are mutable"])]
    #[case::another_class("/spec", json!({"containers": [{"name": "c", "resources": {
            "requests": {"cpu": "1", "memory": "1Gi", "a.b/c": "1"}, "limits": {"cpu": "1", "memory": "1Gi", "a.b/c": "1"}}}]}),
        &["spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing"])]
    #[case::fewer_containers("/spec/initContainers", json!([{"name": "first", "resources": {"requests": {"cpu": "1"}}}]),
        &["spec: Forbidden: only cpu and memory resources are mutable"])]
    #[case::of_the_pod_itself("/spec/resources", json!({"requests": {"cpu": "4"}}),
        &[": Forbidden: pods with pod-level resources cannot be resized"])]
    fn a_resize_changes_cpu_and_memory_only(
        #[case] at: &str,
        #[case] value: Value,
        #[case] expected: &[&str],
    ) {
        let before = pod();
        let mut after = before.clone();
        let (parent, field) = at.rsplit_once('/').unwrap();
        let field = field.replace("~1", "/");
        after.pointer_mut(parent).unwrap()[field] = value;
        assert_eq!(told(&before, &after), expected);
    }

    #[rstest]
    #[case::a_mirror("/metadata/annotations", json!({"kubernetes.io/config.mirror": "x"}), ": Forbidden: static pods cannot be resized")]
    #[case::of_windows("/spec/os", json!({"name": "windows"}), ": Forbidden: windows pods cannot be resized")]
    #[case::on_a_node_that_cannot("/status/containerStatuses", json!([{"name": "c", "state": {"running": {}}}]),
        "spec: Forbidden: Pod running on node without support for resize")]
    fn some_pods_are_not_resized(#[case] at: &str, #[case] value: Value, #[case] expected: &str) {
        let mut before = pod();
        let (parent, field) = at.rsplit_once('/').unwrap();
        before.pointer_mut(parent).unwrap()[field] = value;
        let mut after = before.clone();
        after["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        assert_eq!(told(&before, &after), [expected]);
    }
}
