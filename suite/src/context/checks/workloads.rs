//! Deployments and daemon sets: changing them, and waiting until they are complete.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Container, Pod, PodTemplateSpec};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Selector;
use serde_json::{Value, json};

use super::pods::failed_pod;
use super::{describe, phase};
use crate::context::Context;
use crate::images;
use crate::recorder::PollResult;
use crate::step::StepError;
use crate::workload::PodPlan;

impl Context {
    /// Replaces the pod template of a deployment and its number of replicas.
    pub async fn update_deployment(&self, plan: &PodPlan, replicas: i32) -> Result<(), StepError> {
        let template = plan.deployment(replicas).spec.map(|spec| spec.template);
        let mut patch = json!({"spec": {"replicas": replicas, "template": template}});
        images::pin(&self.facts().published, &mut patch);
        self.patch_deployment(plan.name(), &patch).await
    }

    /// Changes the number of pods of a deployment.
    pub async fn scale_deployment(&self, name: &str, replicas: usize) -> Result<(), StepError> {
        self.patch_deployment(name, &json!({"spec": {"replicas": replicas}}))
            .await
    }

    async fn patch_deployment(&self, name: &str, patch: &Value) -> Result<(), StepError> {
        let params = PatchParams::default();
        let deployments = self.api::<Deployment>();
        deployments
            .patch(name, &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Waits until a deployment is complete, and returns its pods. A pod that its kubelet refused ends the wait.
    pub async fn deployment_complete(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Pod>, StepError> {
        let deployments = self.api::<Deployment>();
        self.until(
            &format!("deployment {name} is complete"),
            self.deadlines().running,
            async || {
                // the pods after the status: those read before it may not have run yet
                let deployment = deployments.get(name).await?;
                let pods = self.pods_with(labels).await?;
                if let Some(pod) = pods.iter().find(|pod| phase(pod) == "Failed") {
                    return Err(failed_pod(pod));
                }
                let wanted = deployment
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.replicas)
                    .unwrap_or(1);
                let status = deployment.status.clone().unwrap_or_default();
                let counts = [
                    status.replicas,
                    status.updated_replicas,
                    status.available_replicas,
                ];
                let complete = status.observed_generation >= deployment.metadata.generation
                    && counts
                        .iter()
                        .all(|count| count.unwrap_or_default() == wanted)
                    && pods.len() == usize::try_from(wanted).unwrap_or_default();
                Ok(if complete {
                    PollResult::Ready(pods)
                } else {
                    let pods: Vec<_> = pods.iter().map(describe).collect();
                    let [all, updated, available] = counts.map(Option::unwrap_or_default);
                    PollResult::NotYet(format!(
                        "{all} replicas, {updated} updated, {available} available of {wanted}: {}",
                        pods.join(", ")
                    ))
                })
            },
        )
        .await
    }

    /// Returns the number of replica sets with these labels.
    pub async fn replica_sets(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<usize, StepError> {
        let selector: Selector = labels.clone().into_iter().collect();
        let params = ListParams::default().labels_from(&selector);
        let sets = self.api::<ReplicaSet>().list(&params).await?;
        Ok(sets.items.len())
    }

    /// Waits until a daemon set desires pods on `count` nodes.
    pub async fn daemon_set_desired(&self, name: &str, count: usize) -> Result<(), StepError> {
        let sets = self.api::<DaemonSet>();
        self.until(
            &format!("daemon set {name} wants {count} pods"),
            self.deadlines().running,
            async || {
                let desired = sets
                    .get(name)
                    .await?
                    .status
                    .map_or(0, |status| status.desired_number_scheduled);
                Ok(if usize::try_from(desired) == Ok(count) {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("it wants {desired}"))
                })
            },
        )
        .await
    }
}

/// Returns the first container of a workload's pods.
pub fn first_container(template: Option<&PodTemplateSpec>) -> Option<&Container> {
    template?.spec.as_ref()?.containers.first()
}

/// How far the rollout of a daemon set or a Deployment has progressed.
#[derive(Clone, Copy, Debug)]
pub struct Rollout {
    /// Pods that it should have: of a daemon set, one for each node that it selects.
    pub wanted: i32,
    /// Its pods that are ready.
    pub ready: i32,
    /// Its pods that were made from the current template.
    pub updated: i32,
    /// Its pods that were made from an older template.
    old: i32,
    is_observed: bool,
}

impl Rollout {
    /// Reads the status of the set.
    pub fn of(set: &DaemonSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        Self {
            wanted: status.desired_number_scheduled,
            ready: status.number_ready,
            updated: status.updated_number_scheduled.unwrap_or_default(),
            // a node has one pod of the set, old or new
            old: 0,
            is_observed: set.status.is_some()
                && status.observed_generation == set.metadata.generation,
        }
    }

    /// Reads the status of the Deployment.
    pub fn of_deployment(deployment: &Deployment) -> Self {
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let status = deployment.status.clone().unwrap_or_default();
        let updated = status.updated_replicas.unwrap_or_default();
        Self {
            wanted: wanted.unwrap_or(1),
            ready: status.ready_replicas.unwrap_or_default(),
            updated,
            old: status.replicas.unwrap_or_default() - updated,
            is_observed: status.observed_generation == deployment.metadata.generation,
        }
    }

    /// Returns whether every pod is made from the current template and ready.
    pub fn is_over(self) -> bool {
        self.is_observed && [self.ready, self.updated] == [self.wanted; 2] && self.old == 0
    }
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wanted,
            ready,
            updated,
            old,
            is_observed,
        } = self;
        write!(f, "{wanted} wanted, {ready} ready, {updated} up to date")?;
        if *old > 0 {
            write!(f, ", {old} old")?;
        }
        if *is_observed {
            return Ok(());
        }
        f.write_str(", before the last change")
    }
}
