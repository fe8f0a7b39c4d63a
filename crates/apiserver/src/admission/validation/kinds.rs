//! Kinds with only a few checks.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use serde_json::{Value, json};

use super::checks::{
    at_most_all, filled, indexed, label_selector, not_negative, number_or_percent, one_of, text,
    wrong,
};
use super::pod::EFFECTS;
use super::{addresses, meta, names, pod, resources};
use crate::failure::Cause;
use crate::values::fields::{elements, members};

/// Highest priority that users may set.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

pub(super) fn secret(object: &Value, causes: &mut Vec<Cause>) {
    keys(&object["data"], "data", causes);
    let need = |field: &str, causes: &mut Vec<Cause>| {
        if object["data"].get(field).is_none() {
            causes.push(Cause::required(format!("data[{field}]"), ""));
        }
    };
    match text(&object["type"]) {
        "kubernetes.io/tls" => {
            need("tls.crt", causes);
            need("tls.key", causes);
        }
        "kubernetes.io/dockerconfigjson" => docker(object, ".dockerconfigjson", causes),
        "kubernetes.io/dockercfg" => docker(object, ".dockercfg", causes),
        "kubernetes.io/ssh-auth" if !filled(&object["data"]["ssh-privatekey"]) => {
            causes.push(Cause::required("data[ssh-privatekey]", ""));
        }
        "kubernetes.io/basic-auth" => {
            let has = |field: &str| object["data"].get(field).is_some();
            if !has("username") && !has("password") {
                need("username", causes);
                need("password", causes);
            }
        }
        "kubernetes.io/service-account-token" => {
            let account = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"][account]).is_empty() {
                causes.push(Cause::required(
                    format!("metadata.annotations[{account}]"),
                    "",
                ));
            }
        }
        _ => {}
    }
}

/// Checks that a secret has a configuration of a container registry.
fn docker(object: &Value, key: &str, causes: &mut Vec<Cause>) {
    let at = format!("data[{key}]");
    let Some(value) = object["data"].get(key) else {
        causes.push(Cause::required(at, ""));
        return;
    };
    let bytes = STANDARD.decode(text(value)).unwrap_or_default();
    if bytes.is_empty() {
        let why = "unexpected end of JSON input";
        causes.push(Cause::invalid(
            at,
            &json!("<secret contents redacted>"),
            why,
        ));
    }
}

pub(super) fn config_map(object: &Value, causes: &mut Vec<Cause>) {
    keys(&object["data"], "data", causes);
    for key in members(&object["data"]).map(|(key, _)| key) {
        if object["binaryData"].get(key).is_some() {
            causes.push(Cause::invalid(
                format!("data[{key}]"),
                &json!(key),
                "duplicate of key present in binaryData",
            ));
        }
    }
    keys(&object["binaryData"], "binaryData", causes);
}

fn keys(data: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (key, _) in members(data) {
        wrong(
            names::config_key(key),
            key,
            &format!("{path}[{key}]"),
            causes,
        );
    }
}

/// Checks the specification of a lease.
pub(super) fn lease(spec: &Value, causes: &mut Vec<Cause>) {
    if spec["leaseDurationSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds <= 0)
    {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            &spec["leaseDurationSeconds"],
            "must be greater than 0",
        ));
    }
    not_negative(&spec["leaseTransitions"], "spec.leaseTransitions", causes);
}

/// Checks the specification of a disruption budget.
pub(super) fn budget(spec: &Value, causes: &mut Vec<Cause>) {
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let written = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"]
        );
        let why = "minAvailable and maxUnavailable cannot be both set";
        let cause = Cause::invalid("spec", &Value::Null, why);
        causes.push(cause.with_value(&written));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let at = format!("spec.{field}");
        number_or_percent(&spec[field], &at, causes);
        at_most_all(&spec[field], &at, causes);
    }
    label_selector(&spec["selector"], "spec.selector", causes);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() {
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        one_of(policy, &policies, "spec.unhealthyPodEvictionPolicy", causes);
    }
}

