//! The scheduler under test and its resource.

use api::scheduler::v1::NumaResourcesScheduler;
use api::{conditions, names};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};

use super::{Component, active, gone, is_true, spec_field};
use crate::context::Context;
use crate::context::checks::describe;
use crate::ledger::Undo;
use crate::recorder::PollResult;
use crate::step::StepError;

impl Context {
    pub(super) fn schedulers(&self) -> Api<NumaResourcesScheduler> {
        Api::all(self.client())
    }

    /// Returns the resource of the scheduler under test. It is an error if the set-up found one and it is gone.
    pub async fn scheduler_resource(&self) -> Result<NumaResourcesScheduler, StepError> {
        let found = self.schedulers().get_opt(names::SCHEDULER_CR).await?;
        let (kind, name) = ("NUMAResourcesScheduler", names::SCHEDULER_CR);
        found.ok_or_else(|| {
            if self.facts().scheduler_resource {
                gone(kind, name)
            } else {
                StepError::Skip(format!("there is no {kind} {name}"))
            }
        })
    }

    /// Sets one field of it, and waits until the scheduler runs with it; the old value is restored at the end.
    pub async fn set_scheduler_field(&self, field: &str, value: Value) -> Result<(), StepError> {
        self.patch_scheduler_field(field, value).await?;
        self.scheduler_available().await
    }

    /// Sets one field of it without waiting for the effect; the old value is restored at the end.
    pub async fn patch_scheduler_field(&self, field: &str, value: Value) -> Result<(), StepError> {
        let before = self.scheduler_resource().await?;
        let old = spec_field(&json!(before), field);
        if old == value {
            return Ok(());
        }
        self.patch_field(&self.schedulers(), &before, field, [old, value])
            .await
    }

    /// Waits until the operator reports that the scheduler runs as its current resource specifies.
    pub async fn scheduler_available(&self) -> Result<(), StepError> {
        self.scheduler_is(conditions::AVAILABLE, None).await
    }

    /// Waits until a condition of the scheduler's resource is True at its current generation, with this reason if one is given.
    pub async fn scheduler_is(&self, kind: &str, reason: Option<&str>) -> Result<(), StepError> {
        let limit = self.deadlines().installed;
        let what = format!("the scheduler is {kind} {}", reason.unwrap_or_default());
        self.until(what.trim_end(), limit, async || {
            let Some(object) = self.schedulers().get_opt(names::SCHEDULER_CR).await? else {
                return Ok(PollResult::NotYet("it is gone".to_owned()));
            };
            let all = object
                .status
                .map_or_else(Vec::new, |status| status.conditions);
            let generation = object.metadata.generation;
            let is_it = all.iter().any(|one| {
                is_true(one, kind, generation) && reason.is_none_or(|reason| one.reason == reason)
            });
            Ok(if is_it {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(active(&all))
            })
        })
        .await
    }

    /// Returns the pods of the scheduler that its resource configures.
    pub async fn scheduler_pods(&self) -> Result<Vec<Pod>, StepError> {
        let pods = Api::<Pod>::namespaced(self.client(), names::NAMESPACE);
        Ok(pods.list(&Component::Scheduler.pods()).await?.items)
    }

    /// Deletes the scheduler's resource, and waits until neither its Deployment nor a pod of it is left. Returns the undo that restores it,
    /// which runs at the end in any case.
    pub async fn remove_scheduler(&self) -> Result<Undo, StepError> {
        let object = self.scheduler_resource().await?;
        let undo = self.recorder.plan_deletion(&object)?;
        self.schedulers()
            .delete(names::SCHEDULER_CR, &DeleteParams::default())
            .await?;
        let deployments = Api::<Deployment>::namespaced(self.client(), names::NAMESPACE);
        let limit = self.deadlines().gone;
        self.until("nothing of the scheduler is left", limit, async || {
            if deployments.get_opt(names::SCHEDULER).await?.is_some() {
                return Ok(PollResult::NotYet("its Deployment is there".to_owned()));
            }
            Ok(match self.scheduler_pods().await?.first() {
                Some(pod) => PollResult::NotYet(describe(pod)),
                None => PollResult::Ready(()),
            })
        })
        .await?;
        Ok(undo)
    }

    /// Restores the scheduler's resource, and waits until it is available.
    pub async fn restore_scheduler(&self, removed: &Undo) -> Result<(), StepError> {
        self.undo(removed).await?;
        self.scheduler_available().await
    }
}
