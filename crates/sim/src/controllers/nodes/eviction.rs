//! Eviction of pods from nodes whose taints they do not tolerate.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::time::Instant;

use super::Controller;
use crate::controllers::mirror::{Mirror, ObjectKey};
use crate::controllers::objects;
use crate::controllers::placement::{self, NO_EXECUTE};

impl Controller {
    /// Removes a pod from a node with taints that it does not tolerate, or tolerates only for a time.
    pub(super) async fn evict(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let found = self.world.pods.get(key).and_then(|pod| {
            let node = objects::node_of(&pod)?;
            let node = self.world.nodes.get(&ObjectKey::new("", node))?;
            Some((pod, node))
        });
        let Some((pod, node)) = found.filter(|(pod, _)| !objects::deleting(&**pod)) else {
            self.leaving.lock().remove(key);
            return Ok(());
        };
        let tolerations = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.tolerations.clone())
            .unwrap_or_default();
        let mut least: Option<i64> = None;
        let mut now = false;
        let mut any = false;
        for taint in placement::taints(&node, NO_EXECUTE) {
            any = true;
            let mut tolerated = false;
            for toleration in tolerations
                .iter()
                .filter(|it| placement::tolerates(it, taint))
            {
                tolerated = true;
                let seconds = toleration.toleration_seconds;
                least = [least, seconds].into_iter().flatten().min();
            }
            now |= !tolerated;
        }
        if !any || !now && least.is_none() {
            let cancelled = self.leaving.lock().remove(key).is_some();
            if cancelled {
                let what = format!("Cancelling deletion of Pod {key}");
                self.evictions.normal(&*pod, "TaintManagerEviction", what);
            }
            return Ok(());
        }
        if !now {
            let wait = Duration::from_secs(least.unwrap_or(0).max(0).unsigned_abs());
            let since = {
                let mut leaving = self.leaving.lock();
                let uid = objects::uid(&*pod).to_owned();
                let entry = leaving
                    .entry(key.clone())
                    .or_insert_with(|| (uid.clone(), Instant::now()));
                if entry.0 != uid {
                    *entry = (uid, Instant::now());
                }
                entry.1
            };
            let spent = since.elapsed();
            if spent < wait {
                self.pods.add_after(key.clone(), wait.saturating_sub(spent));
                return Ok(());
            }
        }
        self.leaving.lock().remove(key);
        let what = format!("Marking for deletion Pod {key}");
        self.evictions.normal(&*pod, "TaintManagerEviction", what);
        mark(
            &self.world.pods,
            &pod,
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            None,
        )
        .await?;
        self.world.pods.delete(&pod, &DeleteParams::default()).await
    }
}

/// Adds the condition `DisruptionTarget`: the cluster removes the pod, not its owner.
pub(crate) async fn mark(
    pods: &Mirror<Pod>,
    pod: &Pod,
    reason: &str,
    message: &str,
    phase: Option<&str>,
) -> Result<(), kube::Error> {
    let mut patch = json!({
        "metadata": {"uid": objects::uid(pod)},
        "status": {"conditions": objects::disrupted(pod, reason, message)},
    });
    if let Some(phase) = phase {
        patch["status"]["phase"] = json!(phase);
    }
    match pods.patch_status(pod, &patch).await {
        Err(error) if objects::code(&error) != 404 => Err(error),
        _ => Ok(()),
    }
}