/// Checks a node.
pub(super) fn node(object: &Value, causes: &mut Vec<Cause>) {
    taints(object, causes);
    let (ranges, path) = (&object["spec"]["podCIDRs"], "spec.podCIDRs");
    for (at, range) in indexed(ranges, path) {
        addresses::legacy_range(text(range), &at, causes);
    }
    let families: Vec<bool> = elements(ranges)
        .filter_map(|range| addresses::parse_range(text(range)))
        .map(addresses::Range::is_v4)
        .collect();
    let count = ranges.as_array().map_or(0, Vec::len);
    let is_pair = count == 2 && families.contains(&true) && families.contains(&false);
    if count > 1 && !is_pair {
        let why = "may specify no more than one CIDR for each IP family";
        causes.push(Cause::invalid(path, ranges, why));
    }
}

/// Checks the taints of a node.
pub(super) fn taints(object: &Value, causes: &mut Vec<Cause>) {
    let mut seen = std::collections::HashSet::new();
    for (at, taint) in indexed(&object["spec"]["taints"], "metadata.taints") {
        let key = text(&taint["key"]);
        let wrong = names::key(key).into_iter();
        let at_key = format!("{at}.key");
        causes.extend(wrong.map(|why| Cause::invalid(at_key.clone(), &json!(key), &why)));
        let wrong = names::value(text(&taint["value"]));
        if !wrong.is_empty() {
            causes.push(Cause::invalid(
                format!("{at}.value"),
                &taint["value"],
                &wrong.join(";"),
            ));
        }
        if text(&taint["effect"]).is_empty() {
            causes.push(Cause::required(format!("{at}.effect"), ""));
        } else {
            one_of(&taint["effect"], &EFFECTS, &format!("{at}.effect"), causes);
        }
        if !seen.insert((key.to_owned(), text(&taint["effect"]).to_owned())) {
            let mut duplicate = Cause::duplicate(at, &Value::Null);
            duplicate.message = format!(
                "Duplicate value: {{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}: taints must be unique by key and effect pair",
                json!(key),
                json!(text(&taint["value"])),
                json!(text(&taint["effect"])),
                taint["timeAdded"]
            );
            causes.push(duplicate);
        }
    }
}

pub(super) fn priority_class(object: &Value, causes: &mut Vec<Cause>) {
    let name = text(&object["metadata"]["name"]);
    let system = [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ];
    let value = object["value"].as_i64().unwrap_or_default();
    if name.starts_with("system-") {
        let known = system.iter().find(|(known, _)| *known == name);
        let why = match known {
            None => format!("{name} is not a known system priority class"),
            Some((_, wanted)) if *wanted != value => {
                format!("value of {name} PriorityClass must be {wanted}")
            }
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            causes.push(Cause::forbidden(
                "metadata.name",
                &format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
                ),
            ));
        }
    } else if value > HIGHEST_PRIORITY {
        causes.push(Cause::forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"),
        ));
    }
    pod::preemption(&object["preemptionPolicy"], "preemptionPolicy", causes);
}

/// Checks a revision of a controller.
pub(super) fn revision(object: &Value, causes: &mut Vec<Cause>) {
    not_negative(&object["revision"], "revision", causes);
}

/// Checks that a new revision has data.
pub(super) fn new_revision(object: &Value, causes: &mut Vec<Cause>) {
    let why = match &object["data"] {
        Value::Null => "data is mandatory",
        Value::Object(_) => return,
        _ => "data must be a valid JSON object",
    };
    causes.push(Cause::required("data", why));
}

