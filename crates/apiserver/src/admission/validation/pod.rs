//! Checks of pod specifications, in pods and in templates.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::checks::{filled, indexed, one_of, optional_name, text, within, wrong};
use super::container::{self, Pod};
use super::{addresses, affinity, meta, names, resources, security, volumes};
use crate::failure::Cause;
use crate::values::fields::elements;

pub(super) mod annotations;
mod demands;
mod surroundings;

pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// What only containers that last may have.
const OF_LASTING: [&str; 4] = [
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
];

/// Checks the specification of a template at a path.
pub(super) fn check(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    specification(spec, "", path, causes);
}

/// Checks a pod.
pub(super) fn of_pod(object: &Value, causes: &mut Vec<Cause>) {
    let (metadata, spec) = (&object["metadata"], &object["spec"]);
    let at = "metadata.annotations";
    annotations::check(&metadata["annotations"], spec, at, causes);
    specification(spec, text(&metadata["name"]), "spec", causes);
    for list in ["containers", "initContainers"] {
        for (at, container) in indexed(&spec[list], &format!("spec.{list}")) {
            let image = text(&container["image"]);
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                causes.push(Cause::invalid(format!("{at}.image"), &json!(image), why));
            }
        }
    }
}

/// Checks what only a new pod must not have.
pub(super) fn of_new(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if filled(&spec["ephemeralContainers"]) {
        let why = "cannot be set on create";
        causes.push(Cause::forbidden("spec.ephemeralContainers", why));
    }
    if !filled(&spec["serviceAccountName"]) {
        for (at, volume) in indexed(&spec["volumes"], "spec.volumes") {
            let at = format!("{at}.projected.sources");
            for (at, source) in indexed(&volume["projected"]["sources"], &at) {
                if !source["serviceAccountToken"].is_null() {
                    let why = "must not be specified when serviceAccountName is not set";
                    causes.push(Cause::forbidden(format!("{at}.serviceAccountToken"), why));
                }
            }
        }
    }
    if filled(&spec["nodeName"]) && filled(&spec["schedulingGates"]) {
        let why = "cannot be set until all schedulingGates have been cleared";
        causes.push(Cause::forbidden("spec.nodeName", why));
    }
    annotations::agree(&object["metadata"]["annotations"], spec, "spec", causes);
}

/// Checks a specification; `name` is that of the pod, empty in a template.
fn specification(spec: &Value, name: &str, path: &str, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let pod = Pod {
        spec,
        volumes: volumes::of_pod(&spec["volumes"], name, &at("volumes"), causes),
    };
    demands::claims(&spec["resourceClaims"], &at("resourceClaims"), causes);
    containers(&pod, path, causes);
    ephemeral(spec, &at("ephemeralContainers"), causes);
    demands::of_pod(&pod, &at("resources"), causes);
    surroundings::host_network(spec, name, path, causes);
    let policies = ["Always", "OnFailure", "Never"];
    one_of(
        &spec["restartPolicy"],
        &policies,
        &at("restartPolicy"),
        causes,
    );
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    if spec["dnsPolicy"] == "" {
        causes.push(Cause::required(at("dnsPolicy"), ""));
    } else {
        one_of(&spec["dnsPolicy"], &policies, &at("dnsPolicy"), causes);
    }
    meta::labels(&spec["nodeSelector"], &at("nodeSelector"), causes);
    security::of_pod(spec, &at("securityContext"), causes);
    affinity::check(&spec["affinity"], &at("affinity"), causes);
    surroundings::dns(spec, &at("dnsConfig"), causes);
    surroundings::gates(spec, path, causes);
    let constraints = &spec["topologySpreadConstraints"];
    affinity::spread(constraints, &at("topologySpreadConstraints"), causes);
    surroundings::host_users(spec, path, causes);
    surroundings::host_name(spec, &at("hostnameOverride"), causes);
    for (field, check) in [
        (
            "serviceAccountName",
            names::subdomain as fn(&str) -> Vec<String>,
        ),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
        ("priorityClassName", names::subdomain),
    ] {
        optional_name(&spec[field], check, &at(field), causes);
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        let most = i64::from(i32::MAX);
        within(
            &spec["activeDeadlineSeconds"],
            1,
            most,
            &at("activeDeadlineSeconds"),
            causes,
        );
    }
    tolerations(&spec["tolerations"], &at("tolerations"), causes);
    for (at, alias) in indexed(&spec["hostAliases"], &at("hostAliases")) {
        addresses::legacy(text(&alias["ip"]), &format!("{at}.ip"), causes);
        for (at, host) in indexed(&alias["hostnames"], &format!("{at}.hostnames")) {
            wrong(names::subdomain(text(host)), text(host), &at, causes);
        }
    }
    let class = &spec["runtimeClassName"];
    if !class.is_null() {
        wrong(
            names::subdomain(text(class)),
            text(class),
            &at("runtimeClassName"),
            causes,
        );
    }
    if !spec["preemptionPolicy"].is_null() {
        preemption(&spec["preemptionPolicy"], &at("preemptionPolicy"), causes);
    }
    let overhead = json!({"limits": spec["overhead"]});
    resources::check(&overhead, resources::name, &at("overhead"), causes);
    surroundings::system(spec, path, causes);
}

