//! Checks of single containers: variables, mounts, devices.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::checks::{filled, indexed, name, one_of, port_number, text, wrong};
use super::{fields, names, probes, resources, security, volumes};
use crate::failure::Cause;
use crate::values::fields::elements;

/// What the checks of a container need of its pod.
pub(super) struct Pod<'a> {
    /// The specification of the pod.
    pub(super) spec: &'a Value,
    /// Its volumes that are right, by name.
    pub(super) volumes: HashMap<&'a str, &'a Value>,
}

/// Checks what all sorts of containers have.
pub(super) fn common(container: &Value, pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    name(
        &container["name"],
        names::label,
        &format!("{path}.name"),
        causes,
    );
    if !filled(&container["image"]) {
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
        name(
            &variable["name"],
            names::variable,
            &format!("{at}.name"),
            causes,
        );
        if !variable["valueFrom"].is_null() {
            value_from(variable, &format!("{at}.valueFrom"), causes);
        }
    }
    variables_from(&container["envFrom"], &format!("{path}.envFrom"), causes);
    mounts(container, pod, path, causes);
    devices(container, pod, path, causes);
    one_of(
        &container["imagePullPolicy"],
        &["Always", "IfNotPresent", "Never"],
        &format!("{path}.imagePullPolicy"),
        causes,
    );
    let at = format!("{path}.resources");
    resources::check(&container["resources"], resources::name, &at, causes);
    claims(
        &container["resources"]["claims"],
        pod,
        &format!("{at}.claims"),
        causes,
    );
    resize_policy(container, pod, &format!("{path}.resizePolicy"), causes);
    let has_own_users = pod.spec["hostUsers"] == false;
    let at = format!("{path}.securityContext");
    security::of_container(&container["securityContext"], has_own_users, &at, causes);
}

/// Checks the hooks and probes of a container that runs as long as its pod.
pub(super) fn lasting(container: &Value, pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let grace = pod.spec["terminationGracePeriodSeconds"].as_i64();
    for hook in ["postStart", "preStop"] {
        let handler = &container["lifecycle"][hook];
        if !handler.is_null() {
            probes::handler(handler, grace, &format!("{path}.lifecycle.{hook}"), causes);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        probes::check(&container[probe], probe, &format!("{path}.{probe}"), causes);
    }
}

/// Refuses ports of the node that several containers want.
pub(super) fn host_ports<'a>(
    container: &'a Value,
    seen: &mut HashSet<(&'a str, &'a str, i64)>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    for (at, port) in indexed(&container["ports"], &format!("{path}.ports")) {
        let number = port["hostPort"].as_i64().unwrap_or_default();
        let (protocol, address) = (text(&port["protocol"]), text(&port["hostIP"]));
        if number != 0 && !seen.insert((protocol, address, number)) {
            let shown = json!(format!("{protocol}/{address}/{number}"));
            causes.push(Cause::duplicate(format!("{at}.hostPort"), &shown));
        }
    }
}

fn ports(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, port) in indexed(list, path) {
        let (name, at_name) = (text(&port["name"]), format!("{at}.name"));
        if !name.is_empty() {
            let found = names::port(name);
            if found.is_empty() && !seen.insert(name) {
                causes.push(Cause::duplicate(&*at_name, &json!(name)));
            }
            wrong(found, name, &at_name, causes);
        }
        if port["containerPort"].as_i64().unwrap_or_default() == 0 {
            causes.push(Cause::required(format!("{at}.containerPort"), ""));
        } else {
            port_number(
                &port["containerPort"],
                &format!("{at}.containerPort"),
                causes,
            );
        }
        if port["hostPort"].as_i64().unwrap_or_default() != 0 {
            port_number(&port["hostPort"], &format!("{at}.hostPort"), causes);
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        one_of(
            &port["protocol"],
            &protocols,
            &format!("{at}.protocol"),
            causes,
        );
    }
}

