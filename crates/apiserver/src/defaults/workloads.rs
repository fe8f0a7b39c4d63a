//! Defaults of the kinds that create pods.

use serde_json::{Value, json};

use super::pod::template_defaults;
use super::{items, missing, part};

/// Annotation of daemon sets that counts the changes of the template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template(object: &mut Value) {
    template_defaults(&mut object["spec"]["template"]["spec"]);
}

/// Copies the labels of the template to an object that has none.
fn labels_from_template(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        missing(&mut object["metadata"], "labels", || labels);
    }
}

pub(super) fn replication_controller(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        missing(&mut object["spec"], "selector", || labels);
    }
    labels_from_template(object);
    missing(&mut object["spec"], "replicas", || json!(1));
    if object["spec"]["template"].is_object() {
        template(object);
    }
}

pub(super) fn deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    missing(spec, "replicas", || json!(1));
    let strategy = &mut spec["strategy"];
    missing(strategy, "type", || json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        missing(strategy, "rollingUpdate", || json!({}));
        missing(&mut strategy["rollingUpdate"], "maxUnavailable", || {
            json!("25%")
        });
        missing(&mut strategy["rollingUpdate"], "maxSurge", || json!("25%"));
    }
    missing(spec, "revisionHistoryLimit", || json!(10));
    missing(spec, "progressDeadlineSeconds", || json!(600));
    template(object);
}

pub(super) fn replica_set(object: &mut Value) {
    missing(&mut object["spec"], "replicas", || json!(1));
    template(object);
}

pub(super) fn daemon_set(object: &mut Value) {
    let spec = &mut object["spec"];
    let strategy = &mut spec["updateStrategy"];
    missing(strategy, "type", || json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        missing(strategy, "rollingUpdate", || json!({}));
        missing(&mut strategy["rollingUpdate"], "maxUnavailable", || {
            json!(1)
        });
        missing(&mut strategy["rollingUpdate"], "maxSurge", || json!(0));
    }
    missing(spec, "revisionHistoryLimit", || json!(10));
    template(object);
    // counts the changes of the template; it was a field of the specification in an old API version
    missing(
        &mut object["metadata"]["annotations"],
        TEMPLATE_GENERATION,
        || json!("1"),
    );
}

pub(super) fn stateful_set(object: &mut Value) {
    let spec = &mut object["spec"];
    missing(spec, "podManagementPolicy", || json!("OrderedReady"));
    let strategy = &mut spec["updateStrategy"];
    if strategy.get("type").is_none() {
        missing(strategy, "type", || json!("RollingUpdate"));
        missing(strategy, "rollingUpdate", || json!({}));
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = part(strategy, "rollingUpdate")
    {
        missing(rolling, "partition", || json!(0));
    }
    let retention = "persistentVolumeClaimRetentionPolicy";
    missing(spec, retention, || json!({}));
    missing(&mut spec[retention], "whenDeleted", || json!("Retain"));
    missing(&mut spec[retention], "whenScaled", || json!("Retain"));
    missing(spec, "replicas", || json!(1));
    missing(spec, "revisionHistoryLimit", || json!(10));
    if let Some(claims) = spec.get_mut("volumeClaimTemplates") {
        for claim in items(claims) {
            claim["apiVersion"] = json!("v1");
            claim["kind"] = json!("PersistentVolumeClaim");
            missing(&mut claim["spec"], "volumeMode", || json!("Filesystem"));
            missing(&mut claim["status"], "phase", || json!("Pending"));
        }
    }
    template(object);
}

fn job_spec(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        missing(spec, "completions", || json!(1));
    }
    missing(spec, "parallelism", || json!(1));
    let per_index = spec.get("backoffLimitPerIndex").is_some();
    missing(spec, "backoffLimit", || {
        json!(if per_index { i32::MAX } else { 6 })
    });
    missing(spec, "completionMode", || json!("NonIndexed"));
    missing(spec, "suspend", || json!(false));
    let policy = if spec.get("podFailurePolicy").is_some() {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    missing(spec, "podReplacementPolicy", || json!(policy));
    missing(spec, "manualSelector", || json!(false));
    if let Some(rules) = spec
        .get_mut("podFailurePolicy")
        .and_then(|policy| policy.get_mut("rules"))
    {
        for rule in items(rules) {
            if let Some(patterns) = rule.get_mut("onPodConditions") {
                for pattern in items(patterns) {
                    missing(pattern, "status", || json!("True"));
                }
            }
        }
    }
}

pub(super) fn job(object: &mut Value) {
    job_spec(&mut object["spec"]);
    labels_from_template(object);
    template(object);
}

pub(super) fn cron_job(object: &mut Value) {
    let spec = &mut object["spec"];
    missing(spec, "concurrencyPolicy", || json!("Allow"));
    missing(spec, "suspend", || json!(false));
    missing(spec, "successfulJobsHistoryLimit", || json!(3));
    missing(spec, "failedJobsHistoryLimit", || json!(1));
    template_defaults(&mut spec["jobTemplate"]["spec"]["template"]["spec"]);
}
