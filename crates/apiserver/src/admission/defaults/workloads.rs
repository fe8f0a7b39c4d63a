//! Defaults of the kinds that create pods.

use serde_json::{Value, json};

use super::pod::template_defaults;
use crate::values::fields::{TEMPLATE_GENERATION, existing_object, items, set_default};

fn template(object: &mut Value) {
    template_defaults(&mut object["spec"]["template"]["spec"]);
}

/// Copies the labels of the template to an object that has none.
fn labels_from_template(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        set_default(&mut object["metadata"], "labels", || labels);
    }
}

pub(super) fn replication_controller(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        set_default(&mut object["spec"], "selector", || labels);
    }
    labels_from_template(object);
    set_default(&mut object["spec"], "replicas", || json!(1));
    if object["spec"]["template"].is_object() {
        template(object);
    }
}

pub(super) fn deployment(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "replicas", || json!(1));
    let strategy = &mut spec["strategy"];
    set_default(strategy, "type", || json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", || json!({}));
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", || {
            json!("25%")
        });
        set_default(&mut strategy["rollingUpdate"], "maxSurge", || json!("25%"));
    }
    set_default(spec, "revisionHistoryLimit", || json!(10));
    set_default(spec, "progressDeadlineSeconds", || json!(600));
    template(object);
}

pub(super) fn replica_set(object: &mut Value) {
    set_default(&mut object["spec"], "replicas", || json!(1));
    template(object);
}

pub(super) fn daemon_set(object: &mut Value) {
    let spec = &mut object["spec"];
    let strategy = &mut spec["updateStrategy"];
    set_default(strategy, "type", || json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        set_default(strategy, "rollingUpdate", || json!({}));
        set_default(&mut strategy["rollingUpdate"], "maxUnavailable", || {
            json!(1)
        });
        set_default(&mut strategy["rollingUpdate"], "maxSurge", || json!(0));
    }
    set_default(spec, "revisionHistoryLimit", || json!(10));
    template(object);
    // counts the changes of the template; it was a field of the specification in an old API version
    set_default(
        &mut object["metadata"]["annotations"],
        TEMPLATE_GENERATION,
        || json!("1"),
    );
}

pub(super) fn stateful_set(object: &mut Value) {
    let spec = &mut object["spec"];
    set_default(spec, "podManagementPolicy", || json!("OrderedReady"));
    let strategy = &mut spec["updateStrategy"];
    if strategy.get("type").is_none() {
        set_default(strategy, "type", || json!("RollingUpdate"));
        set_default(strategy, "rollingUpdate", || json!({}));
    }
    if strategy["type"] == "RollingUpdate"
        && let Some(rolling) = existing_object(strategy, "rollingUpdate")
    {
        set_default(rolling, "partition", || json!(0));
    }
    let retention = "persistentVolumeClaimRetentionPolicy";
    set_default(spec, retention, || json!({}));
    set_default(&mut spec[retention], "whenDeleted", || json!("Retain"));
    set_default(&mut spec[retention], "whenScaled", || json!("Retain"));
    set_default(spec, "replicas", || json!(1));
    set_default(spec, "revisionHistoryLimit", || json!(10));
    if let Some(claims) = spec.get_mut("volumeClaimTemplates") {
        for claim in items(claims) {
            claim["apiVersion"] = json!("v1");
            claim["kind"] = json!("PersistentVolumeClaim");
            set_default(&mut claim["spec"], "volumeMode", || json!("Filesystem"));
            set_default(&mut claim["status"], "phase", || json!("Pending"));
        }
    }
    template(object);
}

fn job_spec(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        set_default(spec, "completions", || json!(1));
    }
    set_default(spec, "parallelism", || json!(1));
    let per_index = spec.get("backoffLimitPerIndex").is_some();
    set_default(spec, "backoffLimit", || {
        json!(if per_index { i32::MAX } else { 6 })
    });
    set_default(spec, "completionMode", || json!("NonIndexed"));
    set_default(spec, "suspend", || json!(false));
    let policy = if spec.get("podFailurePolicy").is_some() {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set_default(spec, "podReplacementPolicy", || json!(policy));
    set_default(spec, "manualSelector", || json!(false));
    if let Some(rules) = spec
        .get_mut("podFailurePolicy")
        .and_then(|policy| policy.get_mut("rules"))
    {
        for rule in items(rules) {
            if let Some(patterns) = rule.get_mut("onPodConditions") {
                for pattern in items(patterns) {
                    if pattern["status"] == "" {
                        pattern["status"] = json!("True");
                    }
                    set_default(pattern, "status", || json!("True"));
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
    set_default(spec, "concurrencyPolicy", || json!("Allow"));
    set_default(spec, "suspend", || json!(false));
    set_default(spec, "successfulJobsHistoryLimit", || json!(3));
    set_default(spec, "failedJobsHistoryLimit", || json!(1));
    template_defaults(&mut spec["jobTemplate"]["spec"]["template"]["spec"]);
}
