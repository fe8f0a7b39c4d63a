//! Checks of horizontal pod autoscalers.

use serde_json::{Value, json};

use super::checks::{filled, indexed, name, not_negative_amount, one_of, text, wrong};
use super::{names, resources};
use crate::failure::Cause;
use crate::values::quantity;

/// The sources of metrics: type, field, in the order in which they are looked at.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const POSITIVE: &str = "must be greater than zero";
/// Longest window of stabilisation in seconds.
const LONGEST_WINDOW: i64 = 3600;
/// Longest period of a policy in seconds.
const LONGEST_PERIOD: i64 = 1800;

/// Checks the specification of an autoscaler. Fields of version 1 that the metrics stand for in version 2 are metrics here.
pub(super) fn check(spec: &Value, causes: &mut Vec<Cause>) {
    let number = |field: &str| spec[field].as_i64();
    let (least, most) = (
        number("minReplicas"),
        number("maxReplicas").unwrap_or_default(),
    );
    let mut refuse = |field: &str, value: i64, why: &str| {
        causes.push(Cause::invalid(format!("spec.{field}"), &json!(value), why));
    };
    if let Some(least) = least.filter(|least| *least < 1) {
        refuse("minReplicas", least, "must be greater than or equal to 1");
    }
    if most < 1 {
        refuse("maxReplicas", most, "must be greater than 0");
    }
    if least.is_some_and(|least| most < least) {
        refuse(
            "maxReplicas",
            most,
            "must be greater than or equal to `minReplicas`",
        );
    }
    let (target, at) = (&spec["scaleTargetRef"], "spec.scaleTargetRef");
    reference(target, at, causes);
    let version = text(&target["apiVersion"]);
    if !version.contains('/') || version.starts_with('/') && version.matches('/').count() == 1 {
        let why = "apiVersion must specify API group";
        let at = format!("{at}.apiVersion");
        causes.push(Cause::invalid(at, &json!(version), why));
    }
    let field = &spec["targetCPUUtilizationPercentage"];
    if field.as_i64().is_some_and(|percent| percent < 1) {
        let at = "spec.metrics[0].resource.target.averageUtilization";
        causes.push(Cause::invalid(at, field, "must be greater than 0"));
    }
    let (mut has_object, mut has_external) = (false, false);
    for (at, metric) in indexed(&spec["metrics"], "spec.metrics") {
        check_metric(metric, &at, causes);
        has_object |= metric["type"] == "Object";
        has_external |= metric["type"] == "External";
    }
    if least == Some(0) && !has_object && !has_external {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(Cause::forbidden("spec.metrics", why));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if !rules.is_null() {
            check_rules(rules, &format!("spec.behavior.{direction}"), causes);
        }
    }
}

fn reference(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in ["kind", "name"] {
        let at = format!("{path}.{field}");
        name(&value[field], names::path_segment, &at, causes);
    }
    let version = text(&value["apiVersion"]);
    if version.matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {version}");
        let at = format!("{path}.apiVersion");
        causes.push(Cause::invalid(at, &json!(version), &why));
    }
}

fn check_metric(metric: &Value, path: &str, causes: &mut Vec<Cause>) {
    let given = text(&metric["type"]);
    let at_type = format!("{path}.type");
    let known = SOURCES.iter().find(|(kind, _)| *kind == given);
    let all = [
        "ContainerResource",
        "External",
        "Object",
        "Pods",
        "Resource",
    ];
    if given.is_empty() {
        causes.push(Cause::required(
            &*at_type,
            "must specify a metric source type",
        ));
    }
    if known.is_none() {
        // a real server tells it twice
        for _ in 0..2 {
            one_of(&metric["type"], &all, &at_type, causes);
        }
    }
    let present: Vec<&str> = SOURCES
        .iter()
        .map(|(_, field)| *field)
        .filter(|field| !metric[*field].is_null())
        .collect();
    if let Some(first) = present.first() {
        check_source(&metric[*first], first, &format!("{path}.{first}"), causes);
    }
    if let Some((_, field)) = known
        && metric[*field].is_null()
    {
        let why = "must populate information for the given metric source";
        causes.push(Cause::required(format!("{path}.{field}"), why));
    }
    if present.len() != 1 {
        let wanted = known.map(|(_, field)| *field);
        for field in present.into_iter().filter(|field| Some(*field) != wanted) {
            let why = "must populate the given metric source only";
            causes.push(Cause::forbidden(format!("{path}.{field}"), why));
        }
    }
}

