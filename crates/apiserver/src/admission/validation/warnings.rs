//! Warnings about objects that are allowed nevertheless.
//!
//! The texts and their order are those of Kubernetes' strategies (`WarningsOnCreate` and `WarningsOnUpdate` in `pkg/registry`). Those of the
//! status are missing.

use serde_json::Value;

use super::checks::{indexed, text};
use super::{addresses, names};
use crate::registry::Resource;
use crate::values::fields::members;
use crate::values::quantity;

mod network;
mod secrets;
mod storage;
mod templates;

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
const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
/// Most completions of an Indexed Job, and its highest parallelism, of which one may be exceeded without a warning.
const MANY_COMPLETIONS: i64 = 100_000;
const HIGH_PARALLELISM: i64 = 10_000;

/// Returns the warnings about an object: about a pod when it is created, about a template whenever the specification that contains it
/// changes, about all others whenever they are written.
pub(crate) fn of(resource: &Resource, before: Option<&Value>, object: &Value) -> Vec<String> {
    let mut warnings = Warnings(Vec::new());
    let storage = resource.storage.as_str();
    if before.is_none() {
        warnings.name(storage, text(&object["metadata"]["name"]));
    }
    match storage {
        "services" => network::service(object, &mut warnings),
        "endpoints" => network::endpoints(object, &mut warnings),
        "endpointslices.discovery.k8s.io" => network::slice(before, object, &mut warnings),
        "networkpolicies.networking.k8s.io" => network::policy(object, &mut warnings),
        "ingresses.networking.k8s.io" if before.is_none() => {
            network::ingress(object, &mut warnings);
        }
        "nodes" => network::node(object, &mut warnings),
        "persistentvolumes" => storage::volume(object, &mut warnings),
        "persistentvolumeclaims" => storage::whole_claim(object, &mut warnings),
        "storageclasses.storage.k8s.io" => storage::class(object, &mut warnings),
        "csistoragecapacities.storage.k8s.io" => storage::capacity(object, &mut warnings),
        "csidrivers.storage.k8s.io" => storage::driver(before, object, &mut warnings),
        "runtimeclasses.node.k8s.io" => {
            for (name, _) in members(&object["scheduling"]["nodeSelector"]) {
                if let Some(why) = old_label(name) {
                    warnings.warn("scheduling.nodeSelector", why);
                }
            }
        }
        "secrets" => warnings.0.extend(secrets::why_no_pair(object)),
        "serviceaccounts" => {
            let is_set =
                |object: &Value| !object["metadata"]["annotations"][MOUNTABLE_SECRETS].is_null();
            if is_set(object) && !before.is_some_and(is_set) {
                let at = format!("metadata.annotations[{MOUNTABLE_SECRETS}]");
                let why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
                warnings.warn(&at, why);
            }
        }
        _ => {
            warnings.template(storage, before, object);
            match storage {
                "cronjobs.batch" if before.is_some() => warnings.schedule(object),
                "statefulsets.apps" => warnings.stateful_set(before, object),
                _ => {}
            }
        }
    }
    warnings.0
}

/// Returns what to use instead of an old label of nodes.
fn old_label(label: &str) -> Option<&'static str> {
    let found = OLD_LABELS.iter().find(|(name, _)| *name == label);
    found.map(|(_, why)| *why)
}

/// Warnings that were found so far.
struct Warnings(Vec<String>);

impl Warnings {
    fn warn(&mut self, path: &str, why: &str) {
        self.0.push(format!("{path}: {why}"));
    }

    /// Warns about names that pods have, or take over, and that are no labels.
    fn name(&mut self, storage: &str, name: &str) {
        let used = match storage {
            "pods" => "the Pod's hostname",
            "deployments.apps"
            | "replicasets.apps"
            | "replicationcontrollers"
            | "jobs.batch"
            | "cronjobs.batch" => "Pod names and hostnames",
            _ => return,
        };
        let wrong = names::label(name);
        if !wrong.is_empty() {
            let why = format!(
                "this is used in {used}, which can result in surprising behavior; a DNS label is recommended: [{}]",
                wrong.join(" ")
            );
            self.warn("metadata.name", &why);
        }
    }

