//! The status of a DaemonSet.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::Node;

use super::tie::should_run_on;
use super::{Controller, update};
use crate::controllers::mirror::ObjectKey;
use crate::controllers::objects;

impl Controller {
    /// Writes the status if it changed.
    pub(super) async fn store_status(
        &self,
        set: &DaemonSet,
        nodes: &[Arc<Node>],
        hash: &str,
    ) -> Result<(), kube::Error> {
        let by_node = self.by_node(set).await?;
        let min_ready = update::min_ready(set);
        let before = set.status.clone().unwrap_or_default();
        let mut status = DaemonSetStatus {
            observed_generation: set.metadata.generation,
            collision_count: before.collision_count,
            conditions: before.conditions.clone(),
            ..DaemonSetStatus::default()
        };
        let (mut available, mut updated) = (0, 0);
        let mut next: Option<Duration> = None;
        for node in nodes {
            let (run, _) = should_run_on(set, node);
            let pod = by_node
                .get(objects::name(&**node))
                .and_then(|pods| pods.first());
            match (run, pod) {
                (true, None) => status.desired_number_scheduled += 1,
                (true, Some(pod)) => {
                    status.desired_number_scheduled += 1;
                    status.current_number_scheduled += 1;
                    status.number_ready += i32::from(objects::ready(pod));
                    match objects::available(pod, min_ready) {
                        Ok(()) => available += 1,
                        Err(wait) => next = [next, wait].into_iter().flatten().min(),
                    }
                    updated += i32::from(update::is_updated(set, pod, hash));
                }
                (false, Some(_)) => status.number_misscheduled += 1,
                (false, None) => {}
            }
        }
        let nonzero = |number: i32| (number != 0).then_some(number);
        status.number_available = nonzero(available);
        status.updated_number_scheduled = nonzero(updated);
        status.number_unavailable = nonzero(status.desired_number_scheduled - available);
        if let Some(next) = next {
            self.queue.add_after(ObjectKey::of(&set.metadata), next);
        }
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let mut object = set.clone();
        object.status = Some(status);
        self.world.daemon_sets.replace_status(&object).await?;
        Ok(())
    }
}
