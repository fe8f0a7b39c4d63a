//! Checks of the probes and hooks of containers.

use serde_json::{Value, json};

use super::checks::{filled, not_negative, one_of, port, text, wrong};
use super::names;
use crate::failure::Cause;
use crate::values::fields::elements;

/// Checks what a hook or probe does; a hook may not take longer than the pod has to end.
pub(super) fn handler(action: &Value, grace: Option<i64>, path: &str, causes: &mut Vec<Cause>) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let (value, at) = (&action[kind], format!("{path}.{kind}"));
        if value.is_null() {
            continue;
        }
        if found {
            causes.push(Cause::forbidden(
                at,
                "may not specify more than 1 handler type",
            ));
            continue;
        }
        found = true;
        match kind {
            "exec" => {
                if !filled(&value["command"]) {
                    causes.push(Cause::required(format!("{at}.command"), ""));
                }
            }
            "httpGet" => {
                if !filled(&value["path"]) {
                    causes.push(Cause::required(format!("{at}.path"), ""));
                }
                port(&value["port"], &format!("{at}.port"), causes);
                one_of(
                    &value["scheme"],
                    &["HTTP", "HTTPS"],
                    &format!("{at}.scheme"),
                    causes,
                );
                for header in elements(&value["httpHeaders"]) {
                    let given = text(&header["name"]);
                    wrong(
                        names::header(given),
                        given,
                        &format!("{at}.httpHeaders"),
                        causes,
                    );
                }
            }
            "sleep" => {
                let seconds = value["seconds"].as_i64().unwrap_or_default();
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let why = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                    );
                    causes.push(Cause::invalid(at, &json!(seconds), &why));
                }
            }
            _ => port(&value["port"], &format!("{at}.port"), causes),
        }
    }
    if !found {
        causes.push(Cause::required(path, "must specify a handler type"));
    }
}

/// Checks a probe.
pub(super) fn check(probe: &Value, kind: &str, path: &str, causes: &mut Vec<Cause>) {
    if probe.is_null() {
        return;
    }
    handler(probe, None, path, causes);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        not_negative(&probe[field], &format!("{path}.{field}"), causes);
    }
    let (grace, at) = (
        &probe["terminationGracePeriodSeconds"],
        format!("{path}.terminationGracePeriodSeconds"),
    );
    if grace.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.push(Cause::invalid(&*at, grace, "must be greater than 0"));
    }
    if kind == "readinessProbe" {
        if !grace.is_null() {
            let why = "must not be set for readinessProbes";
            causes.push(Cause::invalid(at, grace, why));
        }
    } else if probe["successThreshold"] != 1 {
        let at = format!("{path}.successThreshold");
        causes.push(Cause::invalid(at, &probe["successThreshold"], "must be 1"));
    }
}
