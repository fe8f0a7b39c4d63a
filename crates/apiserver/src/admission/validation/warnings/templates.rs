//! Warnings about pods and templates of pods (Kubernetes: `pkg/api/pod/warnings.go`).
//!
//! One is missing: paths of projected volumes that overlap.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::super::checks::{containers, indexed, text};
use super::super::names;
use super::{Warnings, old_label, storage};
use crate::values::annotations::{SECCOMP_OF_CONTAINER, SECCOMP_OF_POD};
use crate::values::app_armor;
use crate::values::fields::members;

/// Annotations that have no effect any more.
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
/// What the annotations with seccomp profiles are.
const OLD_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
/// Types of volumes that are deprecated.
const OLD_VOLUMES: [(&str, &str); 9] = [
    (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "gitRepo",
        "deprecated in v1.11, and disabled by default in v1.33+",
    ),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
/// Resources whose amounts must be whole bytes.
const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];
const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// Warns about a pod, or about a template of one. `prefix` is the path of it, and ends with a dot unless it is the object itself.
pub(super) fn check(template: &Value, prefix: &str, warnings: &mut Warnings) {
    let spec = &template["spec"];
    warnings.placement(spec, &format!("{prefix}spec"));
    for (name, why) in OLD_ANNOTATIONS {
        if !template["metadata"]["annotations"][name].is_null() {
            warnings.warn(&format!("{prefix}metadata.annotations[{name}]"), why);
        }
    }
    let path = format!("{prefix}spec");
    for (at, volume) in indexed(&spec["volumes"], &format!("{path}.volumes")) {
        for (field, why) in OLD_VOLUMES {
            if !volume[field].is_null() {
                warnings.warn(&format!("{at}.{field}"), why);
            }
        }
        let claim = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
        let at = format!("{at}.ephemeral.volumeClaimTemplate.spec");
        storage::claim(claim, &at, warnings);
    }
    warnings.duplicates(&spec["hostAliases"], &format!("{path}.hostAliases"), "ip");
    let secrets = format!("{path}.imagePullSecrets");
    warnings.duplicates(&spec["imagePullSecrets"], &secrets, "name");
    for (at, secret) in indexed(&spec["imagePullSecrets"], &secrets) {
        if text(&secret["name"]).is_empty() {
            warnings.warn(&format!("{at}.name"), "invalid empty name \"\"");
        }
    }
    for name in BYTES {
        let at = format!("{path}.overhead[{name}]");
        warnings.fraction(&spec["overhead"][name], &at);
    }
    let containers = containers(spec, &path);
    let profiles = |name: &str, context: &Value| {
        let is_there = !template["metadata"]["annotations"][name].is_null();
        is_there && context["seccompProfile"].is_null()
    };
    if profiles(SECCOMP_OF_POD, &spec["securityContext"]) {
        let at = format!("{prefix}metadata.annotations[{SECCOMP_OF_POD}]");
        warnings.warn(&at, OLD_SECCOMP);
    }
    for (at, container) in &containers {
        let seccomp = format!("{SECCOMP_OF_CONTAINER}{}", text(&container["name"]));
        if profiles(&seccomp, &container["securityContext"]) {
            let at = format!("{prefix}metadata.annotations[{seccomp}]");
            warnings.warn(&at, OLD_SECCOMP);
        }
        // those of pods are told when they become fields
        if !prefix.is_empty() {
            let given = app_armor::annotation(&template["metadata"]["annotations"], container);
            let own = &container["securityContext"]["appArmorProfile"];
            let of_pod = &spec["securityContext"]["appArmorProfile"];
            let meant = app_armor::profile(text(given));
            let adds = meant.is_null() || *of_pod != meant;
            if !given.is_null() && own.is_null() && adds {
                warnings.0.push(app_armor::warning(prefix, container));
            }
        }
        for name in BYTES {
            for kind in ["limits", "requests"] {
                let at = format!("{at}.resources.{kind}[{name}]");
                warnings.fraction(&container["resources"][kind][name], &at);
            }
        }
        warnings.hidden_variables(&container["env"], &format!("{at}.env"));
    }
    warnings.ports(&containers);
    if spec["terminationGracePeriodSeconds"].as_i64() < Some(0) {
        let why = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.warn(&format!("{path}.terminationGracePeriodSeconds"), why);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        warnings.affinity(&spec["affinity"][kind], &format!("{path}.affinity.{kind}"));
    }
    let at = format!("{path}.dnsConfig.nameservers");
    for (at, server) in indexed(&spec["dnsConfig"]["nameservers"], &at) {
        warnings.address(server, &at);
    }
    for (at, alias) in indexed(&spec["hostAliases"], &format!("{path}.hostAliases")) {
        warnings.address(&alias["ip"], &format!("{at}.ip"));
    }
}

