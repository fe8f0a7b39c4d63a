//! Checks of the kinds of dynamic resource allocation, but for the expressions in CEL that select devices.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::checks::{filled, indexed, name, one_of, text, wrong};
use super::{affinity, names, volumes};
use crate::failure::Cause;
use crate::values::fields::{elements, members};

/// Most requests, constraints, configurations and selectors.
const MOST: usize = 32;
/// Most alternatives of a request.
const MOST_ALTERNATIVES: usize = 8;
/// Most devices of a slice, and most where they have taints or consume counters.
const MOST_DEVICES: usize = 128;
const MOST_TAINTED: usize = 64;
/// Longest name of an attribute, and longest value, in bytes.
const LONGEST_NAME: usize = 32;
const LONGEST_VALUE: usize = 64;
const REFERENCE: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
/// The form of a version, as semver.org has it.
static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let number = "(0|[1-9][0-9]*)";
    let part = "(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)";
    let build = r"[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*";
    let form = format!(r"^{number}\.{number}\.{number}(-{part}(\.{part})*)?(\+{build})?$");
    Regex::new(&form).ok()
});
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Refuses more items than allowed; returns whether there are.
fn too_many(list: &Value, most: usize, path: &str, causes: &mut Vec<Cause>) -> bool {
    let count = list.as_array().map_or(0, Vec::len);
    if count > most {
        causes.push(Cause::too_many(path, count, most));
    }
    count > most
}

/// Refuses items whose key was there before.
fn unique(list: &Value, key: impl Fn(&Value) -> String, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, item) in indexed(list, path) {
        let key = key(item);
        if !seen.insert(key.clone()) {
            causes.push(Cause::duplicate(at, &json!(key)));
        }
    }
}

fn own_name(item: &Value) -> String {
    text(&item["name"]).to_owned()
}

fn label(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    wrong(names::label(text(value)), text(value), path, causes);
}

/// Checks the specification of a claim at a path.
pub(super) fn claim(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (devices, path) = (&spec["devices"], format!("{path}.devices"));
    let known: BTreeMap<&str, BTreeSet<&str>> = elements(&devices["requests"])
        .map(|request| {
            let parts = elements(&request["firstAvailable"]);
            let parts = parts.map(|part| text(&part["name"]));
            (text(&request["name"]), parts.collect())
        })
        .collect();
    let (requests, at) = (&devices["requests"], format!("{path}.requests"));
    if !too_many(requests, MOST, &at, causes) {
        for (at, request) in indexed(requests, &at) {
            check_request(request, &at, causes);
        }
        unique(requests, own_name, &at, causes);
    }
    let (constraints, at) = (&devices["constraints"], format!("{path}.constraints"));
    if !too_many(constraints, MOST, &at, causes) {
        for (at, constraint) in indexed(constraints, &at) {
            references(&constraint["requests"], &known, &at, causes);
            let (attribute, at_attribute) = (
                &constraint["matchAttribute"],
                format!("{at}.matchAttribute"),
            );
            if attribute.is_null() {
                causes.push(Cause::required(at_attribute, ""));
            } else {
                let given = text(attribute);
                qualified(given, &at_attribute, causes);
                if !given.contains('/') {
                    let why =
                        "a fully qualified name must be a domain and a name separated by a slash";
                    causes.push(Cause::invalid(at_attribute, attribute, why));
                }
            }
        }
    }
    let (config, at) = (&devices["config"], format!("{path}.config"));
    if !too_many(config, MOST, &at, causes) {
        for (at, config) in indexed(config, &at) {
            references(&config["requests"], &known, &at, causes);
            configuration(config, &at, causes);
        }
    }
}

/// Refuses to administer devices from a namespace that is not for that; only the first request is told, as if it were in a claim.
pub(super) fn administration(claim: &Value, namespace: &Value) -> Option<Cause> {
    const LABEL: &str = "resource.kubernetes.io/admin-access";
    if namespace["metadata"]["labels"][LABEL] == "true" {
        return None;
    }
    let requests = &claim["devices"]["requests"];
    let (at, _) = indexed(requests, "spec.devices.requests")
        .find(|(_, request)| request["exactly"]["adminAccess"] == true)?;
    let why = format!(
        "admin access to devices requires the `{LABEL}: true` label on the containing namespace"
    );
    Some(Cause::forbidden(format!("{at}.adminAccess"), &why))
}

