//! The operator and its resource, which configures the exporters.

use api::operator::v1::{NodeGroup, NumaResourcesOperator};
use api::{conditions, names};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Component, active, gone, is_true, spec_field};
use crate::context::Context;
use crate::context::checks::{Rollout, describe, is_ready};
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::step::StepError;

impl Context {
    pub(super) fn operators(&self) -> Api<NumaResourcesOperator> {
        Api::all(self.client())
    }

    /// Returns the resource of the operator, which configures the exporters. The set-up found it, so it is an error if it is gone.
    pub async fn operator_resource(&self) -> Result<NumaResourcesOperator, StepError> {
        let found = self.operators().get_opt(names::OPERATOR_CR).await?;
        found.ok_or_else(|| gone("NUMAResourcesOperator", names::OPERATOR_CR))
    }

    /// Returns the operator's pods.
    pub async fn operator_pods(&self) -> Result<Vec<Pod>, StepError> {
        let pods = Api::<Pod>::all(self.client());
        Ok(pods.list(&Component::Operator.pods()).await?.items)
    }

    /// Deletes the operator's pods, and waits until others are ready in their place.
    pub async fn restart_operator(&self) -> Result<(), StepError> {
        let old = self.operator_pods().await?;
        for pod in &old {
            let pods = Api::<Pod>::namespaced(self.client(), &pod.namespace().unwrap_or_default());
            pods.delete(&pod.name_any(), &DeleteParams::default())
                .await?;
        }
        let limit = self.deadlines().installed;
        self.until(
            "the operator has other pods, all ready",
            limit,
            async || {
                let now = self.operator_pods().await?;
                let is_new = |pod: &&Pod| old.iter().all(|old| old.uid() != pod.uid());
                let ready = |pod: &&Pod| is_new(pod) && is_ready(pod);
                Ok(match now.iter().find(|pod| !ready(pod)) {
                    None if !now.is_empty() => PollResult::Ready(()),
                    None => PollResult::NotYet("it has none".to_owned()),
                    Some(pod) => PollResult::NotYet(describe(pod)),
                })
            },
        )
        .await
    }

    /// Sets its node groups; the old ones are restored at the end.
    pub async fn set_node_groups(&self, groups: &[NodeGroup]) -> Result<(), StepError> {
        self.set_operator_field("nodeGroups", json!(groups)).await
    }

    /// Sets one field of it; the old value is restored at the end.
    pub async fn set_operator_field(&self, field: &str, value: Value) -> Result<(), StepError> {
        let before = self.operator_resource().await?;
        let old = spec_field(&json!(before), field);
        self.patch_field(&self.operators(), &before, field, [old, value])
            .await
    }

    /// Deletes it, and waits until neither a DaemonSet of exporters nor a pod of theirs is left. It is restored at the end in any case.
    /// Returns its old state.
    pub async fn remove_operator_resource(&self) -> Result<NumaResourcesOperator, StepError> {
        let object = self.operator_resource().await?;
        self.recorder.plan_deletion(&object)?;
        self.operators()
            .delete(names::OPERATOR_CR, &DeleteParams::default())
            .await?;
        for set in object.status.iter().flat_map(|status| &status.daemonsets) {
            self.is_gone(&ObjectRef::named::<DaemonSet>(
                Some(&set.namespace),
                &set.name,
            ))
            .await?;
        }
        let pods = Api::<Pod>::all(self.client());
        let exporters = Component::Exporters.pods();
        let limit = self.deadlines().gone;
        self.until("no pod of an exporter is left", limit, async || {
            let left = pods.list(&exporters).await?.items;
            Ok(match left.first() {
                Some(pod) => PollResult::NotYet(describe(pod)),
                None => PollResult::Ready(()),
            })
        })
        .await?;
        Ok(object)
    }

    /// Creates it again, as given.
    pub async fn create_operator_resource(
        &self,
        object: &NumaResourcesOperator,
    ) -> Result<(), StepError> {
        self.undo(&Undo::recreate(object)).await
    }

    /// Sets an environment variable of the operator, and waits until the operator runs with it; the old environment is restored at the end.
    pub async fn set_operator_variable(&self, name: &str, value: &str) -> Result<(), StepError> {
        let deployments = Api::<Deployment>::namespaced(self.client(), names::NAMESPACE);
        let operator = deployments.get(names::OPERATOR_DEPLOYMENT).await?;
        let reference = ObjectRef::of(&operator);
        let pod = operator.spec.and_then(|spec| spec.template.spec);
        let containers = pod.map(|pod| pod.containers).unwrap_or_default();
        let mut changed = containers.clone();
        for container in &mut changed {
            let variables = container.env.get_or_insert_default();
            variables.retain(|variable| variable.name != name);
            variables.push(EnvVar {
                name: name.to_owned(),
                value: Some(value.to_owned()),
                value_from: None,
            });
        }
        let template =
            |containers| json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.recorder.plan(
            &format!("set {name} of {reference}"),
            Undo::Patch {
                object: reference,
                patch: template(json!(containers)),
            },
        )?;
        let patch = Patch::Merge(template(json!(changed)));
        deployments
            .patch(names::OPERATOR_DEPLOYMENT, &PatchParams::default(), &patch)
            .await?;
        self.operator_rolled_out().await
    }

    /// Waits until the operator's Deployment runs as it is specified, and no pod that it has replaced is left. A cluster whose operator has
    /// no Deployment of the known name is not waited for.
    pub async fn operator_rolled_out(&self) -> Result<(), StepError> {
        let deployments = Api::<Deployment>::namespaced(self.client(), names::NAMESPACE);
        let limit = self.deadlines().installed;
        self.until("the operator runs as specified", limit, async || {
            let Some(now) = deployments.get_opt(names::OPERATOR_DEPLOYMENT).await? else {
                return Ok(PollResult::Ready(()));
            };
            let rollout = Rollout::of_deployment(&now);
            if !rollout.is_over() {
                return Ok(PollResult::NotYet(rollout.to_string()));
            }
            let pods = self.operator_pods().await?;
            let ending = pods
                .iter()
                .find(|pod| pod.metadata.deletion_timestamp.is_some());
            Ok(ending.map_or(PollResult::Ready(()), |pod| {
                PollResult::NotYet(format!("{} is ending", pod.name_any()))
            }))
        })
        .await
    }

    /// Waits until this resource is Available at its current generation: all that it specifies runs.
    pub async fn operator_available(&self) -> Result<(), StepError> {
        self.operator_is(conditions::AVAILABLE, conditions::AVAILABLE, "")
            .await
    }

    /// Waits until a condition of this resource is True at its current generation, with this reason and a message that contains this text.
    pub async fn operator_is(&self, kind: &str, reason: &str, text: &str) -> Result<(), StepError> {
        let what = format!("NUMAResourcesOperator is {kind}: {reason} {text}");
        let limit = self.deadlines().installed;
        self.until(&what, limit, async || {
            let Some(object) = self.operators().get_opt(names::OPERATOR_CR).await? else {
                return Ok(PollResult::NotYet("it is gone".to_owned()));
            };
            let all = object
                .status
                .map_or_else(Vec::new, |status| status.conditions);
            let generation = object.metadata.generation;
            let is_it = |one: &Condition| {
                is_true(one, kind, generation) && one.reason == reason && one.message.contains(text)
            };
            Ok(if all.iter().any(is_it) {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(active(&all))
            })
        })
        .await
    }
}