/// Checks the containers and the init containers, which share their names.
fn containers(pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let spec = pod.spec;
    let at = format!("{path}.containers");
    let (mut seen, mut ports) = (HashSet::new(), HashSet::new());
    if !filled(&spec["containers"]) {
        causes.push(Cause::required(&at, ""));
    }
    for (at, container) in indexed(&spec["containers"], &at) {
        container::common(container, pod, &at, causes);
        unique(container, &at, &mut seen, causes);
        container::lasting(container, pod, &at, causes);
        restart(container, &at, causes);
        container::host_ports(container, &mut ports, &at, causes);
    }
    let list = format!("{path}.initContainers");
    for (at, container) in indexed(&spec["initContainers"], &list) {
        container::common(container, pod, &at, causes);
        restart(container, &at, causes);
        unique(container, &at, &mut seen, causes);
        // each is looked at alone, as the first of a list
        let first = format!("{list}[0]");
        container::host_ports(container, &mut HashSet::new(), &first, causes);
        if container["restartPolicy"] == "Always" {
            container::lasting(container, pod, &at, causes);
            continue;
        }
        for field in OF_LASTING
            .iter()
            .filter(|field| !container[**field].is_null())
        {
            let why = "may not be set for init containers without restartPolicy=Always";
            causes.push(Cause::forbidden(format!("{at}.{field}"), why));
        }
    }
}

/// Checks containers that come later.
fn ephemeral(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let others = ["containers", "initContainers"].into_iter();
    let mut names: HashSet<&str> = others
        .flat_map(|list| elements(&spec[list]))
        .map(|container| text(&container["name"]))
        .collect();
    for (at, container) in indexed(&spec["ephemeralContainers"], path) {
        unique(container, &at, &mut names, causes);
        if !filled(&container["image"]) {
            causes.push(Cause::required(format!("{at}.image"), ""));
        }
    }
}

fn unique<'a>(
    container: &'a Value,
    path: &str,
    seen: &mut HashSet<&'a str>,
    causes: &mut Vec<Cause>,
) {
    let name = text(&container["name"]);
    if !seen.insert(name) {
        causes.push(Cause::duplicate(format!("{path}.name"), &json!(name)));
    }
}

/// Checks when a container of its own is started again.
fn restart(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (policy, rules) = (
        &container["restartPolicy"],
        &container["restartPolicyRules"],
    );
    let is_always = policy == "Always" && path.contains(".initContainers[");
    if is_always && filled(rules) {
        let why =
            "restartPolicyRules are not allowed for init containers with restart policy Always";
        causes.push(Cause::forbidden(format!("{path}.restartPolicyRules"), why));
    }
    if is_always {
        return;
    }
    let at = format!("{path}.restartPolicy");
    if !policy.is_null() {
        one_of(policy, &["Always", "Never", "OnFailure"], &at, causes);
    } else if filled(rules) {
        let why = "must specify restartPolicy when restart rules are used";
        causes.push(Cause::required(at, why));
        if path.contains(".initContainers[") {
            return;
        }
    }
    for (at, rule) in indexed(rules, &format!("{path}.restartPolicyRules")) {
        one_of(
            &rule["action"],
            &["Restart"],
            &format!("{at}.action"),
            causes,
        );
        let (codes, at) = (&rule["exitCodes"], format!("{at}.exitCodes"));
        if codes.is_null() {
            causes.push(Cause::required(at, "must be specified"));
        } else {
            one_of(
                &codes["operator"],
                &["In", "NotIn"],
                &format!("{at}.operator"),
                causes,
            );
        }
    }
}

/// Checks whether pods may displace others.
pub(super) fn preemption(policy: &Value, path: &str, causes: &mut Vec<Cause>) {
    if filled(policy) {
        one_of(policy, &["PreemptLowerPriority", "Never"], path, causes);
    } else {
        causes.push(Cause::required(path, ""));
    }
}

/// Checks tolerations at a path.
pub(super) fn tolerations(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, toleration) in indexed(list, path) {
        check_toleration(toleration, &at, causes);
    }
}

fn check_toleration(toleration: &Value, path: &str, causes: &mut Vec<Cause>) {
    let of = |field: &str| text(&toleration[field]);
    let (key, operator, value, effect) = (of("key"), of("operator"), of("value"), of("effect"));
    if !key.is_empty() {
        let at = format!("{path}.key");
        let wrong = names::key(key).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(key), &why)));
    }
    let at_operator = format!("{path}.operator");
    if key.is_empty() && operator != "Exists" {
        causes.push(Cause::invalid(
            &*at_operator,
            &json!(operator),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ));
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        causes.push(Cause::invalid(
            format!("{path}.effect"),
            &json!(effect),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    match operator {
        "Equal" | "" => {
            let wrong = names::value(value);
            if !wrong.is_empty() {
                causes.push(Cause::invalid(at_operator, &json!(value), &wrong.join(";")));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                causes.push(Cause::invalid(
                    at_operator,
                    &json!(value),
                    "value must be empty when `operator` is 'Exists'",
                ));
            }
        }
        _ => {
            // comparisons are known, and not allowed without their feature
            let known: &[&str] = match operator {
                "Lt" | "Gt" => &["Equal", "Exists", "Lt", "Gt"],
                _ => &["Equal", "Exists"],
            };
            let all: Vec<String> = known.iter().map(|&name| name.to_owned()).collect();
            causes.push(Cause::unsupported(at_operator, &json!(operator), &all));
        }
    }
    if !effect.is_empty() {
        one_of(
            &toleration["effect"],
            &EFFECTS,
            &format!("{path}.effect"),
            causes,
        );
    }
}