fn references(
    list: &Value,
    known: &BTreeMap<&str, BTreeSet<&str>>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let path = format!("{path}.requests");
    if too_many(list, MOST, &path, causes) {
        return;
    }
    for (at, reference) in indexed(list, &path) {
        let parts: Vec<&str> = text(reference).split('/').collect();
        if parts.len() <= 2 {
            for part in &parts {
                wrong(names::label(part), part, &at, causes);
            }
        }
        let found = known
            .get(parts[0])
            .is_some_and(|inner| match parts.as_slice() {
                [_] => true,
                [_, part] => inner.contains(part),
                _ => false,
            });
        if !found {
            causes.push(Cause::invalid(at, reference, REFERENCE));
        }
    }
    unique(list, |item| text(item).to_owned(), &path, causes);
}

fn check_request(request: &Value, path: &str, causes: &mut Vec<Cause>) {
    label(&request["name"], &format!("{path}.name"), causes);
    let (parts, exactly) = (&request["firstAvailable"], &request["exactly"]);
    match (filled(parts), !exactly.is_null()) {
        (false, false) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required";
            causes.push(Cause::required(path, why));
        }
        (true, true) => {
            let why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            causes.push(Cause::invalid(path, &Value::Null, why));
        }
        (false, true) => exact(exactly, &format!("{path}.exactly"), causes),
        (true, false) => {
            let at = format!("{path}.firstAvailable");
            if too_many(parts, MOST_ALTERNATIVES, &at, causes) {
                return;
            }
            for (at, part) in indexed(parts, &at) {
                label(&part["name"], &format!("{at}.name"), causes);
                exact(part, &at, causes);
            }
            unique(parts, own_name, &at, causes);
        }
    }
}

fn exact(request: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = format!("{path}.deviceClassName");
    name(&request["deviceClassName"], names::subdomain, &at, causes);
    selectors(&request["selectors"], &format!("{path}.selectors"), causes);
    let (mode, count) = (&request["allocationMode"], &request["count"]);
    let number = count.as_i64().unwrap_or_default();
    let at = format!("{path}.count");
    match text(mode) {
        "All" if number != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            causes.push(Cause::invalid(at, count, why));
        }
        "ExactCount" if number <= 0 => {
            causes.push(Cause::invalid(
                at,
                &json!(number),
                "must be greater than zero",
            ));
        }
        "All" | "ExactCount" => {}
        _ => one_of(
            mode,
            &["All", "ExactCount"],
            &format!("{path}.allocationMode"),
            causes,
        ),
    }
    for (at, toleration) in indexed(&request["tolerations"], &format!("{path}.tolerations")) {
        check_toleration(toleration, &at, causes);
    }
}

fn selectors(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    if too_many(list, MOST, path, causes) {
        return;
    }
    for (at, selector) in indexed(list, path) {
        if selector["cel"].is_null() {
            causes.push(Cause::required(format!("{at}.cel"), ""));
        }
    }
}

fn check_toleration(toleration: &Value, path: &str, causes: &mut Vec<Cause>) {
    let of = |field: &str| text(&toleration[field]);
    if !of("key").is_empty() {
        wrong(
            names::key(of("key")),
            of("key"),
            &format!("{path}.key"),
            causes,
        );
    }
    let (value, at) = (of("value"), format!("{path}.value"));
    match of("operator") {
        "Exists" => {
            if !value.is_empty() {
                let why = "must be empty for operator `Exists`";
                causes.push(Cause::invalid(at, &json!(value), why));
            }
        }
        "Equal" => wrong(names::value(value), value, &at, causes),
        "" => causes.push(Cause::required(format!("{path}.operator"), "")),
        _ => one_of(
            &toleration["operator"],
            &["Equal", "Exists"],
            &format!("{path}.operator"),
            causes,
        ),
    }
    if filled(&toleration["effect"]) {
        one_of(
            &toleration["effect"],
            &EFFECTS,
            &format!("{path}.effect"),
            causes,
        );
    }
}

