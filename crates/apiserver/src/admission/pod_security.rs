//! Pod Security admission: the levels that the labels of a namespace enforce, and those that they only warn of.
//!
//! The level `audit` is checked for validity alone, because there is no audit log. Nobody is exempt, as in a real server without a
//! configuration.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde_json::Value;

use self::checks::violations;
use self::parts::{PodParts, Violation};
use super::policies::{Operation, Review};
use crate::failure::{Cause, Failure, Subject};
use crate::storage::State;
use crate::values::fields::elements;

mod baseline;
mod checks;
mod parts;
mod restricted;

const PREFIX: &str = "pod-security.kubernetes.io/";
/// Subresources of pods that change nothing that the levels are about.
const IGNORED: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];
/// Most pods of a namespace that are checked when its level changes.
const MAX_PODS: usize = 3000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}

/// A level as of a version of Kubernetes; without a version, as of the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standard {
    level: Level,
    minor: Option<u32>,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.minor {
            Some(minor) => write!(f, ":v1.{minor}"),
            None => f.write_str(":latest"),
        }
    }
}

/// What the labels of a namespace ask for.
#[derive(Clone, Debug, PartialEq)]
struct Labels {
    enforce: Standard,
    warn: Standard,
    /// What is wrong with the labels.
    causes: Vec<Cause>,
}

impl Labels {
    fn read(namespace: &Value) -> Self {
        let labels = &namespace["metadata"]["labels"];
        let mut causes = Vec::new();
        // a level that is not valid is enforced as the strictest, and neither audited nor warned of
        let mut read = |mode: &str, otherwise: Level| {
            let mut standard = Standard {
                level: Level::Privileged,
                minor: None,
            };
            let mut is_valid = false;
            if let Some(given) = labels[format!("{PREFIX}{mode}")].as_str() {
                let level = Level::parse(given);
                is_valid = level.is_some();
                standard.level = level.unwrap_or(otherwise);
                if level.is_none() {
                    let why = "must be one of privileged, baseline, restricted";
                    causes.push(invalid(mode, given, why));
                }
            }
            let mode = format!("{mode}-version");
            let given = labels[format!("{PREFIX}{mode}")].as_str();
            if let Some(given) = given {
                match version(given) {
                    Ok(minor) => standard.minor = minor,
                    Err(NotAVersion) => {
                        causes.push(invalid(&mode, given, "must be \"latest\" or \"v1.x\""));
                    }
                }
            }
            (standard, is_valid, given.is_some())
        };
        let (enforce, is_enforced, _) = read("enforce", Level::Restricted);
        read("audit", Level::Privileged);
        let (mut warn, _, has_warn_version) = read("warn", Level::Privileged);
        let has_warn = labels.get(format!("{PREFIX}warn")).is_some();
        if !has_warn && is_enforced && enforce.level > warn.level {
            warn.level = enforce.level;
            if !has_warn_version {
                warn.minor = enforce.minor;
            }
        }
        Self {
            enforce,
            warn,
            causes,
        }
    }
}

fn invalid(mode: &str, given: &str, why: &str) -> Cause {
    let field = format!("metadata.labels[{PREFIX}{mode}]");
    Cause::invalid(field, &Value::from(given), why)
}

/// A text is not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NotAVersion;

/// Returns the minor version, `None` for the newest.
fn version(text: &str) -> Result<Option<u32>, NotAVersion> {
    if text == "latest" {
        return Ok(None);
    }
    let digits = text.strip_prefix("v1.").ok_or(NotAVersion)?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_short = digits == "0" || !digits.starts_with('0');
    if !is_number || !is_short {
        return Err(NotAVersion);
    }
    digits.parse().map(Some).map_err(|_| NotAVersion)
}

/// Checks a write; returns warnings. The error says which rules a pod violates, or what is wrong with the labels of a namespace.
pub(crate) fn check(state: &State, review: &Review<'_>) -> Result<Vec<String>, Failure> {
    let Some(object) = review
        .object
        .filter(|_| review.attempt.is_enabled("PodSecurity"))
    else {
        return Ok(Vec::new());
    };
    match review.attempt.resource.storage.as_str() {
        "namespaces" if review.attempt.subresource.is_empty() => namespace(state, review, object),
        "pods" if !IGNORED.contains(&review.attempt.subresource) => pod(state, review, object),
        _ if review.attempt.subresource.is_empty() => Ok(template(state, review, object)),
        _ => Ok(Vec::new()),
    }
}

fn labels_of(state: &State, review: &Review<'_>) -> Option<Labels> {
    let namespace = state.get("namespaces", "", review.attempt.namespace)?;
    let labels = namespace["metadata"]["labels"].as_object()?;
    labels
        .keys()
        .any(|key| key.starts_with(PREFIX))
        .then(|| Labels::read(namespace))
}

