//! Checks of what surrounds the containers of a pod: network, names, users, operating system.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::checks::{filled, indexed, one_of, text, wrong};
use super::super::{addresses, names};
use crate::failure::Cause;
use crate::values::fields::elements;

/// Checks the ports of a pod in the network of its node; `name` is empty in a template.
pub(super) fn host_network(spec: &Value, name: &str, path: &str, causes: &mut Vec<Cause>) {
    if spec["hostNetwork"] != true {
        return;
    }
    for (at, container) in indexed(&spec["containers"], &format!("{path}.containers")) {
        for (at, port) in indexed(&container["ports"], &format!("{at}.ports")) {
            let number = |field: &str| port[field].as_i64().unwrap_or_default();
            let (host, own) = (number("hostPort"), number("containerPort"));
            if (!name.is_empty() || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                causes.push(Cause::invalid(format!("{at}.hostPort"), &json!(host), why));
            }
        }
    }
}

/// Checks how a pod finds names.
pub(super) fn dns(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let config = &spec["dnsConfig"];
    if spec["dnsPolicy"] == "None" {
        if config.is_null() {
            let why = "must provide `dnsConfig` when `dnsPolicy` is None";
            causes.push(Cause::required(path, why));
            return;
        }
        if !filled(&config["nameservers"]) {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            causes.push(Cause::required(format!("{path}.nameservers"), why));
            return;
        }
    }
    for (field, most, called) in [
        ("nameservers", 3, "nameservers"),
        ("searches", 32, "search paths"),
    ] {
        if config[field]
            .as_array()
            .is_some_and(|list| list.len() > most)
        {
            let why = format!("must not have more than {most} {called}");
            causes.push(Cause::invalid(
                format!("{path}.{field}"),
                &config[field],
                &why,
            ));
        }
    }
    for (at, server) in indexed(&config["nameservers"], &format!("{path}.nameservers")) {
        addresses::legacy(text(server), &at, causes);
    }
    let searches = elements(&config["searches"]).map(text);
    if searches.collect::<Vec<_>>().join(" ").len() > 2048 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        causes.push(Cause::invalid(
            format!("{path}.searches"),
            &config["searches"],
            why,
        ));
    }
    for (at, search) in indexed(&config["searches"], &format!("{path}.searches")) {
        let given = text(search);
        let given = given
            .strip_suffix('.')
            .filter(|rest| !rest.is_empty())
            .unwrap_or(given);
        if given != "." {
            wrong(names::subdomain_with_underscores(given), given, &at, causes);
        }
    }
    for (at, option) in indexed(&config["options"], &format!("{path}.options")) {
        if !filled(&option["name"]) {
            causes.push(Cause::required(at, "must not be empty"));
        }
    }
}

/// Checks what a pod waits for.
pub(super) fn gates(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (at, gate) in indexed(&spec["readinessGates"], &format!("{path}.readinessGates")) {
        let given = text(&gate["conditionType"]);
        wrong(
            names::key(given),
            given,
            &format!("{at}.conditionType"),
            causes,
        );
    }
    let mut seen = HashSet::new();
    for (at, gate) in indexed(&spec["schedulingGates"], &format!("{path}.schedulingGates")) {
        let given = text(&gate["name"]);
        wrong(names::key(given), given, &at, causes);
        if !seen.insert(given) {
            causes.push(Cause::duplicate(at, &json!(given)));
        }
    }
}

/// Checks a pod whose users are others than the node's.
pub(super) fn host_users(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    if spec["hostUsers"] != false {
        return;
    }
    let why = "when `hostUsers` is false";
    for (field, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec[field] == true {
            causes.push(Cause::forbidden(format!("{path}.{shown}"), why));
        }
    }
    for list in ["initContainers", "containers"] {
        for (at, container) in indexed(&spec[list], &format!("{path}.{list}")) {
            if filled(&container["volumeDevices"]) {
                causes.push(Cause::forbidden(format!("{at}.volumeDevices"), why));
            }
        }
    }
}

/// Checks the name that a pod gives itself.
pub(super) fn host_name(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(name) = spec["hostnameOverride"].as_str() else {
        return;
    };
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec[field] == true {
            let why = format!("may not be specified when {field} is true");
            causes.push(Cause::forbidden(path, &why));
        }
    }
    if name.len() > 64 {
        causes.push(Cause::too_long(path, 64));
    }
    wrong(names::subdomain(name), name, path, causes);
}

/// Checks the operating system that a pod is for.
pub(super) fn system(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let os = &spec["os"];
    if os.is_null() {
        return;
    }
    match text(&os["name"]) {
        "" => causes.push(Cause::required(format!("{path}.os.name"), "")),
        "windows" => {}
        "linux" => {
            let why = "windows options cannot be set for a linux pod";
            let mut of = |context: &Value, at: String| {
                if !context["securityContext"]["windowsOptions"].is_null() {
                    causes.push(Cause::forbidden(
                        format!("{at}.securityContext.windowsOptions"),
                        why,
                    ));
                }
            };
            of(spec, path.to_owned());
            for list in ["initContainers", "containers"] {
                for (at, container) in indexed(&spec[list], &format!("{path}.{list}")) {
                    of(container, at);
                }
            }
        }
        _ => one_of(
            &os["name"],
            &["linux", "windows"],
            &format!("{path}.os"),
            causes,
        ),
    }
}
