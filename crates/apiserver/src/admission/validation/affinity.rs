//! Checks of where pods may be placed: node selectors, affinity, spreading over topology.

use serde_json::{Value, json};

use super::checks::{
    filled, indexed, label_selector, not_an_operator, one_of, operands, text, wrong,
};
use super::names;
use crate::failure::Cause;
use crate::values::fields::{elements, members};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks a selector of nodes.
pub(super) fn node_selector(selector: &Value, path: &str, causes: &mut Vec<Cause>) {
    let path = format!("{path}.nodeSelectorTerms");
    if !filled(&selector["nodeSelectorTerms"]) {
        let why = "must have at least one node selector term";
        causes.push(Cause::required(path, why));
        return;
    }
    for (at, term) in indexed(&selector["nodeSelectorTerms"], &path) {
        node_term(term, true, &at, causes);
    }
}

fn node_term(term: &Value, values_are_checked: bool, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.matchExpressions");
    for (at, expression) in indexed(&term["matchExpressions"], &at) {
        node_expression(expression, values_are_checked, &at, causes);
    }
    for (at, expression) in indexed(&term["matchFields"], &format!("{path}.matchFields")) {
        node_field(expression, &at, causes);
    }
}

fn node_expression(
    expression: &Value,
    values_are_checked: bool,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let count = expression["values"].as_array().map_or(0, Vec::len);
    let at = format!("{path}.values");
    match text(&expression["operator"]) {
        "Gt" | "Lt" if count != 1 => {
            let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            causes.push(Cause::required(&*at, why));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => operands(expression, path, causes),
        "Gt" | "Lt" => {}
        operator => not_an_operator(operator, path, causes),
    }
    let key = text(&expression["key"]);
    wrong(names::key(key), key, &format!("{path}.key"), causes);
    if values_are_checked {
        for (at, value) in indexed(&expression["values"], &at) {
            wrong(names::value(text(value)), text(value), &at, causes);
        }
    }
}

fn node_field(expression: &Value, path: &str, causes: &mut Vec<Cause>) {
    let count = expression["values"].as_array().map_or(0, Vec::len);
    match text(&expression["operator"]) {
        "In" | "NotIn" => {
            if count != 1 {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                causes.push(Cause::required(format!("{path}.values"), why));
            }
        }
        operator => not_an_operator(operator, path, causes),
    }
    let key = text(&expression["key"]);
    if key == "metadata.name" {
        for (at, value) in indexed(&expression["values"], &format!("{path}.values")) {
            wrong(names::subdomain(text(value)), text(value), &at, causes);
        }
    } else {
        let why = "not a valid field selector key";
        causes.push(Cause::invalid(format!("{path}.key"), &json!(key), why));
    }
}

/// Checks the affinity of a pod.
pub(super) fn check(affinity: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (node, at) = (&affinity["nodeAffinity"], format!("{path}.nodeAffinity"));
    if !node[REQUIRED].is_null() {
        node_selector(&node[REQUIRED], &format!("{at}.{REQUIRED}"), causes);
    }
    for (at, term) in indexed(&node[PREFERRED], &format!("{at}.{PREFERRED}")) {
        weight(term, &at, causes);
        node_term(
            &term["preference"],
            false,
            &format!("{at}.preference"),
            causes,
        );
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pods, at) = (&affinity[kind], format!("{path}.{kind}"));
        for (at, term) in indexed(&pods[REQUIRED], &format!("{at}.{REQUIRED}")) {
            pod_term(term, &at, causes);
        }
        for (at, term) in indexed(&pods[PREFERRED], &format!("{at}.{PREFERRED}")) {
            weight(term, &at, causes);
            pod_term(
                &term["podAffinityTerm"],
                &format!("{at}.podAffinityTerm"),
                causes,
            );
        }
    }
}

fn weight(term: &Value, path: &str, causes: &mut Vec<Cause>) {
    let weight = term["weight"].as_i64().unwrap_or_default();
    if !(1..=100).contains(&weight) {
        let why = "must be in the range 1-100";
        causes.push(Cause::invalid(
            format!("{path}.weight"),
            &json!(weight),
            why,
        ));
    }
}

