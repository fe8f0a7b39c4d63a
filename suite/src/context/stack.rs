//! The stack's own resources, changed while a scenario runs (scenarios-serial.md 7.7, 7.8).
//!
//! `operator`, `scheduler` and `exporters` have what belongs to each of them, `dumps` what exporters say of the pods that they have seen; here is
//! what they share.

mod dumps;
pub(crate) mod exporters;
mod operator;
mod scheduler;

use std::fmt::Debug;

use api::{labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::context::Context;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::step::StepError;

/// A part of the stack: pods that run the same program in the same role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    Operator,
    Exporters,
    Scheduler,
}

impl Component {
    /// Returns the label selector of its pods.
    pub(crate) fn selector(self) -> String {
        let (label, value) = match self {
            Self::Operator => (labels::APP, "numaresources-operator"),
            Self::Exporters => (labels::RTE_POD, labels::RTE_POD_VALUE),
            Self::Scheduler => (labels::APP, names::SCHEDULER),
        };
        format!("{label}={value}")
    }

    /// Selects its pods in a list.
    fn pods(self) -> ListParams {
        ListParams::default().labels(&self.selector())
    }
}

impl Context {
    /// Waits until an object that was deleted is there again, made anew. `what` says so for people.
    pub async fn is_made_anew<K>(&self, what: &str, api: &Api<K>, old: &K) -> Result<(), StepError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let name = old.name_any();
        self.until(what, self.deadlines().installed, async || {
            Ok(match api.get_opt(&name).await? {
                Some(new) if new.uid() != old.uid() => PollResult::Ready(()),
                Some(_) => PollResult::NotYet("the old one is there".to_owned()),
                None => PollResult::NotYet("it is gone".to_owned()),
            })
        })
        .await
    }

    /// Patches one field of a resource's `spec` from the old to the new value; the old one is restored at the end.
    async fn patch_field<K>(
        &self,
        api: &Api<K>,
        object: &K,
        field: &str,
        [old, new]: [Value; 2],
    ) -> Result<(), StepError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let reference = ObjectRef::of(object);
        let name = reference.name.clone();
        self.recorder.plan(
            &format!("set {field} of {reference}"),
            Undo::Patch {
                object: reference,
                patch: json!({"spec": {field: old}}),
            },
        )?;
        let patch = Patch::Merge(json!({"spec": {field: new}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until an object is gone.
    pub async fn is_gone(&self, object: &ObjectRef) -> Result<(), StepError> {
        let what = format!("{object} is gone");
        self.until(&what, self.deadlines().gone, async || {
            let left = object.api(&self.client()).get_opt(&object.name).await?;
            Ok(match left {
                None => PollResult::Ready(()),
                Some(_) => PollResult::NotYet("it is there".to_owned()),
            })
        })
        .await
    }

    /// Checks that all of these objects are there.
    pub async fn are_there(&self, objects: &[ObjectRef]) -> Result<(), StepError> {
        for object in objects {
            let found = object.api(&self.client()).get_opt(&object.name).await?;
            if found.is_none() {
                return Err(StepError::fail(format!("{object} is missing")));
            }
        }
        Ok(())
    }

    /// Waits until all of these objects are gone.
    pub async fn are_gone(&self, objects: &[ObjectRef]) -> Result<(), StepError> {
        for object in objects {
            self.is_gone(object).await?;
        }
        Ok(())
    }

    /// Waits until everything that the stack's current resources specify runs everywhere. A scheduler without a resource is not waited for.
    pub async fn operands_rolled_out(&self) -> Result<(), StepError> {
        self.operator_available().await?;
        let status = self.operator_resource().await?.status.unwrap_or_default();
        for set in status.daemonsets {
            self.exporters_rolled_out(&set).await?;
        }
        if self.facts().scheduler_resource {
            self.scheduler_available().await?;
        }
        Ok(())
    }
}

/// Returns the error that a resource of the stack is gone which the set-up found.
fn gone(kind: &str, name: &str) -> StepError {
    StepError::mismatch(
        format!("{kind} {name} is gone"),
        "the resource that the set-up found",
        "none; somebody deleted it, or a scenario did not restore it",
    )
}

/// Returns a field of an object's `spec`; null if it is missing.
fn spec_field(object: &Value, field: &str) -> Value {
    object["spec"].get(field).cloned().unwrap_or_default()
}

/// Returns whether a condition has this type and is True for the current generation of the object.
fn is_true(one: &Condition, kind: &str, generation: Option<i64>) -> bool {
    one.type_ == kind && one.status == "True" && one.observed_generation == generation
}

/// Describes the conditions that are True, for people who wait.
fn active(all: &[Condition]) -> String {
    let active = all.iter().filter(|one| one.status == "True");
    let words: Vec<String> = active
        .map(|one| {
            let generation = one.observed_generation.unwrap_or(0);
            format!(
                "{} at generation {generation}: {} {}",
                one.type_, one.reason, one.message
            )
        })
        .collect();
    if words.is_empty() {
        "no condition is True".to_owned()
    } else {
        words.join("; ")
    }
}
