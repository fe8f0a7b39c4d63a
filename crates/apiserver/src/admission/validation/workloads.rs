//! Checks of the kinds that create pods: selectors that match the templates, numbers, templates.

use serde_json::{Value, json};

use super::checks::{not_negative, one_of, text};
use super::{meta, pod};
use crate::failure::Cause;
use crate::objects::selectors;
use crate::registry::Resource;

/// Checks deployments, replica sets, daemon sets, stateful sets and replication controllers.
pub(super) fn check(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let storage = resource.storage.as_str();
    let daemons = storage == "daemonsets.apps";
    if !daemons {
        not_negative(&spec["replicas"], "spec.replicas", causes);
    }
    not_negative(&spec["minReadySeconds"], "spec.minReadySeconds", causes);
    let labels = &spec["template"]["metadata"]["labels"];
    let selects = if storage == "replicationcontrollers" {
        let selector = json!({"matchLabels": spec["selector"]});
        selectors::selects(&selector, labels)
    } else {
        let selector = &spec["selector"];
        if selector.is_null() && !daemons {
            causes.push(Cause::required("spec.selector", ""));
        } else if selector.as_object().is_some_and(serde_json::Map::is_empty) {
            causes.push(Cause::invalid(
                "spec.selector",
                selector,
                &format!(
                    "empty selector is invalid for {}",
                    resource.kind.to_lowercase()
                ),
            ));
        } else {
            meta::labels(
                &selector["matchLabels"],
                "spec.selector.matchLabels",
                causes,
            );
        }
        selectors::selects(selector, labels)
    };
    if !selects {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    template(&spec["template"], "spec.template", causes);
    let at = "spec.template.spec.restartPolicy";
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let known = ["Always", "OnFailure", "Never"].contains(&text(policy));
    if known {
        one_of(policy, &["Always"], at, causes);
    }
    not_negative(
        &spec["revisionHistoryLimit"],
        "spec.revisionHistoryLimit",
        causes,
    );
    if storage == "deployments.apps" {
        deployment(spec, causes);
    }
}

fn deployment(spec: &Value, causes: &mut Vec<Cause>) {
    let strategy = &spec["strategy"];
    let at = "spec.strategy";
    match text(&strategy["type"]) {
        "Recreate" => {
            if !strategy["rollingUpdate"].is_null() {
                causes.push(Cause::forbidden(
                    format!("{at}.rollingUpdate"),
                    "may not be specified when strategy `type` is 'Recreate'",
                ));
            }
        }
        "RollingUpdate" => {
            let none = |value: &Value| *value == json!(0) || *value == json!("0%");
            let rolling = &strategy["rollingUpdate"];
            if none(&rolling["maxUnavailable"]) && none(&rolling["maxSurge"]) {
                causes.push(Cause::invalid(
                    format!("{at}.rollingUpdate.maxUnavailable"),
                    &rolling["maxUnavailable"],
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
        }
        _ => one_of(
            &strategy["type"],
            &["Recreate", "RollingUpdate"],
            &format!("{at}.type"),
            causes,
        ),
    }
    if let (Some(deadline), Some(ready)) = (
        spec["progressDeadlineSeconds"].as_i64(),
        Some(spec["minReadySeconds"].as_i64().unwrap_or_default()),
    ) && deadline <= ready
    {
        causes.push(Cause::invalid(
            "spec.progressDeadlineSeconds",
            &json!(deadline),
            "must be greater than minReadySeconds",
        ));
    }
}

fn template(template: &Value, path: &str, causes: &mut Vec<Cause>) {
    meta::labels(
        &template["metadata"]["labels"],
        &format!("{path}.labels"),
        causes,
    );
    pod::check(&template["spec"], &format!("{path}.spec"), causes);
}

/// Checks the specification of a job at a path.
pub(super) fn job(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        not_negative(&spec[field], &format!("{path}.{field}"), causes);
    }
    template(&spec["template"], &format!("{path}.template"), causes);
    let at = format!("{path}.template.spec.restartPolicy");
    match text(&spec["template"]["spec"]["restartPolicy"]) {
        "OnFailure" | "Never" => {}
        "Always" => causes.push(Cause::required(
            at,
            "valid values: \"OnFailure\", \"Never\"",
        )),
        _ => one_of(
            &spec["template"]["spec"]["restartPolicy"],
            &["OnFailure", "Never"],
            &at,
            causes,
        ),
    }
}

/// Checks the specification of a cron job.
pub(super) fn cron_job(spec: &Value, causes: &mut Vec<Cause>) {
    let schedule = text(&spec["schedule"]);
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if schedule.is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    } else if !schedule.starts_with('@') && fields.len() != 5 {
        causes.push(Cause::invalid(
            "spec.schedule",
            &spec["schedule"],
            &format!(
                "expected exactly 5 fields, found {}: [{}]",
                fields.len(),
                fields.join(" ")
            ),
        ));
    }
    one_of(
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Replace"],
        "spec.concurrencyPolicy",
        causes,
    );
    job(
        &spec["jobTemplate"]["spec"],
        "spec.jobTemplate.spec",
        causes,
    );
}
