//! What a StatefulSet has reached.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::history::History;
use super::{identity, is_available, is_ready};
use crate::controllers::objects;

/// Returns the status of a set with these pods, of which `leaving` are being replaced since they were looked at.
pub(super) fn status(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    history: &History,
    leaving: i32,
) -> StatefulSetStatus {
    let [current, update] =
        [&history.current, &history.update].map(|revision| objects::name(&**revision));
    let members = pods
        .iter()
        .filter(|pod| identity::ordinal(set, pod).is_some());
    let members: Vec<&Arc<Pod>> = members.collect();
    let count =
        |counts: &dyn Fn(&Pod) -> bool| members.iter().filter(|pod| counts(pod)).count() as i32;
    let of = |revision: &str| {
        count(&|pod| !objects::deleting(pod) && identity::revision(pod) == Some(revision))
    };
    let replicas = members.len() as i32;
    let ready = count(&is_ready);
    let updated = of(update);
    let mut counted = of(current) - leaving;
    let mut current = current;
    let spec = set.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref());
    let is_rolling = strategy == Some("RollingUpdate");
    if is_rolling && [updated, ready, replicas] == [wanted; 3] {
        (counted, current) = (updated, update);
    }
    let nonzero = |number: i32| (number != 0).then_some(number);
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas,
        ready_replicas: nonzero(ready),
        available_replicas: Some(count(&|pod| is_available(set, pod))),
        current_replicas: nonzero(counted),
        updated_replicas: nonzero(updated),
        current_revision: Some(current.to_owned()),
        update_revision: Some(update.to_owned()),
        collision_count: Some(history.collisions),
        conditions: None,
    }
}
