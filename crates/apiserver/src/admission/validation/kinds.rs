//! Kinds with only a few checks.

use serde_json::{Value, json};

use super::checks::{indexed, not_negative, one_of, text};
use super::names;
use super::pod::EFFECTS;
use crate::failure::Cause;
use crate::registry::Resource;
use crate::values::quantity;

/// Highest priority that users may set.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

pub(super) fn service(spec: &Value, causes: &mut Vec<Cause>) {
    let kind = text(&spec["type"]);
    let headless = spec["clusterIP"] == "None";
    let no_ports = spec["ports"].as_array().is_none_or(Vec::is_empty);
    if no_ports && !headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && text(&spec["externalName"]).is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let several = spec["ports"].as_array().is_some_and(|list| list.len() > 1);
    let mut seen = std::collections::HashSet::new();
    for (at, port) in indexed(&spec["ports"], "spec.ports") {
        let name = text(&port["name"]);
        let at_name = format!("{at}.name");
        if name.is_empty() {
            if several {
                causes.push(Cause::required(at_name, ""));
            }
        } else {
            let wrong = names::label(name).into_iter();
            causes.extend(wrong.map(|why| Cause::invalid(at_name.clone(), &json!(name), &why)));
            if !seen.insert(name) {
                causes.push(Cause::duplicate(at_name, &json!(name)));
            }
        }
        if !port["port"]
            .as_i64()
            .is_some_and(|port| (1..=65535).contains(&port))
        {
            causes.push(Cause::invalid(
                format!("{at}.port"),
                &port["port"],
                "must be between 1 and 65535, inclusive",
            ));
        }
        one_of(
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
            &format!("{at}.protocol"),
            causes,
        );
    }
    one_of(
        &spec["sessionAffinity"],
        &["ClientIP", "None"],
        "spec.sessionAffinity",
        causes,
    );
    one_of(
        &spec["type"],
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        "spec.type",
        causes,
    );
}

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
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson", causes),
        "kubernetes.io/dockercfg" => need(".dockercfg", causes),
        "kubernetes.io/ssh-auth" => need("ssh-privatekey", causes),
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

pub(super) fn config_map(object: &Value, causes: &mut Vec<Cause>) {
    keys(&object["data"], "data", causes);
    for key in object["data"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key)
    {
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
    const FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    for key in data.as_object().into_iter().flatten().map(|(key, _)| key) {
        let at = format!("{path}[{key}]");
        let mut refuse = |why: &str| causes.push(Cause::invalid(at.clone(), &json!(key), why));
        if key.len() > 253 {
            refuse("must be no more than 253 characters");
        }
        let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if key.is_empty() || !key.chars().all(good) {
            refuse(FORM);
        }
        match key.as_str() {
            "." => refuse("must not be '.'"),
            ".." => refuse("must not be '..'"),
            key if key.starts_with("..") => refuse("must not start with '..'"),
            _ => {}
        }
    }
}

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

pub(super) fn event(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let strict = resource.group == "events.k8s.io";
    let about = text(&object["involvedObject"]["namespace"]);
    let own = text(&object["metadata"]["namespace"]);
    let timed = object["eventTime"].is_string();
    let fits = match (about.is_empty(), timed) {
        (true, false) => own == "default",
        (true, true) => own == "default" || own == "kube-system",
        (false, false) => about == own,
        (false, true) => true,
    };
    if !fits {
        causes.push(Cause::invalid(
            "involvedObject.namespace",
            &json!(about),
            "does not match event.namespace",
        ));
    }
    if timed {
        let controller = if strict {
            "reportingController"
        } else {
            "reportingComponent"
        };
        for (field, name) in [
            ("reportingComponent", controller),
            ("reportingInstance", "reportingInstance"),
            ("action", "action"),
            ("reason", "reason"),
        ] {
            if text(&object[field]).is_empty() {
                causes.push(Cause::required(name, ""));
            }
        }
    }
    if !strict {
        return;
    }
    if !timed {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(&object["type"]);
    if kind != "Normal" && kind != "Warning" {
        causes.push(Cause::invalid(
            "type",
            &json!(""),
            &format!("has invalid value: {kind}"),
        ));
    }
}

pub(super) fn quota(spec: &Value, causes: &mut Vec<Cause>) {
    for (name, amount) in spec["hard"].as_object().into_iter().flatten() {
        if quantity::amount(amount).is_negative() {
            causes.push(Cause::invalid(
                format!("spec.hard[{name}]"),
                amount,
                "must be greater than or equal to 0",
            ));
        }
    }
}

pub(super) fn budget(spec: &Value, causes: &mut Vec<Cause>) {
    if spec["minAvailable"].is_null() || spec["maxUnavailable"].is_null() {
        return;
    }
    let written = format!(
        "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
        spec["minAvailable"],
        spec["selector"],
        spec["maxUnavailable"],
        spec["unhealthyPodEvictionPolicy"]
    );
    let cause = Cause::invalid(
        "spec",
        &Value::Null,
        "minAvailable and maxUnavailable cannot be both set",
    );
    causes.push(cause.with_value(&written));
}

pub(super) fn node(object: &Value, causes: &mut Vec<Cause>) {
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
            let mut duplicate = Cause::duplicate(at, taint);
            duplicate
                .message
                .push_str(": taints must be unique by key and effect pair");
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
    one_of(
        &object["preemptionPolicy"],
        &["PreemptLowerPriority", "Never"],
        "preemptionPolicy",
        causes,
    );
}

pub(super) fn storage_class(object: &Value, causes: &mut Vec<Cause>) {
    if text(&object["provisioner"]).is_empty() {
        causes.push(Cause::required("provisioner", ""));
    }
}

pub(super) fn network_policy(spec: &Value, causes: &mut Vec<Cause>) {
    for (at, kind) in indexed(&spec["policyTypes"], "spec.policyTypes") {
        one_of(kind, &["Ingress", "Egress"], &at, causes);
    }
}

/// Checks the rules of a role or of a cluster role.
pub(super) fn rules(object: &Value, namespaced: bool, causes: &mut Vec<Cause>) {
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
    if text(&role["name"]).is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (at, subject) in indexed(&object["subjects"], "subjects") {
        if text(&subject["name"]).is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        }
        match text(&subject["kind"]) {
            "ServiceAccount" => {
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