    /// Warns about a pod that is created, and about a template that comes with a change of the specification that contains it.
    fn template(&mut self, storage: &str, before: Option<&Value>, object: &Value) {
        let path: &[&str] = match storage {
            "pods" if before.is_none() => &[],
            "podtemplates" => &["template"],
            "deployments.apps"
            | "replicasets.apps"
            | "daemonsets.apps"
            | "statefulsets.apps"
            | "replicationcontrollers"
            | "jobs.batch" => &["spec", "template"],
            "cronjobs.batch" => &["spec", "jobTemplate", "spec", "template"],
            _ => return,
        };
        let changes = match storage {
            // its template has a generation of its own
            "daemonsets.apps" => "/spec/template",
            _ => "/spec",
        };
        if before.is_some_and(|before| before.pointer(changes) == object.pointer(changes)) {
            return;
        }
        // a server looks at the old template of a ReplicationController
        let object = match before {
            Some(before) if storage == "replicationcontrollers" => before,
            _ => object,
        };
        if let [steps @ .., "template"] = path {
            let at = steps.join(".");
            self.job(steps.iter().fold(object, |part, step| &part[*step]), &at);
        }
        let template = path.iter().fold(object, |part, step| &part[*step]);
        let prefix = match path {
            [] => String::new(),
            steps => format!("{}.", steps.join(".")),
        };
        templates::check(template, &prefix, self);
    }

    /// Warns about a job of more indexes than its status can tell of. Nothing else has these fields.
    fn job(&mut self, spec: &Value, path: &str) {
        let many = |field: &str, most: i64| spec[field].as_i64() > Some(most);
        if spec["completionMode"] == "Indexed"
            && many("completions", MANY_COMPLETIONS)
            && many("parallelism", HIGH_PARALLELISM)
        {
            let why = "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
            self.warn(path, why);
        }
    }

    /// Warns about a schedule with a time zone that is left from before.
    fn schedule(&mut self, cron_job: &Value) {
        if text(&cron_job["spec"]["schedule"]).contains("TZ") {
            // the path is the server's
            let told = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
            self.0.push(told.to_owned());
        }
    }

    /// Warns about the claims of a stateful set, and about its history.
    fn stateful_set(&mut self, before: Option<&Value>, object: &Value) {
        // as the server writes it on a change
        let field = if before.is_some() { ".Spec" } else { "" };
        let claims = &object["spec"]["volumeClaimTemplates"];
        for (at, claim) in indexed(claims, "spec.volumeClaimTemplates") {
            storage::claim(&claim["spec"], &format!("{at}{field}"), self);
        }
        if object["spec"]["revisionHistoryLimit"].as_i64() < Some(0) {
            let why =
                "a negative value retains all historical revisions; a value >= 0 is recommended";
            self.warn("spec.revisionHistoryLimit", why);
        }
    }

    /// Warns about the old labels that a term of a node selector has.
    fn expressions(&mut self, term: &Value, path: &str) {
        let path = format!("{path}.matchExpressions");
        for (at, expression) in indexed(&term["matchExpressions"], &path) {
            self.expression(expression, &at);
        }
    }

    fn expression(&mut self, expression: &Value, path: &str) {
        let key = text(&expression["key"]);
        if let Some(why) = old_label(key) {
            self.warn(&format!("{path}.key"), &format!("{key} is {why}"));
        }
    }

    /// Warns about an amount of bytes that is no whole number.
    fn fraction(&mut self, amount: &Value, path: &str) {
        if !amount.is_null() && !quantity::amount(amount).is_whole() {
            let why = format!(
                "fractional byte value {:?} is invalid, must be an integer",
                text(amount)
            );
            self.warn(path, &why);
        }
    }

    /// Warns about an address in an old form.
    fn address(&mut self, value: &Value, path: &str) {
        if let Some(why) = addresses::old_form(text(value)) {
            self.warn(path, &why);
        }
    }

    /// Warns about a range of addresses in an old form.
    fn range(&mut self, value: &Value, path: &str) {
        for why in addresses::old_forms_of_range(text(value)) {
            self.warn(path, &why);
        }
    }
}