/// Checks a class of runtimes.
pub(super) fn runtime_class(object: &Value, causes: &mut Vec<Cause>) {
    let handler = text(&object["handler"]);
    wrong(names::label(handler), handler, "handler", causes);
    let overhead = json!({"limits": object["overhead"]["podFixed"]});
    resources::check(&overhead, resources::name, "overhead", causes);
    let scheduling = &object["scheduling"];
    meta::labels(
        &scheduling["nodeSelector"],
        "scheduling.nodeSelector",
        causes,
    );
    let path = "scheduling.tolerations";
    pod::tolerations(&scheduling["tolerations"], path, causes);
    let mut seen = std::collections::HashSet::new();
    for (at, toleration) in indexed(&scheduling["tolerations"], path) {
        let key = ["key", "operator", "value", "effect"].map(|field| text(&toleration[field]));
        if !seen.insert(key) {
            let written = super::internal::written("Toleration", toleration);
            let mut cause = Cause::duplicate(at, &Value::Null);
            cause.message = format!("Duplicate value: {written}");
            causes.push(cause);
        }
    }
}

/// Checks the rules of a role or of a cluster role.
pub(super) fn rules(object: &Value, namespaced: bool, causes: &mut Vec<Cause>) {
    let aggregated = &object["aggregationRule"];
    let path = "aggregationRule.clusterRoleSelectors";
    if !aggregated.is_null() && !filled(&aggregated["clusterRoleSelectors"]) {
        let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        causes.push(Cause::required(path, why));
    }
    for (at, selector) in indexed(&aggregated["clusterRoleSelectors"], path) {
        let before = causes.len();
        label_selector(selector, &at, causes);
        if causes.len() > before {
            let why = "invalid label selector.";
            causes.push(Cause::invalid(at, &Value::Null, why));
        }
    }
    for (at, rule) in indexed(&object["rules"], "rules") {
        let filled = |field: &str| rule[field].as_array().is_some_and(|list| !list.is_empty());
        if !filled("verbs") {
            causes.push(Cause::required(
                format!("{at}.verbs"),
                "verbs must contain at least one value",
            ));
        }
        if filled("nonResourceURLs") {
            let path = format!("{at}.nonResourceURLs");
            if namespaced {
                causes.push(Cause::invalid(
                    &*path,
                    &rule["nonResourceURLs"],
                    "namespaced rules cannot apply to non-resource URLs",
                ));
            }
            if filled("apiGroups") || filled("resources") || filled("resourceNames") {
                causes.push(Cause::invalid(
                    path,
                    &rule["nonResourceURLs"],
                    "rules cannot apply to both regular resources and non-resource URLs",
                ));
            }
            continue;
        }
        if !filled("apiGroups") {
            causes.push(Cause::required(
                format!("{at}.apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if !filled("resources") {
            causes.push(Cause::required(
                format!("{at}.resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}

/// Checks the binding of a role.
pub(super) fn binding(object: &Value, causes: &mut Vec<Cause>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = &object["roleRef"];
    one_of(&role["apiGroup"], &[GROUP], "roleRef.apiGroup", causes);
    let cluster = object["metadata"]["namespace"].is_null();
    let kinds: &[&str] = if cluster {
        &["ClusterRole"]
    } else {
        &["Role", "ClusterRole"]
    };
    one_of(&role["kind"], kinds, "roleRef.kind", causes);
    let named = text(&role["name"]);
    if named.is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    } else {
        wrong(names::path_segment(named), named, "roleRef.name", causes);
    }
    for (at, subject) in indexed(&object["subjects"], "subjects") {
        if text(&subject["name"]).is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        }
        match text(&subject["kind"]) {
            "ServiceAccount" => {
                let name = text(&subject["name"]);
                if !name.is_empty() {
                    wrong(names::subdomain(name), name, &format!("{at}.name"), causes);
                }
                if filled(&subject["apiGroup"]) {
                    one_of(
                        &subject["apiGroup"],
                        &[""],
                        &format!("{at}.apiGroup"),
                        causes,
                    );
                }
                if cluster && text(&subject["namespace"]).is_empty() {
                    causes.push(Cause::required(format!("{at}.namespace"), ""));
                }
            }
            "User" | "Group" => {
                one_of(
                    &subject["apiGroup"],
                    &[GROUP],
                    &format!("{at}.apiGroup"),
                    causes,
                );
            }
            _ => one_of(
                &subject["kind"],
                &["ServiceAccount", "User", "Group"],
                &format!("{at}.kind"),
                causes,
            ),
        }
    }
}
