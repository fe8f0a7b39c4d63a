//! ReplicationControllers, seen as ReplicaSets.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    Pod, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Set;
use crate::controllers::mirror::Mirror;
use crate::controllers::objects;
use crate::controllers::world::World;

impl Set for ReplicationController {
    const NAME: &'static str = "replicationcontroller";
    const COMPONENT: &'static str = "replication-controller";

    fn mirror(world: &World) -> &Arc<Mirror<Self>> {
        &world.replication_controllers
    }

    fn wanted(&self) -> ReplicaSetSpec {
        let spec = self.spec.clone().unwrap_or_default();
        ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: spec.replicas,
            selector: LabelSelector {
                match_labels: spec.selector,
                match_expressions: None,
            },
            template: spec.template,
        }
    }

    fn told(&self) -> Option<ReplicaSetStatus> {
        let status = self.status.clone()?;
        let conditions = status.conditions.map(|list| {
            let as_of_set = |condition: ReplicationControllerCondition| ReplicaSetCondition {
                type_: condition.type_,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
                last_transition_time: condition.last_transition_time,
            };
            list.into_iter().map(as_of_set).collect()
        });
        Some(ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            conditions,
            observed_generation: status.observed_generation,
        })
    }

    fn tell(&mut self, status: ReplicaSetStatus) {
        let conditions = status.conditions.map(|list| {
            let as_of_controller =
                |condition: ReplicaSetCondition| ReplicationControllerCondition {
                    type_: condition.type_,
                    status: condition.status,
                    reason: condition.reason,
                    message: condition.message,
                    last_transition_time: condition.last_transition_time,
                };
            list.into_iter().map(as_of_controller).collect()
        });
        self.status = Some(ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            conditions,
            observed_generation: status.observed_generation,
        });
    }

    fn selects(&self, pod: &Pod) -> bool {
        let labels = objects::labels(pod);
        let wanted = self.spec.iter().flat_map(|spec| &spec.selector);
        let mut pairs = wanted.flatten().peekable();
        pairs.peek().is_some() && pairs.all(|(key, value)| labels.get(key) == Some(value))
    }
}
