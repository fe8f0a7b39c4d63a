//! Checks of pod specifications, in pods and in templates.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::checks::{indexed, not_negative, one_of, text};
use super::{meta, names, resources};
use crate::failure::Cause;

pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks a specification at a path.
pub(super) fn check(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let volumes = volumes(&spec["volumes"], &format!("{path}.volumes"), causes);
    containers(spec, path, &volumes, causes);
    one_of(
        &spec["restartPolicy"],
        &["Always", "OnFailure", "Never"],
        &format!("{path}.restartPolicy"),
        causes,
    );
    one_of(
        &spec["dnsPolicy"],
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        &format!("{path}.dnsPolicy"),
        causes,
    );
    meta::labels(
        &spec["nodeSelector"],
        &format!("{path}.nodeSelector"),
        causes,
    );
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        named(spec, field, path, names::subdomain, causes);
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        causes.push(Cause::invalid(
            format!("{path}.activeDeadlineSeconds"),
            &json!(seconds),
            "must be between 1 and 2147483647, inclusive",
        ));
    }
    for field in ["hostname", "subdomain"] {
        named(spec, field, path, names::label, causes);
    }
    for (at, toleration) in indexed(&spec["tolerations"], &format!("{path}.tolerations")) {
        check_toleration(toleration, &at, causes);
    }
}

/// Checks a field that holds a name, or nothing.
fn named(
    spec: &Value,
    field: &str,
    path: &str,
    check: fn(&str) -> Vec<String>,
    causes: &mut Vec<Cause>,
) {
    let value = text(&spec[field]);
    if !value.is_empty() {
        let at = format!("{path}.{field}");
        let wrong = check(value).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(value), &why)));
    }
}

/// Checks the containers and the init containers, which share their names.
fn containers(spec: &Value, path: &str, volumes: &HashSet<&str>, causes: &mut Vec<Cause>) {
    let at = format!("{path}.containers");
    let mut seen = HashSet::new();
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        causes.push(Cause::required(&at, ""));
    }
    for (at, container) in indexed(&spec["containers"], &at) {
        common(container, &at, volumes, causes);
        unique(container, &at, &mut seen, causes);
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            check_probe(&container[probe], &format!("{at}.{probe}"), causes);
        }
    }
    for (at, container) in indexed(&spec["initContainers"], &format!("{path}.initContainers")) {
        common(container, &at, volumes, causes);
        unique(container, &at, &mut seen, causes);
        restart_of_init_container(container, &at, causes);
    }
}

/// Checks the restart policy of an init container, and the fields that only a sidecar may have.
fn restart_of_init_container(container: &Value, at: &str, causes: &mut Vec<Cause>) {
    let policy = &container["restartPolicy"];
    if policy == "Always" {
        return;
    }
    if !policy.is_null() {
        one_of(policy, &["Always"], &format!("{at}.restartPolicy"), causes);
    }
    for field in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        if !container[field].is_null() {
            causes.push(Cause::forbidden(
                format!("{at}.{field}"),
                "may not be set for init containers without restartPolicy=Always",
            ));
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
    if !name.is_empty() && !seen.insert(name) {
        causes.push(Cause::duplicate(format!("{path}.name"), &json!(name)));
    }
}

/// Checks the volumes, and returns their names.
fn volumes<'a>(list: &'a Value, path: &str, causes: &mut Vec<Cause>) -> HashSet<&'a str> {
    let mut seen = HashSet::new();
    for (at, volume) in indexed(list, path) {
        let name = text(&volume["name"]);
        let at_name = format!("{at}.name");
        if volume.as_object().is_some_and(|fields| fields.len() > 2) {
            let mut kinds: Vec<&String> = volume
                .as_object()
                .into_iter()
                .flatten()
                .map(|(field, _)| field)
                .filter(|field| *field != "name")
                .collect();
            kinds.sort();
            for kind in kinds.into_iter().skip(1) {
                causes.push(Cause::forbidden(
                    format!("{at}.{kind}"),
                    "may not specify more than 1 volume type",
                ));
            }
        }
        if name.is_empty() {
            causes.push(Cause::required(at_name, ""));
        } else {
            let wrong = names::label(name);
            if wrong.is_empty() && seen.contains(name) {
                causes.push(Cause::duplicate(at_name, &json!(name)));
            } else {
                let wrong = wrong.into_iter();
                causes.extend(wrong.map(|why| Cause::invalid(at_name.clone(), &json!(name), &why)));
                seen.insert(name);
            }
        }
        if volume["hostPath"].is_object() && text(&volume["hostPath"]["path"]).is_empty() {
            causes.push(Cause::required(format!("{at}.hostPath.path"), ""));
        }
        if volume["secret"].is_object() && text(&volume["secret"]["secretName"]).is_empty() {
            causes.push(Cause::required(format!("{at}.secret.secretName"), ""));
        }
        if volume["configMap"].is_object() && text(&volume["configMap"]["name"]).is_empty() {
            causes.push(Cause::required(format!("{at}.configMap.name"), ""));
        }
    }
    seen
}