fn value_from(variable: &Value, path: &str, causes: &mut Vec<Cause>) {
    let from = &variable["valueFrom"];
    let mut count = 0;
    if !from["fieldRef"].is_null() {
        count += 1;
        fields::of_variable(&from["fieldRef"], &format!("{path}.fieldRef"), causes);
    }
    if !from["resourceFieldRef"].is_null() {
        count += 1;
        let at = format!("{path}.resourceFieldRef");
        fields::resource(&from["resourceFieldRef"], false, &at, causes);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let (reference, at) = (&from[kind], format!("{path}.{kind}"));
        if reference.is_null() {
            continue;
        }
        count += 1;
        let given = text(&reference["name"]);
        wrong(
            names::subdomain(given),
            given,
            &format!("{at}.name"),
            causes,
        );
        name(
            &reference["key"],
            names::config_key,
            &format!("{at}.key"),
            causes,
        );
    }
    let why = if count == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if filled(&variable["value"]) {
        "may not be specified when `value` is not empty"
    } else if count > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    causes.push(Cause::invalid(path, &json!(""), why));
}

fn variables_from(list: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, source) in indexed(list, path) {
        let prefix = text(&source["prefix"]);
        if !prefix.is_empty() {
            wrong(
                names::variable(prefix),
                prefix,
                &format!("{at}.prefix"),
                causes,
            );
        }
        let mut count = 0;
        for kind in ["configMapRef", "secretRef"] {
            if !source[kind].is_null() {
                count += 1;
                let at = format!("{at}.{kind}.name");
                name(&source[kind]["name"], names::prefix, &at, causes);
            }
        }
        let why = match count {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        causes.push(Cause::invalid(path, &json!(""), why));
    }
}

fn mounts(container: &Value, pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let path = format!("{path}.volumeMounts");
    let devices: Vec<&Value> = elements(&container["volumeDevices"]).collect();
    let mut places = HashSet::new();
    for (at, mount) in indexed(&container["volumeMounts"], &path) {
        let (name, at_name) = (text(&mount["name"]), format!("{at}.name"));
        if name.is_empty() {
            causes.push(Cause::required(&*at_name, ""));
        }
        if !pod.volumes.contains_key(name) {
            causes.push(Cause::not_found(&*at_name, &json!(name)));
        }
        let (place, at_place) = (text(&mount["mountPath"]), format!("{at}.mountPath"));
        if place.is_empty() {
            causes.push(Cause::required(&*at_place, ""));
        }
        let mut refuse = |why: &str| causes.push(Cause::invalid(&*at_place, &json!(place), why));
        if !places.insert(place) {
            refuse("must be unique");
        }
        if devices
            .iter()
            .any(|device| text(&device["devicePath"]) == place)
        {
            refuse("must not already exist as a path in volumeDevices");
        }
        if devices.iter().any(|device| text(&device["name"]) == name) {
            let why = "must not already exist in volumeDevices";
            causes.push(Cause::invalid(at_name, &json!(name), why));
        }
        for field in ["subPath", "subPathExpr"] {
            let given = text(&mount[field]);
            if given.is_empty() {
                continue;
            }
            if field == "subPathExpr" && filled(&mount["subPath"]) {
                let why = "subPathExpr and subPath are mutually exclusive";
                causes.push(Cause::invalid(format!("{at}.{field}"), &json!(given), why));
            }
            volumes::descending(given, &format!("{path}.{field}"), causes);
        }
        propagation(mount, container, &path, causes);
    }
}

/// Checks whose mounts are seen; what is wrong is told of the whole list.
fn propagation(mount: &Value, container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (given, at) = (
        &mount["mountPropagation"],
        format!("{path}.mountPropagation"),
    );
    if !given.is_null() {
        one_of(
            given,
            &["Bidirectional", "HostToContainer", "None"],
            &at,
            causes,
        );
        let is_privileged = container["securityContext"]["privileged"] == true;
        if given == "Bidirectional" && !is_privileged {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            causes.push(Cause::forbidden(at, why));
        }
    }
    let (recursive, at) = (
        &mount["recursiveReadOnly"],
        format!("{path}.recursiveReadOnly"),
    );
    match recursive.as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount["readOnly"] != true {
                let why = "may only be specified when readOnly is true";
                causes.push(Cause::forbidden(&*at, why));
            }
            if !given.is_null() && given != "None" {
                let why = "may only be specified when mountPropagation is None or not specified";
                causes.push(Cause::forbidden(at, why));
            }
        }
        Some(_) => one_of(
            recursive,
            &["Disabled", "Enabled", "IfPossible"],
            &at,
            causes,
        ),
    }
}

