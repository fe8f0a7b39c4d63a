//! Checks of the kinds that create pods: selectors that match the templates, numbers, templates.

use serde_json::{Value, json};

use super::checks::{
    at_most_all, filled, indexed, label_selector, not_negative, number_or_percent, one_of,
    optional_name, text,
};
use super::{claims, meta, names, pod};
use crate::failure::Cause;
use crate::objects::selectors;
use crate::registry::Resource;
use crate::values::fields::elements;

/// Checks deployments, replica sets, daemon sets, stateful sets and replication controllers.
pub(super) fn check(resource: &Resource, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let storage = resource.storage.as_str();
    let daemons = storage == "daemonsets.apps";
    if storage == "statefulsets.apps" {
        stateful_set(spec, causes);
    }
    if !daemons {
        not_negative(&spec["replicas"], "spec.replicas", causes);
    }
    not_negative(&spec["minReadySeconds"], "spec.minReadySeconds", causes);
    let labels = &spec["template"]["metadata"]["labels"];
    let of_controller = storage == "replicationcontrollers";
    let mut is_valid = true;
    let selects = if of_controller {
        if !filled(&spec["selector"]) {
            causes.push(Cause::required("spec.selector", ""));
        }
        selectors::selects(&json!({"matchLabels": spec["selector"]}), labels)
    } else {
        let selector = &spec["selector"];
        if selector.is_null() && !daemons {
            causes.push(Cause::required("spec.selector", ""));
        } else if selector.is_object() {
            let before = causes.len();
            label_selector(selector, "spec.selector", causes);
            is_valid = causes.len() == before;
            if !filled(&selector["matchLabels"]) && !filled(&selector["matchExpressions"]) {
                let kind = match storage {
                    // a real server says so of replica sets
                    "replicasets.apps" => "deployment".to_owned(),
                    _ => resource.kind.to_lowercase(),
                };
                let why = format!("empty selector is invalid for {kind}");
                causes.push(Cause::invalid("spec.selector", selector, &why));
            }
        }
        selectors::selects(selector, labels)
    };
    if of_controller && spec["template"].is_null() {
        causes.push(Cause::required("spec.template", ""));
        return;
    }
    if !is_valid && !daemons {
        causes.push(invalid_selector(storage, &spec["selector"]));
    } else if !selects && is_valid {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    let is_checked = is_valid || daemons;
    if storage == "statefulsets.apps" {
        if is_checked {
            template(&with_claims(spec), "spec.template", causes);
            // a real server looks at them twice
            embedded(&spec["template"], "spec.template", causes);
        }
    } else if is_checked {
        template(&spec["template"], "spec.template", causes);
    }
    let at = "spec.template.spec.restartPolicy";
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if is_checked || storage == "statefulsets.apps" {
        one_of(policy, &["Always"], at, causes);
    }
    let deadline = &spec["template"]["spec"]["activeDeadlineSeconds"];
    if !deadline.is_null() && (is_checked || storage == "statefulsets.apps") {
        let called = match storage {
            "daemonsets.apps" => "DaemonSet",
            "statefulsets.apps" => "StatefulSet",
            "replicationcontrollers" => "ReplicationController",
            _ => "ReplicaSet",
        };
        let why = format!("activeDeadlineSeconds in {called} is not Supported");
        causes.push(Cause::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            &why,
        ));
    }
    if storage != "statefulsets.apps" {
        not_negative(
            &spec["revisionHistoryLimit"],
            "spec.revisionHistoryLimit",
            causes,
        );
    }
    match storage {
        "deployments.apps" => deployment(spec, causes),
        "daemonsets.apps" => daemon_set(spec, causes),
        _ => {}
    }
}

/// Makes the cause for a selector that a real server cannot read; it does not look at the template then.
fn invalid_selector(storage: &str, selector: &Value) -> Cause {
    let why = "invalid label selector";
    let mut cause = Cause::invalid("spec.selector", &Value::Null, why);
    let written = super::internal::selector(selector);
    cause.message = match storage {
        "statefulsets.apps" => format!("Invalid value: {written}"),
        _ => format!("Invalid value: {written}: {why}"),
    };
    cause
}