fn common(container: &Value, path: &str, volumes: &HashSet<&str>, causes: &mut Vec<Cause>) {
    let name = text(&container["name"]);
    let at = format!("{path}.name");
    if name.is_empty() {
        causes.push(Cause::required(at, ""));
    } else {
        let wrong = names::label(name).into_iter();
        causes.extend(wrong.map(|why| Cause::invalid(at.clone(), &json!(name), &why)));
    }
    if text(&container["image"]).is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    }
    one_of(
        &container["terminationMessagePolicy"],
        &["File", "FallbackToLogsOnError"],
        &format!("{path}.terminationMessagePolicy"),
        causes,
    );
    ports(&container["ports"], &format!("{path}.ports"), causes);
    for (at, variable) in indexed(&container["env"], &format!("{path}.env")) {
        if text(&variable["name"]).is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        }
        if variable["valueFrom"].is_object() && !text(&variable["value"]).is_empty() {
            causes.push(Cause::invalid(
                format!("{at}.valueFrom"),
                &json!(""),
                "may not be specified when `value` is not empty",
            ));
        }
    }
    let mut places = HashSet::new();
    for (at, mount) in indexed(&container["volumeMounts"], &format!("{path}.volumeMounts")) {
        let name = text(&mount["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !volumes.contains(name) {
            causes.push(Cause::not_found(format!("{at}.name"), &json!(name)));
        }
        let place = text(&mount["mountPath"]);
        if place.is_empty() {
            causes.push(Cause::required(format!("{at}.mountPath"), ""));
        } else if !places.insert(place) {
            causes.push(Cause::invalid(
                format!("{at}.mountPath"),
                &json!(place),
                "must be unique",
            ));
        }
    }
    one_of(
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
        &format!("{path}.imagePullPolicy"),
        causes,
    );
    resources::check(
        &container["resources"],
        &format!("{path}.resources"),
        causes,
    );
}

fn is_port(value: &Value) -> bool {
    value
        .as_i64()
        .is_some_and(|port| (1..=65535).contains(&port))
}

fn ports(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    const RANGE: &str = "must be between 1 and 65535, inclusive";
    let mut seen = HashSet::new();
    for (at, port) in indexed(list, path) {
        let name = text(&port["name"]);
        if !name.is_empty() && !seen.insert(name) {
            causes.push(Cause::duplicate(format!("{at}.name"), &json!(name)));
        }
        let number = &port["containerPort"];
        if number.as_i64().unwrap_or_default() == 0 {
            causes.push(Cause::required(format!("{at}.containerPort"), ""));
        } else if !is_port(number) {
            causes.push(Cause::invalid(format!("{at}.containerPort"), number, RANGE));
        }
        let host = &port["hostPort"];
        if host.as_i64().unwrap_or_default() != 0 && !is_port(host) {
            causes.push(Cause::invalid(format!("{at}.hostPort"), host, RANGE));
        }
        one_of(
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
            &format!("{at}.protocol"),
            causes,
        );
    }
}

fn check_probe(probe: &Value, path: &str, causes: &mut Vec<Cause>) {
    if !probe.is_object() {
        return;
    }
    let handlers = ["exec", "httpGet", "tcpSocket", "grpc"]
        .into_iter()
        .filter(|kind| probe[kind].is_object())
        .count();
    if probe["exec"].is_object()
        && probe["exec"]["command"]
            .as_array()
            .is_none_or(Vec::is_empty)
    {
        causes.push(Cause::required(format!("{path}.exec.command"), ""));
    }
    if handlers == 0 {
        causes.push(Cause::required(path, "must specify a handler type"));
    }
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        not_negative(&probe[field], &format!("{path}.{field}"), causes);
    }
    let must_be_one = path.ends_with("livenessProbe") || path.ends_with("startupProbe");
    if must_be_one && probe["successThreshold"] != 1 {
        causes.push(Cause::invalid(
            format!("{path}.successThreshold"),
            &probe["successThreshold"],
            "must be 1",
        ));
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
        _ => one_of(
            &toleration["operator"],
            &["Equal", "Exists"],
            &at_operator,
            causes,
        ),
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