fn configuration(config: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (opaque, at) = (&config["opaque"], format!("{path}.opaque"));
    if opaque.is_null() {
        causes.push(Cause::required(at, ""));
        return;
    }
    volumes::driver(&opaque["driver"], &format!("{at}.driver"), causes);
    if opaque["parameters"].is_null() {
        causes.push(Cause::required(format!("{at}.parameters"), ""));
    }
}

/// Checks a name with an optional domain.
fn qualified(given: &str, path: &str, causes: &mut Vec<Cause>) {
    let parts: Vec<&str> = given.split('/').collect();
    match parts.as_slice() {
        [name] => identifier(name, path, causes),
        [domain, name] => {
            let mut refuse = |why: &str| causes.push(Cause::invalid(path, &json!(""), why));
            if domain.is_empty() {
                refuse("the domain must not be empty");
            }
            if name.is_empty() {
                refuse("the name must not be empty");
            }
            if !domain.is_empty() {
                volumes::driver(&json!(domain), path, causes);
            }
            if !name.is_empty() {
                identifier(name, path, causes);
            }
        }
        _ => {}
    }
}

fn identifier(given: &str, path: &str, causes: &mut Vec<Cause>) {
    const FORM: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
    if given.len() > LONGEST_NAME {
        causes.push(Cause::too_long(path, LONGEST_NAME));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = given.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !begins || !given.chars().all(good) {
        causes.push(Cause::invalid(path, &json!(given), FORM));
    }
}

/// Checks the specification of a class of devices.
pub(super) fn class(spec: &Value, causes: &mut Vec<Cause>) {
    selectors(&spec["selectors"], "spec.selectors", causes);
    if !too_many(&spec["config"], MOST, "spec.config", causes) {
        for (at, config) in indexed(&spec["config"], "spec.config") {
            configuration(config, &at, causes);
        }
    }
}

/// Checks the specification of a slice.
pub(super) fn slice(spec: &Value, causes: &mut Vec<Cause>) {
    volumes::driver(&spec["driver"], "spec.driver", causes);
    let pool = &spec["pool"];
    let (given, at) = (text(&pool["name"]), "spec.pool.name");
    if given.is_empty() {
        causes.push(Cause::required(at, ""));
    } else {
        if given.len() > 253 {
            causes.push(Cause::too_long(at, 253));
        }
        for part in given.split('/') {
            wrong(names::subdomain(part), part, at, causes);
        }
    }
    let number = |field: &str| pool[field].as_i64().unwrap_or_default();
    if number("resourceSliceCount") <= 0 {
        let given = json!(number("resourceSliceCount"));
        let why = "must be greater than zero";
        causes.push(Cause::invalid("spec.pool.resourceSliceCount", &given, why));
    }
    if number("generation") < 0 {
        let why = "must be greater than or equal to zero";
        causes.push(Cause::invalid(
            "spec.pool.generation",
            &pool["generation"],
            why,
        ));
    }
    whose(spec, causes);
    if !spec["sharedCounters"].is_null() && !spec["devices"].is_null() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        causes.push(Cause::invalid("spec", &json!(""), why));
    }
    let (devices, at) = (&spec["devices"], "spec.devices");
    let is_special =
        |device: &Value| filled(&device["taints"]) || filled(&device["consumesCounters"]);
    let most = match devices.as_array() {
        Some(list) if list.iter().any(is_special) => MOST_TAINTED,
        _ => MOST_DEVICES,
    };
    if !too_many(devices, most, at, causes) {
        for (at, device) in indexed(devices, at) {
            check_device(device, spec["perDeviceNodeSelection"] == true, &at, causes);
        }
        unique(devices, own_name, at, causes);
    }
}