fn check_source(source: &Value, kind: &str, path: &str, causes: &mut Vec<Cause>) {
    let target = &source["target"];
    let has = |field: &str| !target[field].is_null();
    let at = format!("{path}.target");
    match kind {
        "object" => reference(
            &source["describedObject"],
            &format!("{path}.describedObject"),
            causes,
        ),
        "resource" | "containerResource" => {
            let at = format!("{path}.name");
            if !filled(&source["name"]) {
                causes.push(Cause::required(at, "must specify a resource name"));
            } else if kind == "containerResource" {
                resources::name(text(&source["name"]), &at, causes);
            }
        }
        _ => {}
    }
    if kind == "containerResource" {
        let (given, at) = (text(&source["container"]), format!("{path}.container"));
        if given.is_empty() {
            causes.push(Cause::required(at, "must specify a container"));
        } else {
            wrong(names::label(given), given, &at, causes);
        }
    }
    if matches!(kind, "object" | "external" | "pods") {
        let (given, at) = (
            text(&source["metric"]["name"]),
            format!("{path}.metric.name"),
        );
        if given.is_empty() {
            causes.push(Cause::required(at, "must specify a metric name"));
        } else {
            wrong(names::path_segment(given), given, &at, causes);
        }
    }
    check_target(target, &at, causes);
    let mut need =
        |field: &str, why: &str| causes.push(Cause::required(format!("{at}.{field}"), why));
    match kind {
        "object" if !has("value") && !has("averageValue") => {
            need(
                "averageValue",
                "must set either a target value or averageValue",
            );
        }
        "external" if !has("value") && !has("averageValue") => {
            let why = "must set either a target value for metric or a per-pod target";
            need("averageValue", why);
        }
        "external" if has("value") && has("averageValue") => {
            let why = "may not set both a target value for metric and a per-pod target";
            causes.push(Cause::forbidden(format!("{at}.value"), why));
        }
        "pods" if !has("averageValue") => {
            need(
                "averageValue",
                "must specify a positive target averageValue",
            );
        }
        "resource" | "containerResource" => {
            match (has("averageUtilization"), has("averageValue")) {
                (false, false) => {
                    let why = "must set either a target raw value or a target utilization";
                    need("averageUtilization", why);
                }
                (true, true) => {
                    let why = "may not set both a target raw value and a target utilization";
                    causes.push(Cause::forbidden(format!("{at}.averageValue"), why));
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn check_target(target: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (kind, at) = (text(&target["type"]), format!("{path}.type"));
    if kind.is_empty() {
        causes.push(Cause::required(&*at, "must specify a metric target type"));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let why = "must be either Utilization, Value, or AverageValue";
        causes.push(Cause::invalid(at, &json!(kind), why));
    }
    for field in ["value", "averageValue"] {
        let amount = quantity::amount(&target[field]);
        if !target[field].is_null() && (amount.is_zero() || amount.is_negative()) {
            let at = format!("{path}.{field}");
            causes.push(Cause::invalid(at, &target[field], "must be positive"));
        }
    }
    let utilization = &target["averageUtilization"];
    if utilization.as_i64().is_some_and(|number| number < 1) {
        let at = format!("{path}.averageUtilization");
        causes.push(Cause::invalid(at, utilization, "must be greater than 0"));
    }
}

fn check_rules(rules: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (window, at) = (
        &rules["stabilizationWindowSeconds"],
        format!("{path}.stabilizationWindowSeconds"),
    );
    if let Some(seconds) = window.as_i64() {
        if seconds < 0 {
            let why = "must be greater than or equal to zero";
            causes.push(Cause::invalid(&*at, window, why));
        }
        if seconds > LONGEST_WINDOW {
            let why = format!("must be less than or equal to {LONGEST_WINDOW}");
            causes.push(Cause::invalid(at, window, &why));
        }
    }
    if !rules["selectPolicy"].is_null() {
        let at = format!("{path}.selectPolicy");
        one_of(
            &rules["selectPolicy"],
            &["Disabled", "Max", "Min"],
            &at,
            causes,
        );
    }
    let at = format!("{path}.policies");
    if !filled(&rules["policies"]) {
        causes.push(Cause::required(&*at, "must specify at least one Policy"));
    }
    for (at, policy) in indexed(&rules["policies"], &at) {
        one_of(
            &policy["type"],
            &["Percent", "Pods"],
            &format!("{at}.type"),
            causes,
        );
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or_default();
            if number <= 0 {
                causes.push(Cause::invalid(
                    format!("{at}.{field}"),
                    &json!(number),
                    POSITIVE,
                ));
            }
        }
        let period = &policy["periodSeconds"];
        if period
            .as_i64()
            .is_some_and(|seconds| seconds > LONGEST_PERIOD)
        {
            let why = format!("must be less than or equal to {LONGEST_PERIOD}");
            causes.push(Cause::invalid(format!("{at}.periodSeconds"), period, &why));
        }
    }
    not_negative_amount(&rules["tolerance"], &format!("{path}.tolerance"), causes);
}
