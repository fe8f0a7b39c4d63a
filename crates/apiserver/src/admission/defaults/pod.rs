//! Defaults of pods and of pod templates.

use serde_json::{Map, Value, json};

use super::unused;
use crate::values::fields::{existing_object, items, remove, set_default};
use crate::values::pods::CONTAINERS;

/// Fills in the defaults of a pod specification, in a pod or in a template.
pub(super) fn template_defaults(spec: &mut Value) {
    set_default(spec, "dnsPolicy", || json!("ClusterFirst"));
    set_default(spec, "restartPolicy", || json!("Always"));
    set_default(spec, "securityContext", || json!({}));
    let time = "terminationGracePeriodSeconds";
    set_default(spec, time, || json!(30));
    // a negative time is replaced by one second
    if spec[time].as_i64().is_some_and(|seconds| seconds < 0) {
        spec[time] = json!(1);
    }
    unused::of_pod(spec);
    set_default(spec, "schedulerName", || json!("default-scheduler"));
    account_names(spec);
    if let Some(list) = spec.get_mut("volumes") {
        items(list).for_each(volume);
    }
    for list in CONTAINERS {
        if let Some(list) = spec.get_mut(list) {
            items(list).for_each(container);
        }
    }
}

/// Sets both names of the account: the field has a second, old name, and both are always written.
pub(crate) fn account_names(spec: &mut Value) {
    let filled = |value: &Value| value.as_str().is_some_and(|name| !name.is_empty());
    let name = [&spec["serviceAccountName"], &spec["serviceAccount"]]
        .into_iter()
        .find(|value| filled(value))
        .cloned();
    if let Some(name) = name {
        spec["serviceAccountName"] = name.clone();
        spec["serviceAccount"] = name;
    }
}

/// Fills in the defaults that only a pod gets, not a template.
pub(super) fn pod_defaults(spec: &mut Value) {
    let host = spec["hostNetwork"] == true;
    for list in ["initContainers", "containers"] {
        let Some(list) = spec.get_mut(list) else {
            continue;
        };
        for container in items(list) {
            requests_from_limits(&mut container["resources"]);
            if host && let Some(ports) = container.get_mut("ports") {
                for port in items(ports) {
                    let number = port["containerPort"].clone();
                    set_default(port, "hostPort", || number);
                }
            }
        }
    }
    pod_level_limits(spec);
    pod_level(spec);
    set_default(spec, "enableServiceLinks", || json!(true));
}

fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources
        .get("limits")
        .and_then(Value::as_object)
        .filter(|limits| !limits.is_empty())
        .cloned()
    else {
        return;
    };
    set_default(resources, "requests", || json!({}));
    for (name, amount) in limits {
        set_default(&mut resources["requests"], &name, || amount);
    }
}

/// Fills in the limits of the pod as a whole on huge pages, from those of its containers, where anything is given for the pod as a whole.
fn pod_level_limits(spec: &mut Value) {
    let given = |what: &str| spec["resources"][what].as_object().cloned();
    let requests = given("requests").unwrap_or_default();
    let mut limits = given("limits").unwrap_or_default();
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    for (name, amount) in crate::values::pods::of_containers(spec, "limits") {
        if name.starts_with("hugepages-") && !requests.contains_key(&name) {
            limits
                .entry(name)
                .or_insert_with(|| Value::String(amount.to_string()));
        }
    }
    if !limits.is_empty() {
        spec["resources"]["limits"] = Value::Object(limits);
    }
}

