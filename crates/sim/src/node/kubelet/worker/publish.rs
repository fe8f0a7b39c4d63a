//! Reports the status of a pod to the API server.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Worker, is_finished, version};
use crate::node::kubelet::static_pods;
use crate::node::status::facts::Facts;
use crate::node::status::{self, View, conditions};

impl Worker {
    /// Writes the status if it changed; returns whether the API server has it now.
    pub(super) async fn publish(&mut self) -> bool {
        // The snapshot is updated first, so that a reader who sees the new status in the API also sees it here.
        self.update_snapshot();
        if self.written_status.is_none() && is_finished(&self.pod) {
            // The pod had finished before this kubelet saw it; nothing else is known.
            return true;
        }
        let is_static = static_pods::is_static(&self.pod);
        if is_static && !self.has_mirror().await {
            return self.pod.metadata.deletion_timestamp.is_some();
        }
        let mut pod = self.pod.clone();
        pod.status = Some(self.merged_status());
        let facts: Vec<Facts> = self.slots.iter().map(|slot| slot.facts.clone()).collect();
        let view = View {
            pod: &pod,
            containers: &facts,
            has_sandbox: self.has_sandbox,
            address: self.address,
            node: self.kubelet.addresses.node(),
            since: self.since,
            verdict: self.verdict.clone(),
            is_over: self.is_over,
            was_initialized: self.was_initialized,
            qos: self.qos,
            resizing: self.resizing.conditions(),
        };
        let status = status::of(&view, Timestamp::now());
        let is_written = self.written_status.as_ref() == Some(&status) && !self.must_rewrite;
        if is_written && !self.is_overwritten() {
            return true;
        }
        if is_static && matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            // While the file of a static pod exists, no final phase is written.
            return true;
        }
        match write(&self.kubelet.client, self.object(), &status).await {
            Ok(pod) => {
                self.written_status = Some(status);
                self.must_rewrite = false;
                if is_static {
                    self.mirror = Some(pod);
                } else if version(&pod) >= version(&self.pod) {
                    self.pod = pod;
                }
                true
            }
            Err(kube::Error::Api(refusal)) if refusal.code == 404 && is_static => {
                self.mirror = None;
                false
            }
            Err(kube::Error::Api(refusal)) if refusal.code == 404 => {
                self.is_gone = true;
                true
            }
            Err(error) => {
                tracing::debug!(%error, pod = self.uid, "The status of a pod is not written yet");
                false
            }
        }
    }

    /// Returns the API object of the pod.
    fn object(&self) -> &Pod {
        self.mirror.as_ref().unwrap_or(&self.pod)
    }

    /// Ensures that a static pod has its mirror pod; returns whether it has.
    async fn has_mirror(&mut self) -> bool {
        let is_ending = self.pod.metadata.deletion_timestamp.is_some();
        if let Some(mirror) = &self.mirror {
            if is_ending || static_pods::is_mirror_of(mirror, &self.pod) {
                return true;
            }
            if !static_pods::remove(&self.kubelet, mirror).await {
                return false;
            }
            self.mirror = None;
        }
        if is_ending {
            return false;
        }
        match static_pods::mirror(&self.kubelet, &self.pod).await {
            Ok(mirror) => {
                let is_right = static_pods::is_mirror_of(&mirror, &self.pod);
                self.mirror = Some(mirror);
                self.must_rewrite = true;
                is_right
            }
            Err(error) => {
                tracing::debug!(%error, pod = self.uid, "A static pod has no mirror yet");
                false
            }
        }
    }

    /// Returns whether somebody else changed conditions of the kubelet, as the node lifecycle controller does for a silent node. Kubelets
    /// correct that once they see it.
    fn is_overwritten(&self) -> bool {
        let own = |status: Option<&PodStatus>| -> BTreeMap<String, String> {
            let all = status.and_then(|status| status.conditions.as_ref());
            all.into_iter()
                .flatten()
                .filter(|condition| conditions::is_own(&condition.type_))
                .map(|condition| (condition.type_.clone(), condition.status.clone()))
                .collect()
        };
        own(self.written_status.as_ref()) != own(self.object().status.as_ref())
    }

    /// Returns the last written status, with what others have added since.
    fn merged_status(&self) -> PodStatus {
        let theirs = self.object().status.clone().unwrap_or_default();
        let Some(written) = &self.written_status else {
            return theirs;
        };
        let mut status = written.clone();
        let ours = written.conditions.iter().flatten();
        let ours = ours
            .filter(|condition| conditions::is_own(&condition.type_))
            .cloned();
        let others = theirs.conditions.into_iter().flatten();
        let others = others.filter(|condition| !conditions::is_own(&condition.type_));
        status.conditions = Some(others.chain(ours).collect());
        status
    }
}

/// Writes a status as a kubelet does: a patch of the kubelet's own fields, with the UID of the pod.
pub(crate) async fn write(
    client: &kube::Client,
    pod: &Pod,
    status: &PodStatus,
) -> kube::Result<Pod> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = patch(pod, status).map_err(kube::Error::SerdeError)?;
    api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch))
        .await
}

fn patch(pod: &Pod, status: &PodStatus) -> serde_json::Result<Value> {
    let mut body = serde_json::to_value(status)?;
    let listed = status.conditions.iter().flatten();
    let order: Vec<Value> = listed
        .clone()
        .map(|condition| json!({ "type": condition.type_ }))
        .collect();
    let mut changed = Vec::new();
    for condition in listed.clone() {
        if conditions::is_own(&condition.type_) {
            let mut value = serde_json::to_value(condition)?;
            // A field that is no longer set needs an explicit null in the patch.
            for field in ["reason", "message"] {
                if value.get(field).is_none() {
                    value[field] = Value::Null;
                }
            }
            changed.push(value);
        }
    }
    let before = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    for condition in before.into_iter().flatten() {
        let is_ours = conditions::is_own(&condition.type_);
        if is_ours && !listed.clone().any(|one| one.type_ == condition.type_) {
            changed.push(json!({ "$patch": "delete", "type": condition.type_ }));
        }
    }
    if !changed.is_empty() {
        body["conditions"] = Value::Array(changed);
        body["$setElementOrder/conditions"] = Value::Array(order);
    }
    Ok(json!({ "metadata": { "uid": pod.metadata.uid }, "status": body }))
}
