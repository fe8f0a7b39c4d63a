//! Warnings about pods and templates that are allowed nevertheless.
//!
//! The warnings and their order are those of Kubernetes' `pkg/api/pod/warnings.go`. Some are missing: overlapping paths of volumes,
//! addresses in old forms, and AppArmor.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::checks::{indexed, text};
use crate::registry::Resource;
use crate::values::quantity;

/// Labels of nodes that have new names.
const OLD_LABELS: [(&str, &str); 8] = [
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    (
        "node-role.kubernetes.io/master",
        "use \"node-role.kubernetes.io/control-plane\" instead",
    ),
];
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
/// Annotation with the seccomp profile of a pod, and the beginning of that with a container's. They have no effect any more.
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
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

/// Returns the warnings about an object: about a pod when it is created, about a template whenever the specification that contains it
/// changes.
pub(crate) fn of(resource: &Resource, before: Option<&Value>, object: &Value) -> Vec<String> {
    let path: &[&str] = match resource.storage.as_str() {
        "pods" if before.is_none() => &[],
        "podtemplates" => &["template"],
        "deployments.apps"
        | "replicasets.apps"
        | "daemonsets.apps"
        | "statefulsets.apps"
        | "replicationcontrollers"
        | "jobs.batch" => &["spec", "template"],
        "cronjobs.batch" => &["spec", "jobTemplate", "spec", "template"],
        _ => return Vec::new(),
    };
    if before.is_some_and(|before| before["spec"] == object["spec"]) {
        return Vec::new();
    }
    let template = path.iter().fold(object, |part, step| &part[*step]);
    let prefix = match path {
        [] => String::new(),
        steps => format!("{}.", steps.join(".")),
    };
    let mut warnings = Warnings(Vec::new());
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
    }
    warnings.duplicates(&spec["hostAliases"], &format!("{path}.hostAliases"), "ip");
    let secrets = format!("{path}.imagePullSecrets");
    warnings.duplicates(&spec["imagePullSecrets"], &secrets, "name");
    for (at, secret) in indexed(&spec["imagePullSecrets"], &secrets) {
        if text(&secret["name"]).is_empty() {
            warnings.warn(&format!("{at}.name"), "invalid empty name \"\"");
        }
    }
    warnings.fractions(&spec["overhead"], &format!("{path}.overhead"));
    let containers: Vec<(String, &Value)> = ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| indexed(&spec[list], &format!("{path}.{list}")).collect::<Vec<_>>())
        .collect();
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
        for kind in ["limits", "requests"] {
            let amounts = &container["resources"][kind];
            warnings.fractions(amounts, &format!("{at}.resources.{kind}"));
        }
        warnings.hidden_variables(&container["env"], &format!("{at}.env"));
    }
    warnings.ports(&containers);
    for kind in ["podAffinity", "podAntiAffinity"] {
        warnings.affinity(&spec["affinity"][kind], &format!("{path}.affinity.{kind}"));
    }
    warnings.0
}

struct Warnings(Vec<String>);

impl Warnings {
    fn warn(&mut self, path: &str, why: &str) {
        self.0.push(format!("{path}: {why}"));
    }

    /// Warns about old labels of nodes, and about topology spreading without a selector.
    fn placement(&mut self, spec: &Value, path: &str) {
        let old = |label: &str| OLD_LABELS.iter().find(|(name, _)| *name == label);
        for label in spec["nodeSelector"].as_object().into_iter().flatten() {
            if let Some((name, why)) = old(label.0) {
                self.warn(&format!("{path}.nodeSelector[{name}]"), why);
            }
        }
        let affinity = &spec["affinity"]["nodeAffinity"];
        let path_of_affinity = format!("{path}.affinity.nodeAffinity");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = format!("{path_of_affinity}.{required}.nodeSelectorTerms");
        let required = indexed(&affinity[required]["nodeSelectorTerms"], &terms);
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let terms = format!("{path_of_affinity}.{preferred}");
        let preferred = indexed(&affinity[preferred], &terms)
            .map(|(at, term)| (format!("{at}.preference"), &term["preference"]));
        for (at, term) in required.chain(preferred) {
            let at = format!("{at}.matchExpressions");
            for (at, expression) in indexed(&term["matchExpressions"], &at) {
                if let Some((name, why)) = old(text(&expression["key"])) {
                    self.warn(&format!("{at}.key"), &format!("{name} is {why}"));
                }
            }
        }
        let at = format!("{path}.topologySpreadConstraints");
        for (at, constraint) in indexed(&spec["topologySpreadConstraints"], &at) {
            if let Some((name, why)) = old(text(&constraint["topologyKey"])) {
                self.warn(&format!("{at}.topologyKey"), &format!("{name} is {why}"));
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

    /// Warns about fractions of bytes.
    fn fractions(&mut self, amounts: &Value, path: &str) {
        for name in BYTES {
            let amount = &amounts[name];
            if !amount.is_null() && !quantity::amount(amount).is_whole() {
                let why = format!(
                    "fractional byte value {:?} is invalid, must be an integer",
                    text(amount)
                );
                self.warn(&format!("{path}[{name}]"), &why);
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