/// Checks which nodes have the devices of a slice.
fn whose(spec: &Value, causes: &mut Vec<Cause>) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut set = Vec::new();
    if let Some(node) = spec["nodeName"].as_str() {
        if node.is_empty() {
            let why = "must be either unset or set to a non-empty string";
            causes.push(Cause::invalid("spec.nodeName", &json!(""), why));
        } else {
            set.push("`nodeName`");
            wrong(names::subdomain(node), node, "spec.nodeName", causes);
        }
    }
    let selector = &spec["nodeSelector"];
    if !selector.is_null() {
        set.push("`nodeSelector`");
        affinity::node_selector(selector, "spec.nodeSelector", causes);
        let terms = &selector["nodeSelectorTerms"];
        if terms.as_array().map_or(0, Vec::len) != 1 {
            let why = "must have exactly one node selector term";
            causes.push(Cause::invalid(
                "spec.nodeSelector.nodeSelectorTerms",
                terms,
                why,
            ));
        }
    }
    for (field, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        match spec[field].as_bool() {
            Some(true) => set.push(shown),
            Some(false) => {
                let why = "must be either unset or set to true";
                causes.push(Cause::invalid(format!("spec.{field}"), &json!(false), why));
            }
            None => {}
        }
    }
    match set.len() {
        0 => causes.push(Cause::required("spec", ONE)),
        1 => {}
        _ => {
            let why = format!("{ONE}, but multiple fields are set");
            let given = json!(format!("{{{}}}", set.join(", ")));
            causes.push(Cause::invalid("spec", &given, &why));
        }
    }
}

fn check_device(device: &Value, has_own_nodes: bool, path: &str, causes: &mut Vec<Cause>) {
    label(&device["name"], &format!("{path}.name"), causes);
    for (key, attribute) in members(&device["attributes"]) {
        let at = format!("{path}.attributes[{key}]");
        qualified(key, &at, causes);
        check_attribute(attribute, &at, causes);
    }
    for (key, capacity) in members(&device["capacity"]) {
        let at = format!("{path}.capacity[{key}]");
        qualified(key, &at, causes);
        if !capacity["requestPolicy"].is_null() && device["allowMultipleAllocations"] != true {
            let why = "allowMultipleAllocations must be true";
            causes.push(Cause::forbidden(format!("{at}.requestPolicy"), why));
        }
    }
    let at = format!("{path}.taints");
    for (at, taint) in indexed(&device["taints"], &at) {
        let (key, value) = (text(&taint["key"]), text(&taint["value"]));
        wrong(names::key(key), key, &format!("{at}.key"), causes);
        wrong(names::value(value), value, &format!("{at}.value"), causes);
        let at = format!("{at}.effect");
        if filled(&taint["effect"]) {
            one_of(&taint["effect"], &EFFECTS, &at, causes);
        } else {
            causes.push(Cause::required(at, ""));
        }
    }
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    let is_placed = fields.iter().any(|field| !device[*field].is_null());
    if is_placed && !has_own_nodes {
        let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        causes.push(Cause::invalid(path, &Value::Null, why));
    } else if !is_placed && has_own_nodes {
        let why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        causes.push(Cause::required(path, why));
    }
}

fn check_attribute(attribute: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in ["string", "version"] {
        if text(&attribute[field]).len() > LONGEST_VALUE {
            causes.push(Cause::too_long(format!("{path}.{field}"), LONGEST_VALUE));
        }
    }
    let why = "exactly one value must be specified";
    match attribute.as_object().map_or(0, serde_json::Map::len) {
        0 => causes.push(Cause::invalid(path, &json!(""), why)),
        1 => {}
        _ => {
            let of = |field: &str| &attribute[field];
            let written = format!(
                "{{\"IntValue\":{},\"BoolValue\":{},\"StringValue\":{},\"VersionValue\":{}}}",
                of("int"),
                of("bool"),
                of("string"),
                of("version")
            );
            causes.push(Cause::invalid(path, &Value::Null, why).with_value(&written));
        }
    }
    let version = &attribute["version"];
    let form = VERSION.as_ref();
    if version.is_string() && form.is_some_and(|form| !form.is_match(text(version))) {
        let why = "must be a string compatible with semver.org spec 2.0.0";
        causes.push(Cause::invalid(format!("{path}.version"), version, why));
    }
}