/// Returns a stateful set's template with the volumes that its claims become.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let Some(pod) = template["spec"].as_object_mut() else {
        return template;
    };
    let claims: Vec<Value> = elements(&spec["volumeClaimTemplates"])
        .map(|claim| {
            let name = text(&claim["metadata"]["name"]);
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    // the controller sets both
    pod.remove("hostname");
    pod.remove("subdomain");
    if claims.is_empty() {
        return template;
    }
    let mut volumes: Vec<Value> = Vec::new();
    for claim in claims {
        if !volumes.contains(&claim) {
            volumes.push(claim);
        }
    }
    let own = pod
        .get("volumes")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    for volume in own {
        if !volumes.iter().any(|claim| claim["name"] == volume["name"]) {
            volumes.push(volume);
        }
    }
    pod.insert("volumes".to_owned(), json!(volumes));
    template
}

fn stateful_set(spec: &Value, causes: &mut Vec<Cause>) {
    let policy = &spec["podManagementPolicy"];
    let at = "spec.podManagementPolicy";
    match text(policy) {
        "" => causes.push(Cause::required(at, "")),
        "OrderedReady" | "Parallel" => {}
        _ => causes.push(Cause::invalid(
            at,
            policy,
            "must be 'OrderedReady' or 'Parallel'",
        )),
    }
    let strategy = &spec["updateStrategy"];
    let rolling = &strategy["rollingUpdate"];
    let at = "spec.updateStrategy";
    let written = format!(
        "{{\"Partition\":{},\"MaxUnavailable\":{}}}",
        rolling["partition"].as_i64().unwrap_or_default(),
        rolling["maxUnavailable"]
    );
    match text(&strategy["type"]) {
        "" => causes.push(Cause::required(at, "")),
        "OnDelete" => {
            if !rolling.is_null() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                let cause = Cause::invalid(format!("{at}.rollingUpdate"), &Value::Null, why);
                causes.push(cause.with_value(&written));
            }
        }
        "RollingUpdate" => {
            let at = format!("{at}.rollingUpdate.partition");
            not_negative(&rolling["partition"], &at, causes);
        }
        kind => {
            let shown = if rolling.is_null() { "null" } else { &written };
            let cause = Cause::invalid(at, &Value::Null, "must be 'RollingUpdate' or 'OnDelete'");
            let value = format!("{{\"Type\":{},\"RollingUpdate\":{shown}}}", json!(kind));
            causes.push(cause.with_value(&value));
        }
    }
    let policy = &spec["persistentVolumeClaimRetentionPolicy"];
    for field in ["whenDeleted", "whenScaled"] {
        if !policy.is_null() {
            let at = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            one_of(&policy[field], &["Retain", "Delete"], &at, causes);
        }
    }
    not_negative(&spec["ordinals"]["start"], "spec.ordinals.start", causes);
}

/// Checks what only a new stateful set must not have; in others it cannot be changed.
pub(super) fn new_stateful_set(spec: &Value, causes: &mut Vec<Cause>) {
    for (at, claim) in indexed(&spec["volumeClaimTemplates"], "spec.volumeClaimTemplates") {
        claims::claim(&claim["spec"], &format!("{at}.spec"), causes);
    }
    optional_name(
        &spec["serviceName"],
        names::label,
        "spec.serviceName",
        causes,
    );
}

fn daemon_set(spec: &Value, causes: &mut Vec<Cause>) {
    let strategy = &spec["updateStrategy"];
    let (rolling, at) = (&strategy["rollingUpdate"], "spec.updateStrategy");
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => {
            causes.push(Cause::required(format!("{at}.rollingUpdate"), ""));
        }
        "RollingUpdate" => {
            let at = |field: &str| format!("{at}.rollingUpdate.{field}");
            for field in ["maxUnavailable", "maxSurge"] {
                number_or_percent(&rolling[field], &at(field), causes);
                at_most_all(&rolling[field], &at(field), causes);
            }
            match (
                is_none(&rolling["maxUnavailable"]),
                is_none(&rolling["maxSurge"]),
            ) {
                (false, false) => {
                    let why = "may not be set when maxUnavailable is non-zero";
                    causes.push(Cause::invalid(at("maxSurge"), &rolling["maxSurge"], why));
                }
                (true, true) => {
                    let why = "cannot be 0 when maxSurge is 0";
                    causes.push(Cause::required(at("maxUnavailable"), why));
                }
                _ => {}
            }
        }
        kind => {
            let allowed = ["RollingUpdate", "OnDelete"].map(str::to_owned);
            causes.push(unknown(at, kind, strategy, &allowed));
        }
    }
}