fn pod_term(term: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in ["labelSelector", "namespaceSelector"] {
        label_selector(&term[field], &format!("{path}.{field}"), causes);
    }
    for namespace in elements(&term["namespaces"]) {
        let found = names::label(text(namespace));
        wrong(found, text(namespace), &format!("{path}.namespace"), causes);
    }
    label_keys(term, path, causes);
    let (key, at) = (text(&term["topologyKey"]), format!("{path}.topologyKey"));
    if key.is_empty() {
        causes.push(Cause::required(&*at, "can not be empty"));
    }
    wrong(names::key(key), key, &at, causes);
}

/// Checks the keys of labels whose values a pod's selector gets from the pod.
fn label_keys(term: &Value, path: &str, causes: &mut Vec<Cause>) {
    let selector = &term["labelSelector"];
    let list = |field: &str| -> Vec<&str> {
        let keys = elements(&term[field]);
        keys.map(text).collect()
    };
    let (same, other) = (list("matchLabelKeys"), list("mismatchLabelKeys"));
    for (field, keys) in [("matchLabelKeys", &same), ("mismatchLabelKeys", &other)] {
        let at = format!("{path}.{field}");
        if keys.is_empty() {
            continue;
        }
        if selector.is_null() {
            let why = "must not be specified when labelSelector is not set";
            causes.push(Cause::forbidden(at, why));
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            wrong(names::key(key), key, &format!("{at}[{index}]"), causes);
        }
    }
    let mut known: Vec<&str> = members(&selector["matchLabels"])
        .map(|(key, _)| key.as_str())
        .collect();
    for expression in elements(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        // the last of several places counts
        if let Some(index) = same.iter().rposition(|one| *one == key)
            && known.contains(&key)
        {
            let why = "exists in both matchLabelKeys and labelSelector";
            causes.push(Cause::invalid(format!("{path}[{index}]"), &json!(key), why));
        }
        known.push(key);
    }
    for (index, key) in same.iter().enumerate() {
        if other.contains(key) {
            let why = "exists in both matchLabelKeys and mismatchLabelKeys";
            let at = format!("{path}.matchLabelKeys[{index}]");
            causes.push(Cause::invalid(at, &json!(key), why));
        }
    }
}

/// Checks how pods are spread over topology.
pub(super) fn spread(constraints: &Value, path: &str, causes: &mut Vec<Cause>) {
    const POSITIVE: &str = "must be greater than zero";
    let list: &[Value] = constraints
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (index, (at, constraint)) in indexed(constraints, path).enumerate() {
        let skew = constraint["maxSkew"].as_i64().unwrap_or_default();
        if skew <= 0 {
            causes.push(Cause::invalid(
                format!("{at}.maxSkew"),
                &json!(skew),
                POSITIVE,
            ));
        }
        if !filled(&constraint["topologyKey"]) {
            causes.push(Cause::required(
                format!("{at}.topologyKey"),
                "can not be empty",
            ));
        }
        let action = &constraint["whenUnsatisfiable"];
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        one_of(action, &actions, &format!("{at}.whenUnsatisfiable"), causes);
        let same = |other: &&Value| {
            ["topologyKey", "whenUnsatisfiable"]
                .iter()
                .all(|field| text(&other[*field]) == text(&constraint[*field]))
        };
        if list[index + 1..].iter().any(|other| same(&other)) {
            let pair = format!("{{{}, {}}}", text(&constraint["topologyKey"]), text(action));
            let at = format!("{at}.{{topologyKey, whenUnsatisfiable}}");
            causes.push(Cause::duplicate(at, &json!(pair)));
        }
        if let Some(least) = constraint["minDomains"].as_i64() {
            let at = format!("{at}.minDomains");
            if least <= 0 {
                causes.push(Cause::invalid(&*at, &json!(least), POSITIVE));
            }
            if action != "DoNotSchedule" {
                let why = format!(
                    "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                    text(action)
                );
                causes.push(Cause::invalid(at, &json!(least), &why));
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if !constraint[field].is_null() {
                one_of(
                    &constraint[field],
                    &["Honor", "Ignore"],
                    &format!("{at}.{field}"),
                    causes,
                );
            }
        }
        label_keys(constraint, &at, causes);
        label_selector(
            &constraint["labelSelector"],
            &format!("{at}.labelSelector"),
            causes,
        );
    }
}