/// Fills in the requests of the pod as a whole: those of its containers where they have some, otherwise the limits.
fn pod_level(spec: &mut Value) {
    let Some(limits) = spec["resources"]["limits"].as_object().cloned() else {
        return;
    };
    let known = |name: &str| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
    let of_containers = crate::values::pods::of_containers(spec, "requests");
    let mut requests: Map<String, Value> = spec["resources"]["requests"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (name, amount) in of_containers {
        if name == "cpu" || name == "memory" {
            requests
                .entry(name)
                .or_insert_with(|| Value::String(amount.to_string()));
        }
    }
    for (name, amount) in limits {
        if known(&name) {
            requests.entry(name).or_insert(amount);
        }
    }
    if !requests.is_empty() {
        spec["resources"]["requests"] = Value::Object(requests);
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    set_default(container, "imagePullPolicy", || json!(policy));
    set_default(container, "terminationMessagePath", || {
        json!("/dev/termination-log")
    });
    set_default(container, "terminationMessagePolicy", || json!("File"));
    if let Some(list) = container.get_mut("ports") {
        for port in items(list) {
            if port["protocol"] == "" {
                remove(port, "protocol");
            }
            set_default(port, "protocol", || json!("TCP"));
        }
    }
    if let Some(list) = container.get_mut("env") {
        for source in items(list).filter_map(|variable| existing_object(variable, "valueFrom")) {
            downward(source);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing_object(container, name) {
            set_default(probe, "timeoutSeconds", || json!(1));
            set_default(probe, "periodSeconds", || json!(10));
            set_default(probe, "successThreshold", || json!(1));
            set_default(probe, "failureThreshold", || json!(3));
            handler(probe);
        }
    }
    if let Some(lifecycle) = existing_object(container, "lifecycle") {
        unused::of_lifecycle(lifecycle);
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = existing_object(lifecycle, hook) {
                handler(hook);
            }
        }
    }
}

fn handler(of: &mut Value) {
    if let Some(get) = existing_object(of, "httpGet") {
        set_default(get, "path", || json!("/"));
        set_default(get, "scheme", || json!("HTTP"));
    }
    if let Some(grpc) = existing_object(of, "grpc") {
        set_default(grpc, "service", || json!(""));
    }
}

fn downward(source: &mut Value) {
    if let Some(field) = existing_object(source, "fieldRef") {
        set_default(field, "apiVersion", || json!("v1"));
    }
    if let Some(field) = existing_object(source, "resourceFieldRef") {
        set_default(field, "divisor", || json!("0"));
    }
}

fn downward_items(of: &mut Value) {
    if let Some(list) = of.get_mut("items") {
        items(list).for_each(downward);
    }
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.len() <= 1) {
        volume["emptyDir"] = json!({});
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = existing_object(volume, kind) {
            set_default(source, "defaultMode", || json!(420));
        }
    }
    if let Some(source) = existing_object(volume, "hostPath") {
        set_default(source, "type", || json!(""));
    }
    if let Some(source) = existing_object(volume, "downwardAPI") {
        downward_items(source);
    }
    if let Some(image) = existing_object(volume, "image") {
        let policy = pull_policy(image["reference"].as_str().unwrap_or_default());
        set_default(image, "pullPolicy", || json!(policy));
    }
    if let Some(source) = existing_object(volume, "ephemeral")
        && let Some(template) = existing_object(source, "volumeClaimTemplate")
    {
        set_default(&mut template["spec"], "volumeMode", || json!("Filesystem"));
    }
    if let Some(sources) =
        existing_object(volume, "projected").and_then(|all| all.get_mut("sources"))
    {
        for source in items(sources) {
            if let Some(token) = existing_object(source, "serviceAccountToken") {
                set_default(token, "expirationSeconds", || json!(3600));
            }
            if let Some(downward) = existing_object(source, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
}

/// Returns the pull policy of an image: `Always` when it has no tag or digest, or the tag `latest`.
fn pull_policy(image: &str) -> &'static str {
    if image.is_empty() {
        return "IfNotPresent";
    }
    let (image, digest) = match image.split_once('@') {
        Some((image, _)) => (image, true),
        None => (image, false),
    };
    let last = image.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if !digest => "Always",
        _ => "IfNotPresent",
    }
}

/// Lists the address of a pod where only the single field has it.
pub(super) fn addresses(pod: &mut Value) {
    let address = pod["status"]["podIP"].as_str().unwrap_or_default();
    if !address.is_empty() && pod["status"]["podIPs"][0]["ip"] != address {
        pod["status"]["podIPs"] = json!([{"ip": address}]);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("busybox", "Always")]
    #[case::no_image("", "IfNotPresent")]
    #[case::latest("example.com:5000/a/b:latest", "Always")]
    #[case::tag("example.com:5000/a/b:1", "IfNotPresent")]
    #[case::port_is_no_tag("example.com:5000/a/b", "Always")]
    #[case::digest("a@sha256:00", "IfNotPresent")]
    fn pulls_follow_the_tag(#[case] image: &str, #[case] policy: &str) {
        assert_eq!(pull_policy(image), policy);
    }

    #[test]
    fn an_account_has_both_of_its_names() {
        let mut spec = json!({"serviceAccount": "a"});
        account_names(&mut spec);
        assert_eq!(
            spec,
            json!({"serviceAccount": "a", "serviceAccountName": "a"})
        );
    }
}