/// Makes the cause for a strategy of an unknown type.
fn unknown(path: &str, kind: &str, strategy: &Value, allowed: &[String]) -> Cause {
    let rolling = &strategy["rollingUpdate"];
    let shown = if rolling.is_object() {
        let of = |field: &str| match &rolling[field] {
            Value::Null => json!(0),
            set => set.clone(),
        };
        let (most, surge) = (of("maxUnavailable"), of("maxSurge"));
        format!("{{\"MaxUnavailable\":{most},\"MaxSurge\":{surge}}}")
    } else {
        "null".to_owned()
    };
    let mut cause = Cause::unsupported(path, &Value::Null, allowed);
    let shown = format!("{{\"Type\":{},\"RollingUpdate\":{shown}}}", json!(kind));
    cause.message = cause.message.replacen("null", &shown, 1);
    cause
}

/// Returns whether a number or percentage is zero, as what is none counts, too.
fn is_none(value: &Value) -> bool {
    match value {
        // what is no valid share counts as none
        Value::String(text) => {
            let is_share = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
            let number = match text.strip_suffix('%') {
                Some(share) => Some(share).filter(is_share).unwrap_or_default(),
                None => text,
            };
            number.parse::<i64>().unwrap_or_default() == 0
        }
        _ => value.as_i64().unwrap_or_default() == 0,
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
            let rolling = &strategy["rollingUpdate"];
            for field in ["maxUnavailable", "maxSurge"] {
                number_or_percent(
                    &rolling[field],
                    &format!("{at}.rollingUpdate.{field}"),
                    causes,
                );
            }
            let most = format!("{at}.rollingUpdate.maxUnavailable");
            at_most_all(&rolling["maxUnavailable"], &most, causes);
            if is_none(&rolling["maxUnavailable"]) && is_none(&rolling["maxSurge"]) {
                causes.push(Cause::invalid(
                    format!("{at}.rollingUpdate.maxUnavailable"),
                    &rolling["maxUnavailable"],
                    "may not be 0 when `maxSurge` is 0",
                ));
            }
        }
        kind => {
            let allowed = ["Recreate", "RollingUpdate"].map(str::to_owned);
            causes.push(unknown(at, kind, strategy, &allowed));
        }
    }
    not_negative(
        &spec["progressDeadlineSeconds"],
        "spec.progressDeadlineSeconds",
        causes,
    );
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

/// Checks a template of pods at a path.
pub(super) fn template(template: &Value, path: &str, causes: &mut Vec<Cause>) {
    embedded(template, path, causes);
    let (annotations, spec) = (&template["metadata"]["annotations"], &template["spec"]);
    let at = format!("{path}.spec");
    pod::check(spec, &at, causes);
    pod::annotations::agree(annotations, spec, &at, causes);
    if filled(&template["spec"]["ephemeralContainers"]) {
        let why = "ephemeral containers not allowed in pod template";
        causes.push(Cause::forbidden(
            format!("{path}.spec.ephemeralContainers"),
            why,
        ));
    }
}

/// Checks labels and annotations of a template.
fn embedded(template: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (labels, annotations) = (
        &template["metadata"]["labels"],
        &template["metadata"]["annotations"],
    );
    meta::labels(labels, &format!("{path}.labels"), causes);
    let at = format!("{path}.annotations");
    meta::annotations(annotations, &at, causes);
    pod::annotations::check(annotations, &template["spec"], &at, causes);
}
