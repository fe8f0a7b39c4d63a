//! Checks of volumes, claims, and what drivers of volumes tell of themselves.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::affinity::node_selector;
use super::checks::{
    filled, indexed, label_selector, not_negative, not_negative_amount, one_of, optional_name,
    text, wrong,
};
use super::{claims, names, volumes};
use crate::failure::Cause;
use crate::values::fields::{elements, members};
use crate::values::quantity;

/// Shortest and longest time for which a token may be asked, in seconds.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);

/// Checks a volume.
pub(super) fn volume(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if !filled(&spec["accessModes"]) {
        causes.push(Cause::required("spec.accessModes", ""));
    }
    claims::access_modes(spec, "spec", causes);
    capacity(&spec["capacity"], causes);
    let policy = &spec["persistentVolumeReclaimPolicy"];
    let at = "spec.persistentVolumeReclaimPolicy";
    if filled(policy) {
        one_of(policy, &["Delete", "Recycle", "Retain"], at, causes);
    }
    let affinity = &spec["nodeAffinity"];
    if affinity["required"].is_object() {
        let at = "spec.nodeAffinity.required";
        node_selector(&affinity["required"], at, causes);
    } else if !affinity.is_null() {
        let why = "must specify required node constraints";
        causes.push(Cause::required("spec.nodeAffinity.required", why));
    }
    volumes::source_of_volume(spec, text(&object["metadata"]["name"]), causes);
    if spec["hostPath"]["path"] == "/" && policy == "Recycle" {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        causes.push(Cause::forbidden(at, why));
    }
    optional_name(
        &spec["storageClassName"],
        names::subdomain,
        "spec.storageClassName",
        causes,
    );
    if !spec["volumeMode"].is_null() {
        one_of(
            &spec["volumeMode"],
            &claims::VOLUME_MODES,
            "spec.volumeMode",
            causes,
        );
    }
    let class = &spec["volumeAttributesClassName"];
    if class.is_null() {
        return;
    }
    if filled(class) {
        wrong(
            names::subdomain(text(class)),
            text(class),
            "spec.volumeAttributesClassName",
            causes,
        );
    } else {
        let why = "an empty string is disallowed";
        causes.push(Cause::required("spec.volumeAttributesClassName", why));
    }
    if spec["csi"].is_null() {
        let why = "has to be specified when using volumeAttributesClassName";
        causes.push(Cause::required("spec.csi", why));
    }
}

fn capacity(capacity: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.capacity";
    let empty = Map::new();
    let amounts = capacity.as_object().unwrap_or(&empty);
    if amounts.is_empty() {
        causes.push(Cause::required(path, ""));
    }
    if !amounts.contains_key("storage") || amounts.len() > 1 {
        let given = if amounts.is_empty() {
            &Value::Null
        } else {
            capacity
        };
        causes.push(Cause::unsupported(path, given, &["storage".to_owned()]));
    }
    for (resource, amount) in amounts {
        let (at, parsed) = (format!("{path}[{resource}]"), quantity::amount(amount));
        if parsed.units() < 0 {
            let why = "must be a valid resource quantity";
            causes.push(Cause::invalid(&*at, &json!(parsed.units()), why));
        }
        if parsed.is_zero() || parsed.is_negative() {
            causes.push(Cause::invalid(at, amount, "must be greater than zero"));
        }
    }
}

/// Checks a class of storage.
pub(super) fn class(object: &Value, causes: &mut Vec<Cause>) {
    provisioner(&object["provisioner"], "provisioner", causes);
    parameters(&object["parameters"], causes);
    if filled(&object["reclaimPolicy"]) {
        one_of(
            &object["reclaimPolicy"],
            &["Delete", "Retain"],
            "reclaimPolicy",
            causes,
        );
    }
    let modes = ["Immediate", "WaitForFirstConsumer"];
    one_of(
        &object["volumeBindingMode"],
        &modes,
        "volumeBindingMode",
        causes,
    );
    // a real server compares each with as many empty ones, too
    let count = object["allowedTopologies"].as_array().map_or(0, Vec::len);
    let mut seen: Vec<Map<String, Value>> = vec![Map::new(); count];
    for (at, term) in indexed(&object["allowedTopologies"], "allowedTopologies") {
        let at = format!("{at}.matchLabelExpressions");
        let mut values = Map::new();
        for (at, expression) in indexed(&term["matchLabelExpressions"], &at) {
            let found = topology(expression, &at, causes);
            let key = text(&expression["key"]);
            if values.contains_key(key) {
                causes.push(Cause::duplicate(format!("{at}.key"), &json!(key)));
            }
            values.insert(key.to_owned(), found);
        }
        for _ in seen.iter().filter(|earlier| **earlier == values) {
            causes.push(Cause::duplicate(&*at, &json!("")));
        }
        seen.push(values);
    }
}

/// Checks an expression about topology, and returns its values in order.
fn topology(expression: &Value, path: &str, causes: &mut Vec<Cause>) -> Value {
    let at = format!("{path}.values");
    if !filled(&expression["values"]) {
        causes.push(Cause::required(&*at, ""));
    }
    let mut seen = std::collections::BTreeSet::new();
    for (at, value) in indexed(&expression["values"], &at) {
        if !seen.insert(text(value)) {
            causes.push(Cause::duplicate(at, value));
        }
    }
    let key = text(&expression["key"]);
    wrong(names::key(key), key, &format!("{path}.key"), causes);
    json!(seen)
}

fn provisioner(value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let given = text(value).to_lowercase();
    if given.is_empty() {
        causes.push(Cause::required(path, ""));
    } else {
        wrong(names::key(&given), &given, path, causes);
    }
}

