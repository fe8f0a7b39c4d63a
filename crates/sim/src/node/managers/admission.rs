//! Admission of a pod: the model decides, and device plugins are asked for what they prefer, give and prepare.

use k8s_openapi::api::core::v1::Pod;
use kubelet_model::device::DevicePreferences;
use kubelet_model::node::{Node, Refusal};
use podresources::deviceplugin::v1beta1::ContainerAllocateResponse;
use tonic::Status;

use super::Managers;
use crate::controllers::objects;

/// Reason of a refusal when a manager fails.
const UNEXPECTED: &str = "UnexpectedAdmissionError";

impl Managers {
    /// Admits a pod and allocates what its containers need.
    pub(crate) async fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let held = self.decide(pod, &uid).await?;
        for (container, resource, ids) in held {
            match self.plugins.allocate(&resource, ids).await {
                Ok(answer) => {
                    let key = (uid.clone(), container, resource);
                    let answer = answer.into_iter().next().unwrap_or_default();
                    self.lock().answers.insert(key, answer);
                }
                Err(status) => {
                    self.stopped(&uid);
                    return Err(allocation_failed(&status));
                }
            }
        }
        self.write(&mut self.lock());
        Ok(())
    }

    /// Lets the model decide about a pod, and repeats that as long as a plugin has to be asked for its preferred devices. Returns the
    /// devices that the containers hold afterwards.
    async fn decide(
        &self,
        pod: &Pod,
        uid: &str,
    ) -> Result<Vec<(String, String, Vec<String>)>, Refusal> {
        let mut preferences = DevicePreferences {
            resources: self.plugins.with_preferred_allocation(),
            answers: Vec::new(),
        };
        loop {
            let request = {
                let mut model = self.lock();
                let before = (!preferences.resources.is_empty()).then(|| model.node.clone());
                model.node.devices().set_preferences(preferences.clone());
                let outcome = model.node.admit(pod).unwrap_or_else(|error| {
                    Err(Refusal {
                        reason: UNEXPECTED.to_owned(),
                        message: format!("Pod was rejected: {error}"),
                    })
                });
                model
                    .node
                    .devices()
                    .set_preferences(DevicePreferences::default());
                let request = model.node.devices().take_preference_request();
                let (Some(request), Some(before)) = (request, before) else {
                    if outcome.is_err() {
                        self.write(&mut model);
                    }
                    return outcome.map(|()| held(&mut model.node, pod, uid));
                };
                model.node = before;
                request
            };
            let preferred = self.plugins.prefer(&request).await;
            let preferred = preferred.map_err(|status| allocation_failed(&status))?;
            preferences.answers.push((request, preferred));
        }
    }

    /// Calls `PreStartContainer` of the plugins that require it before a container with their devices starts. Returns why the container
    /// must not start.
    pub(crate) async fn pre_start(&self, uid: &str, container: &str) -> Result<(), String> {
        for resource in self.plugins.with_pre_start() {
            let ids = {
                let mut model = self.lock();
                let held = model.node.devices().held(uid, container);
                held.and_then(|held| held.get(&resource)).cloned()
            };
            let Some(ids) = ids else { continue };
            let called = self.plugins.pre_start(&resource, ids.into_iter().collect());
            called.await.map_err(|status| {
                format!(
                    "device plugin PreStartContainer rpc failed with err: {}",
                    rpc_error(&status)
                )
            })?;
        }
        Ok(())
    }

    /// Returns what plugins want a container to have.
    pub(crate) fn answers(&self, uid: &str, container: &str) -> Vec<ContainerAllocateResponse> {
        let model = self.lock();
        let all = model.answers.iter();
        all.filter(|((pod, name, _), _)| pod == uid && name == container)
            .map(|(_, answer)| answer.clone())
            .collect()
    }
}

/// Formats an error of a plugin in the kubelet's words.
fn rpc_error(status: &Status) -> String {
    format!(
        "rpc error: code = {:?} desc = {}",
        status.code(),
        status.message()
    )
}

/// Returns the refusal of a pod because of an error of a plugin.
fn allocation_failed(status: &Status) -> Refusal {
    Refusal {
        reason: UNEXPECTED.to_owned(),
        message: format!(
            "Pod was rejected: Allocate failed due to {}, which is unexpected",
            rpc_error(status)
        ),
    }
}

/// Returns container, resource and ids of all devices that a pod holds.
fn held(node: &mut Node, pod: &Pod, uid: &str) -> Vec<(String, String, Vec<String>)> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let containers = objects::containers(spec);
    let mut all = Vec::new();
    for container in containers {
        let held = node.devices().held(uid, &container.name);
        for (resource, ids) in held.into_iter().flatten() {
            let ids = ids.iter().cloned().collect();
            all.push((container.name.clone(), resource.clone(), ids));
        }
    }
    all
}
