//! What the scheduler writes after an attempt: bindings, conditions and evictions.

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use super::pending::Change;
use super::preempt::Plan;
use super::{MANAGER, Scheduler, report};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

impl Scheduler {
    /// Binds a pod to the node that it has been placed on.
    pub(super) async fn bind(&self, pod: &Pod, node: &str, priority: i32) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), objects::namespace(pod));
        let binding = Binding {
            metadata: ObjectMeta {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let bound: Result<serde_json::Value, kube::Error> = api
            .create_subresource("binding", objects::name(pod), &params, &binding)
            .await;
        let Err(error) = bound else {
            self.events.scheduled(pod, node);
            return;
        };
        let key = ObjectKey::of(&pod.metadata);
        {
            let mut state = self.state.lock();
            state.ledger.unassume(&key);
            state.pending.changed(Change::Room);
            if objects::code(&error) == 404 {
                return;
            }
            state.pending.fail(&key, priority);
        }
        self.wake.notify_one();
        let why = format!(
            "binding rejected: running Bind plugin \"DefaultBinder\": {}",
            objects::message(&error)
        );
        self.events.failed(pod, &why);
        self.write_condition(pod, "SchedulerError", &why, None)
            .await;
    }

    /// Writes that no node fits, and evicts the victims of a plan.
    pub(super) async fn refused(&self, pod: &Pod, message: &str, plan: Option<Plan>) {
        self.events.failed(pod, message);
        let node = plan.as_ref().map(|plan| plan.node.clone());
        self.write_condition(pod, "Unschedulable", message, node.as_deref())
            .await;
        for victim in plan.into_iter().flat_map(|plan| plan.victims) {
            self.evict(&victim.pod, pod, node.as_deref().unwrap_or_default())
                .await;
        }
    }

    async fn write_condition(
        &self,
        pod: &Pod,
        reason: &str,
        message: &str,
        nominated: Option<&str>,
    ) {
        if let Err(error) = report::refuse(&self.client, pod, reason, message, nominated).await {
            tracing::debug!(%error, "Condition was not written");
        }
    }

    /// Sets the condition `DisruptionTarget` on a victim, then deletes it.
    async fn evict(&self, victim: &Pod, by: &Pod, node: &str) {
        let message = format!(
            "{}: preempting to accommodate a higher priority pod",
            self.options.profile
        );
        let conditions = objects::disrupted(victim, "PreemptionByScheduler", &message);
        let patch = json!({
            "metadata": {"uid": objects::uid(victim)},
            "status": {"conditions": conditions},
        });
        if let Err(error) = report::patch_status(&self.client, victim, &patch).await {
            tracing::debug!(%error, "Condition was not written");
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), objects::namespace(victim));
        match api
            .delete(objects::name(victim), &DeleteParams::default())
            .await
        {
            Ok(_) => self.events.preempted(victim, by, node),
            Err(error) => tracing::debug!(%error, "Victim was not removed"),
        }
    }
}