fn parameters(value: &Value, causes: &mut Vec<Cause>) {
    for (key, _) in members(value) {
        if key.is_empty() {
            causes.push(Cause::invalid(
                "parameters",
                &json!(""),
                "field can not be empty.",
            ));
        }
    }
}

/// Checks a class of attributes of volumes.
pub(super) fn attributes_class(object: &Value, causes: &mut Vec<Cause>) {
    provisioner(&object["driverName"], "driverName", causes);
    parameters(&object["parameters"], causes);
    if !filled(&object["parameters"]) {
        let why = "must contain at least one key/value pair";
        causes.push(Cause::required("parameters", why));
    }
}

/// Checks the specification of an attachment.
pub(super) fn attachment(spec: &Value, causes: &mut Vec<Cause>) {
    if !filled(&spec["attacher"]) {
        causes.push(Cause::required("spec.attacher", ""));
    }
    let (source, path) = (&spec["source"], "spec.source");
    let (volume, inline) = (&source["persistentVolumeName"], &source["inlineVolumeSpec"]);
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (volume.is_null(), inline.is_null()) {
        (true, true) => causes.push(Cause::required(path, why)),
        (false, false) => causes.push(Cause::forbidden(path, why)),
        (false, true) if !filled(volume) => {
            let why = "must specify non empty persistentVolumeName";
            causes.push(Cause::required("spec.source.persistentVolumeName", why));
        }
        _ => {}
    }
    let node = text(&spec["nodeName"]);
    wrong(names::subdomain(node), node, "spec.nodeName", causes);
}

/// Checks the names in a new attachment.
pub(super) fn new_attachment(spec: &Value, causes: &mut Vec<Cause>) {
    let volume = &spec["source"]["persistentVolumeName"];
    volumes::driver(&spec["attacher"], "spec.attacher", causes);
    if !volume.is_null() {
        let at = "spec.source.persistentVolumeName";
        wrong(names::subdomain(text(volume)), text(volume), at, causes);
    }
}

/// Checks the specification of what drivers a node has.
pub(super) fn node_drivers(spec: &Value, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, driver) in indexed(&spec["drivers"], "spec.drivers") {
        let at_name = format!("{at}.name");
        volumes::driver(&driver["name"], &at_name, causes);
        let (id, at_id) = (text(&driver["nodeID"]), format!("{at}.nodeID"));
        if id.is_empty() {
            causes.push(Cause::required(at_id, ""));
        } else if id.len() > 256 {
            causes.push(Cause::invalid(
                at_id,
                &json!(id),
                "must be 256 characters or less",
            ));
        }
        let at_count = format!("{at}.allocatable.count");
        not_negative(&driver["allocatable"]["count"], &at_count, causes);
        if !seen.insert(text(&driver["name"])) {
            causes.push(Cause::duplicate(at_name, &json!(text(&driver["name"]))));
        }
        let mut keys = HashSet::new();
        for key in elements(&driver["topologyKeys"]) {
            if !filled(key) {
                causes.push(Cause::required(&*at, ""));
            }
            if !keys.insert(text(key)) {
                causes.push(Cause::duplicate(&*at, key));
            }
            wrong(names::key(text(key)), text(key), &at, causes);
        }
    }
}

/// Checks the specification of a driver.
pub(super) fn driver(spec: &Value, causes: &mut Vec<Cause>) {
    if !spec["fsGroupPolicy"].is_null() {
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        one_of(
            &spec["fsGroupPolicy"],
            &policies,
            "spec.fsGroupPolicy",
            causes,
        );
    }
    let mut seen = HashSet::new();
    for (at, request) in indexed(&spec["tokenRequests"], "spec.tokenRequests") {
        let audience = text(&request["audience"]);
        if !seen.insert(audience) {
            causes.push(Cause::duplicate(format!("{at}.audience"), &json!(audience)));
            continue;
        }
        let (seconds, at) = (
            &request["expirationSeconds"],
            format!("{at}.expirationSeconds"),
        );
        let (shortest, longest) = TOKEN_SECONDS;
        match seconds.as_i64() {
            Some(number) if number < shortest => {
                let why = "may not specify a duration less than 10 minutes";
                causes.push(Cause::invalid(at, seconds, why));
            }
            Some(number) if number > longest => {
                let why = "may not specify a duration larger than 2^32 seconds";
                causes.push(Cause::invalid(at, seconds, why));
            }
            _ => {}
        }
    }
    let at = "spec.volumeLifecycleModes";
    for mode in elements(&spec["volumeLifecycleModes"]) {
        one_of(mode, &["Persistent", "Ephemeral"], at, causes);
    }
    let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
    if period.as_i64().is_some_and(|seconds| seconds < 10) {
        let why = "must be greater than or equal to 10 seconds";
        causes.push(Cause::invalid(
            "spec.nodeAllocatableUpdatePeriodSeconds",
            period,
            why,
        ));
    }
    let tokens = &spec["serviceAccountTokenInSecrets"];
    if !tokens.is_null() && !filled(&spec["tokenRequests"]) {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        causes.push(Cause::invalid(
            "spec.serviceAccountTokenInSecrets",
            tokens,
            why,
        ));
    }
}

/// Checks what room a storage has.
pub(super) fn room(object: &Value, causes: &mut Vec<Cause>) {
    label_selector(&object["nodeTopology"], "nodeTopology", causes);
    let class = text(&object["storageClassName"]);
    wrong(names::subdomain(class), class, "storageClassName", causes);
    not_negative_amount(&object["capacity"], "capacity", causes);
}