impl Warnings {
    /// Warns about old labels of nodes, and about topology spreading without a selector.
    fn placement(&mut self, spec: &Value, path: &str) {
        for (name, _) in members(&spec["nodeSelector"]) {
            if let Some(why) = old_label(name) {
                self.warn(&format!("{path}.nodeSelector[{name}]"), why);
            }
        }
        let affinity = &spec["affinity"]["nodeAffinity"];
        let path_of_affinity = format!("{path}.affinity.nodeAffinity");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = format!("{path_of_affinity}.{required}.nodeSelectorTerms");
        for (at, term) in indexed(&affinity[required]["nodeSelectorTerms"], &terms) {
            self.expressions(term, &at);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let terms = format!("{path_of_affinity}.{preferred}");
        for (at, term) in indexed(&affinity[preferred], &terms) {
            let at = format!("{at}.preference");
            let expressions = indexed(
                &term["preference"]["matchExpressions"],
                &format!("{at}.matchExpressions"),
            )
            .collect::<Vec<_>>();
            for (at, expression) in expressions {
                self.expression(expression, &at);
                for (at, value) in indexed(&expression["values"], &format!("{at}.values")) {
                    for why in names::value(text(value)) {
                        self.warn(&at, &format!("{} is invalid, {why}", text(value)));
                    }
                }
            }
        }
        let at = format!("{path}.topologySpreadConstraints");
        for (at, constraint) in indexed(&spec["topologySpreadConstraints"], &at) {
            let key = text(&constraint["topologyKey"]);
            if let Some(why) = old_label(key) {
                self.warn(&format!("{at}.topologyKey"), &format!("{key} is {why}"));
            }
            if constraint["labelSelector"].is_null() {
                self.warn(&format!("{at}.labelSelector"), NO_SELECTOR);
            }
        }
    }

    /// Warns about items with the same value in a field.
    fn duplicates(&mut self, list: &Value, path: &str, field: &str) {
        let mut seen = HashSet::new();
        for (at, item) in indexed(list, path) {
            let name = text(&item[field]);
            if !seen.insert(name) {
                self.warn(
                    &format!("{at}.{field}"),
                    &format!("duplicate {field} {name:?}"),
                );
            }
        }
    }

    /// Warns about variables that hide an earlier one of the same name without referring to it.
    fn hidden_variables(&mut self, variables: &Value, path: &str) {
        let mut seen = HashSet::new();
        for (at, variable) in indexed(variables, path) {
            let name = text(&variable["name"]);
            if seen.insert(name) {
                continue;
            }
            let (value, reference) = (text(&variable["value"]), format!("$({name})"));
            let refers_to_earlier = value.contains(&reference) && value != reference;
            if !variable["valueFrom"].is_null() || !refers_to_earlier {
                let why = format!(
                    "hides previous definition of {name:?}, which may be dropped when using apply"
                );
                self.warn(&at, &why);
            }
        }
    }

    /// Warns about ports that may be confused with each other.
    fn ports(&mut self, containers: &[(String, &Value)]) {
        let all: Vec<(String, &Value)> = containers
            .iter()
            .flat_map(|(at, container)| {
                indexed(&container["ports"], &format!("{at}.ports")).collect::<Vec<_>>()
            })
            .collect();
        let number = |port: &Value, field: &str| port[field].as_i64().unwrap_or_default();
        for (index, (at, port)) in all.iter().enumerate() {
            if !text(&port["hostIP"]).is_empty() && number(port, "hostPort") == 0 {
                let why = format!(
                    "hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                    text(&port["name"]),
                    number(port, "containerPort"),
                    text(&port["protocol"]),
                    text(&port["hostIP"])
                );
                self.warn(at, &why);
            }
            let host = |port: &Value| (text(&port["hostIP"]).to_owned(), number(port, "hostPort"));
            let (address, on_host) = host(port);
            let same = all[..index].iter().filter(|(_, other)| {
                other["containerPort"] == port["containerPort"]
                    && other["protocol"] == port["protocol"]
            });
            for (other_at, other) in same {
                let (other_address, other_on_host) = host(other);
                let how = if address == other_address && on_host == other_on_host {
                    "duplicate"
                } else if on_host == 0 || other_on_host == 0 {
                    "overlapping"
                } else if on_host == other_on_host && address.is_empty() != other_address.is_empty()
                {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                self.warn(at, &format!("{how} port definition with {other_at}"));
            }
        }
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        for (at, port) in &all {
            let name = text(&port["name"]);
            if name.is_empty() {
                continue;
            }
            if let Some(first) = names.get(name) {
                let why = format!(
                    "duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                );
                self.warn(at, &why);
            } else {
                names.insert(name, at);
            }
        }
    }

    /// Warns about terms that select no pod.
    fn affinity(&mut self, affinity: &Value, path: &str) {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (at, term) in indexed(&affinity[required], &format!("{path}.{required}")) {
            if term["labelSelector"].is_null() {
                self.warn(&format!("{at}.labelSelector"), NO_SELECTOR);
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (at, term) in indexed(&affinity[preferred], &format!("{path}.{preferred}")) {
            if term["podAffinityTerm"]["labelSelector"].is_null() {
                let at = format!("{at}.podAffinityTerm.labelSelector");
                self.warn(&at, NO_SELECTOR);
            }
        }
    }
}