fn pod(state: &State, review: &Review<'_>, object: &Value) -> Result<Vec<String>, Failure> {
    let Some(labels) = labels_of(state, review) else {
        return Ok(Vec::new());
    };
    if let Some(before) = review.attempt.before
        && !is_significant(before, object)
    {
        return Ok(Vec::new());
    }
    let parts = PodParts::of(object);
    let broken = violations(labels.enforce, parts);
    if broken.is_empty() {
        return Ok(warnings(labels.warn, parts));
    }
    let subject = Subject {
        group: "",
        resource: "pods",
        name: review.attempt.name,
    };
    let why = format!(
        "violates PodSecurity {:?}: {}",
        labels.enforce.to_string(),
        details(&broken)
    );
    Err(Failure::forbidden(&subject, &why))
}

/// Returns the warnings about the pods of a workload.
fn template(state: &State, review: &Review<'_>, object: &Value) -> Vec<String> {
    let template = match review.attempt.resource.storage.as_str() {
        "podtemplates" => &object["template"],
        "replicationcontrollers"
        | "replicasets.apps"
        | "deployments.apps"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "jobs.batch" => &object["spec"]["template"],
        "cronjobs.batch" => &object["spec"]["jobTemplate"]["spec"]["template"],
        _ => return Vec::new(),
    };
    match labels_of(state, review) {
        Some(labels) if template.is_object() => warnings(labels.warn, PodParts::of(template)),
        _ => Vec::new(),
    }
}

fn warnings(standard: Standard, parts: PodParts<'_>) -> Vec<String> {
    let broken = violations(standard, parts);
    if broken.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "would violate PodSecurity {:?}: {}",
        standard.to_string(),
        details(&broken)
    )]
}

fn details(broken: &[Violation]) -> String {
    let shown = broken
        .iter()
        .map(|violation| format!("{} ({})", violation.reason, violation.detail));
    shown.collect::<Vec<_>>().join(", ")
}

/// Returns whether a change of a pod matters: only images change, and containers come and go.
fn is_significant(before: &Value, after: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = elements(&pod["spec"][list]);
        containers
            .map(|container| container["image"].clone())
            .collect()
    };
    ["containers", "initContainers"]
        .iter()
        .any(|list| images(before, list) != images(after, list))
        || elements(&after["spec"]["ephemeralContainers"]).any(|container| {
            let mut known = elements(&before["spec"]["ephemeralContainers"]);
            !known.any(|known| {
                known["name"] == container["name"] && known["image"] == container["image"]
            })
        })
}

fn namespace(state: &State, review: &Review<'_>, object: &Value) -> Result<Vec<String>, Failure> {
    let labels = Labels::read(object);
    let before = match (review.operation, review.attempt.before) {
        (Operation::Update, Some(before)) => Some(Labels::read(before)),
        _ => None,
    };
    let was_wrong = before
        .as_ref()
        .is_some_and(|before| before.causes == labels.causes);
    if !labels.causes.is_empty() && !was_wrong {
        let subject = Subject {
            group: "",
            resource: "Namespace",
            name: review.attempt.name,
        };
        return Err(Failure::invalid(&subject, &labels.causes));
    }
    match before {
        Some(before) => Ok(of_existing_pods(
            state,
            review.attempt.name,
            before.enforce,
            labels.enforce,
        )),
        None => Ok(Vec::new()),
    }
}

/// Returns warnings about the pods of a namespace that violate its new level.
fn of_existing_pods(
    state: &State,
    namespace: &str,
    before: Standard,
    now: Standard,
) -> Vec<String> {
    if now == before
        || now.level == Level::Privileged
        || now.minor == before.minor && now.level <= before.level
    {
        return Vec::new();
    }
    let pods = by_priority(state, namespace);
    let mut violating: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in pods.iter().take(MAX_PODS) {
        let broken = violations(now, PodParts::of(pod));
        if !broken.is_empty() {
            let reasons: Vec<&str> = broken.iter().map(|violation| violation.reason).collect();
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            violating.entry(reasons.join(", ")).or_default().push(name);
        }
    }
    let mut warnings = Vec::new();
    if pods.len() > MAX_PODS {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} of {} existing pods",
            pods.len()
        ));
    }
    if !violating.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level {:?}",
            now.to_string()
        ));
    }
    let mut about_pods: Vec<String> = violating
        .iter()
        .map(|(reasons, names)| {
            let first = names.iter().min().copied().unwrap_or_default();
            match names.len() {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                count => format!("{first} (and {} other pods): {reasons}", count - 1),
            }
        })
        .collect();
    about_pods.sort();
    warnings.extend(about_pods);
    warnings
}

/// Returns the pods of a namespace: first one of each owner, then the others.
fn by_priority<'s>(state: &'s State, namespace: &'s str) -> Vec<&'s Value> {
    let (mut first, mut others) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for (_, pod) in state.list("pods", namespace) {
        let mut owners = elements(&pod["metadata"]["ownerReferences"]);
        let owner = owners.find(|owner| owner["controller"] == true);
        let is_first = owner.is_none_or(|owner| seen.insert(owner["uid"].to_string()));
        if is_first {
            first.push(pod.value());
        } else {
            others.push(pod.value());
        }
    }
    first.append(&mut others);
    first
}

#[cfg(test)]
mod tests;