fn devices(container: &Value, pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let path = format!("{path}.volumeDevices");
    let mounts: Vec<&Value> = elements(&container["volumeMounts"]).collect();
    let (mut names_seen, mut paths_seen) = (HashSet::new(), HashSet::new());
    for (at, device) in indexed(&container["volumeDevices"], &path) {
        let (name, place) = (text(&device["name"]), text(&device["devicePath"]));
        let (at_name, at_place) = (format!("{at}.name"), format!("{at}.devicePath"));
        let mut refuse = |at: &str, value: &str, why: &str| {
            causes.push(Cause::invalid(at, &json!(value), why));
        };
        if names_seen.contains(name) {
            refuse(&at_name, name, "must be unique");
        }
        let volume = pod.volumes.get(name);
        let is_block = |volume: &&&Value| {
            !volume["persistentVolumeClaim"].is_null() || !volume["ephemeral"].is_null()
        };
        if volume.is_some_and(|volume| !is_block(&volume)) {
            let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            refuse(&at_name, name, why);
        }
        if paths_seen.contains(place) {
            refuse(&at_place, place, "must be unique");
        }
        if place.split('/').any(|part| part == "..") {
            refuse(&at_place, place, "can not contain backsteps ('..')");
        } else {
            paths_seen.insert(place);
        }
        if mounts.iter().any(|mount| text(&mount["name"]) == name) {
            refuse(&at_name, name, "must not already exist in volumeMounts");
        }
        if mounts
            .iter()
            .any(|mount| text(&mount["mountPath"]) == place)
        {
            refuse(
                &at_place,
                place,
                "must not already exist as a path in volumeMounts",
            );
        }
        if name.is_empty() {
            causes.push(Cause::required(&*at_name, ""));
        } else {
            names_seen.insert(name);
        }
        if volume.is_none() {
            causes.push(Cause::not_found(at_name, &json!(name)));
        }
        if place.is_empty() {
            causes.push(Cause::required(at_place, ""));
        }
    }
}

/// Checks which claims of a pod are used.
pub(super) fn claims(list: &Value, pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let mut known: Vec<&str> = elements(&pod.spec["resourceClaims"])
        .map(|claim| text(&claim["name"]))
        .filter(|name| !name.is_empty())
        .collect();
    known.sort_unstable();
    known.dedup();
    let mut seen: HashSet<String> = HashSet::new();
    for (at, claim) in indexed(list, path) {
        let (name, request) = (text(&claim["name"]), text(&claim["request"]));
        if name.is_empty() {
            causes.push(Cause::required(&*at, ""));
            continue;
        }
        if seen.contains(name) {
            causes.push(Cause::duplicate(&*at, &json!(name)));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                wrong(
                    names::label(request),
                    request,
                    &format!("{at}.request"),
                    causes,
                );
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                causes.push(Cause::duplicate(&*at, &json!(key)));
            } else if request.is_empty() {
                let part = format!("{name}/");
                for _ in seen.iter().filter(|other| other.starts_with(&part)) {
                    causes.push(Cause::duplicate(&*at, &json!(name)));
                }
            }
            seen.insert(key);
        }
        if !known.contains(&name) {
            let mut cause = Cause::not_found(&*at, &json!(name));
            cause
                .message
                .push_str(": must be one of the names in pod.spec.resourceClaims");
            if known.is_empty() {
                cause.message.push_str(" which is empty");
            } else {
                cause.message.push_str(": ");
                cause.message.push_str(&known.join(", "));
            }
            causes.push(cause);
        }
    }
}

fn resize_policy(container: &Value, pod: &Pod<'_>, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (at, policy) in indexed(&container["resizePolicy"], path) {
        let (resource, restart) = (&policy["resourceName"], &policy["restartPolicy"]);
        if !seen.insert(text(resource)) {
            causes.push(Cause::duplicate(at, &json!(text(resource))));
        }
        for (value, allowed) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            if filled(value) {
                one_of(value, &allowed, path, causes);
            } else {
                causes.push(Cause::required(path, ""));
            }
        }
        if pod.spec["restartPolicy"] == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            causes.push(Cause::invalid(path, &json!(text(restart)), why));
        }
    }
}
