//! The stack's own resources, changed while a scenario runs (scenarios-serial.md 7.7, 7.8).

use std::fmt::Debug;

use api::operator::NamespacedName;
use api::operator::v1::{NodeGroup, NumaResourcesOperator};
use api::scheduler::v1::NumaResourcesScheduler;
use api::{conditions, names};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::checks::{Rollout, describe};
use crate::context::Context;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::StepError;

/// Selector of the exporters' pods.
const RTE_PODS: &str = "name=resource-topology";

impl Context {
    fn operators(&self) -> Api<NumaResourcesOperator> {
        Api::all(self.client())
    }

    /// Returns the resource of the operator, which configures the exporters.
    pub async fn operator_resource(&self) -> Result<NumaResourcesOperator, StepError> {
        let found = self.operators().get_opt(names::OPERATOR_CR).await?;
        found.ok_or_else(|| {
            let name = names::OPERATOR_CR;
            StepError::Skip(format!("there is no NUMAResourcesOperator {name}"))
        })
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
        );
        let patch = Patch::Merge(json!({"spec": {field: new}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes it, and waits until neither a DaemonSet of exporters nor a pod of theirs is left. It is restored at the end in any case.
    /// Returns its old state.
    pub async fn remove_operator_resource(&self) -> Result<NumaResourcesOperator, StepError> {
        let object = self.operator_resource().await?;
        let reference = ObjectRef::of(&object);
        self.recorder.plan(
            &format!("delete {reference}"),
            Undo::Create {
                object: reference,
                manifest: json!(object),
            },
        );
        self.operators()
            .delete(names::OPERATOR_CR, &DeleteParams::default())
            .await?;
        for set in object.status.iter().flat_map(|status| &status.daemonsets) {
            self.is_gone(&ObjectRef {
                api_version: "apps/v1".to_owned(),
                kind: "DaemonSet".to_owned(),
                plural: "daemonsets".to_owned(),
                namespace: Some(set.namespace.clone()),
                name: set.name.clone(),
            })
            .await?;
        }
        let pods = Api::<Pod>::all(self.client());
        let exporters = ListParams::default().labels(RTE_PODS);
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
        let create = Undo::Create {
            object: ObjectRef::of(object),
            manifest: json!(object),
        };
        let created = create.run(&self.client()).await;
        created.map_err(|error| StepError::fail(error.to_string()))
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
        );
        let patch = Patch::Merge(template(json!(changed)));
        deployments
            .patch(names::OPERATOR_DEPLOYMENT, &PatchParams::default(), &patch)
            .await?;
        let limit = self.deadlines().installed;
        self.until("the operator has restarted", limit, async || {
            let now = deployments.get(names::OPERATOR_DEPLOYMENT).await?;
            let status = now.status.unwrap_or_default();
            let [all, updated, ready] = [
                status.replicas,
                status.updated_replicas,
                status.ready_replicas,
            ]
            .map(Option::unwrap_or_default);
            let is_observed = status.observed_generation == now.metadata.generation;
            Ok(if is_observed && [updated, ready] == [all; 2] {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(format!(
                    "of {all} pods {updated} are updated, {ready} ready"
                ))
            })
        })
        .await
    }

    /// Waits until a condition of this resource is True at its current generation, with this reason and a message that contains this text.
    pub async fn operator_is(&self, kind: &str, reason: &str, text: &str) -> Result<(), StepError> {
        let what = format!("NUMAResourcesOperator is {kind}: {reason} {text}");
        let limit = self.deadlines().installed;
        self.until(&what, limit, async || {
            let object = self.operator_resource().await?;
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

    /// Waits until everything that the stack's current resources specify runs everywhere. A resource that does not exist is not waited for.
    pub async fn operands_rolled_out(&self) -> Result<(), StepError> {
        if self
            .operators()
            .get_opt(names::OPERATOR_CR)
            .await?
            .is_some()
        {
            self.operator_is(conditions::AVAILABLE, conditions::AVAILABLE, "")
                .await?;
            let status = self.operator_resource().await?.status.unwrap_or_default();
            for set in status.daemonsets {
                self.exporters_rolled_out(&set).await?;
            }
        }
        if self
            .schedulers()
            .get_opt(names::SCHEDULER_CR)
            .await?
            .is_some()
        {
            self.scheduler_available().await?;
        }
        Ok(())
    }

    async fn exporters_rolled_out(&self, named: &NamespacedName) -> Result<(), StepError> {
        let sets = Api::<DaemonSet>::namespaced(self.client(), &named.namespace);
        let what = format!("DaemonSet {} is rolled out", named.name);
        self.until(&what, self.deadlines().installed, async || {
            let rollout = Rollout::of(&sets.get(&named.name).await?);
            Ok(if rollout.is_over() {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(rollout.to_string())
            })
        })
        .await
    }

    fn schedulers(&self) -> Api<NumaResourcesScheduler> {
        Api::all(self.client())
    }

    /// Returns the resource of the scheduler under test.
    pub async fn scheduler_resource(&self) -> Result<NumaResourcesScheduler, StepError> {
        let found = self.schedulers().get_opt(names::SCHEDULER_CR).await?;
        found.ok_or_else(|| {
            let name = names::SCHEDULER_CR;
            StepError::Skip(format!("there is no NUMAResourcesScheduler {name}"))
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
            let object = self.schedulers().get(names::SCHEDULER_CR).await?;
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
        let ours = ListParams::default().labels(&format!("app={}", names::SCHEDULER));
        Ok(pods.list(&ours).await?.items)
    }

    /// Deletes the scheduler's resource, and waits until neither its Deployment nor a pod of it is left. Returns the undo that restores it,
    /// which runs at the end in any case.
    pub async fn remove_scheduler(&self) -> Result<Undo, StepError> {
        let object = self.scheduler_resource().await?;
        let reference = ObjectRef::of(&object);
        let undo = Undo::Create {
            object: reference.clone(),
            manifest: json!(object),
        };
        self.recorder
            .plan(&format!("delete {reference}"), undo.clone());
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
        let restored = removed.run(&self.client()).await;
        restored.map_err(|error| StepError::fail(error.to_string()))?;
        self.scheduler_available().await
    }
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
