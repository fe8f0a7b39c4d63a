//! The machine configuration of a pool that is generated from its `KubeletConfig`.

use std::collections::BTreeMap;

use api::labels::MACHINE_CONFIG_ROLE;
use api::openshift::machine_config::{GROUP, KubeletConfig, MachineConfig, MachineConfigPool};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster_spec::kubelet::KubeletSettings;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Objects, Operator, matches};
use crate::payload;

/// Field manager of the machine configurations.
const MANAGER: &str = "machine-config-operator";
/// Path of the kubelet configuration file in OpenShift.
const KUBELET_FILE: &str = "/etc/kubernetes/kubelet.conf";

impl Operator {
    /// Updates the machine configuration that is generated from the pool's `KubeletConfig`; returns whether it changed.
    pub(super) async fn generate(
        &self,
        pool: &MachineConfigPool,
        objects: &Objects,
    ) -> kube::Result<bool> {
        let name = generated_name(pool);
        let existing = objects
            .configs
            .iter()
            .find(|config| config.name_any() == name);
        let api: Api<MachineConfig> = Api::all(self.client.clone());
        let Some(wanted) = self.payload_of(pool, objects).await? else {
            if existing.is_some() {
                api.delete(&name, &DeleteParams::default()).await?;
            }
            return Ok(existing.is_some());
        };
        let spec = json!({"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{
                "path": KUBELET_FILE,
                "mode": 0o644,
                "overwrite": true,
                "contents": {"source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(wanted.to_string()))},
            }]},
        }});
        if existing.is_some_and(|config| config.spec.config == spec["config"]) {
            return Ok(false);
        }
        let selector = pool
            .spec
            .machine_config_selector
            .clone()
            .unwrap_or_default();
        let labels = selector
            .match_labels
            .unwrap_or_else(|| BTreeMap::from([(MACHINE_CONFIG_ROLE.to_owned(), pool.name_any())]));
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"),
            "kind": "MachineConfig",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        });
        let params = PatchParams::apply(MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(object)).await?;
        Ok(true)
    }

    /// Returns the payload of the newest valid `KubeletConfig` of a pool. Invalid ones get a status with the error.
    async fn payload_of(
        &self,
        pool: &MachineConfigPool,
        objects: &Objects,
    ) -> kube::Result<Option<Value>> {
        for config in &objects.kubelet_configs {
            let selector = config.spec.machine_config_pool_selector.as_ref();
            let is_mine = selector.is_some_and(|selector| matches(selector, pool.labels()));
            let (true, Some(payload)) = (is_mine, &config.spec.kubelet_config) else {
                continue;
            };
            match payload::apply(&KubeletSettings::default(), payload) {
                Ok(_) => {
                    self.write_status(config, "Success", "Success").await?;
                    return Ok(Some(payload.clone()));
                }
                Err(error) => {
                    let message = format!("Error: {error}");
                    self.write_status(config, "Failure", &message).await?;
                }
            }
        }
        Ok(None)
    }

    async fn write_status(
        &self,
        config: &KubeletConfig,
        kind: &str,
        message: &str,
    ) -> kube::Result<()> {
        let status = if kind == "Success" { "True" } else { "False" };
        let last = config
            .status
            .as_ref()
            .map(|status| &status["conditions"][0]);
        let is_written =
            last.is_some_and(|last| last["type"] == kind && last["message"] == message);
        if is_written {
            return Ok(());
        }
        let condition = json!({
            "type": kind, "status": status, "message": message, "lastTransitionTime": Timestamp::now(),
        });
        let patch = json!({"status": {"observedGeneration": config.metadata.generation, "conditions": [condition]}});
        let api: Api<KubeletConfig> = Api::all(self.client.clone());
        api.patch_status(
            &config.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
        Ok(())
    }
}

pub(super) fn generated_name(pool: &MachineConfigPool) -> String {
    format!("99-{}-generated-kubelet", pool.name_any())
}

/// Decodes the payload that [`Operator::generate`] wrote.
pub(super) fn payload_in(config: &MachineConfig) -> Option<Value> {
    let source = config
        .spec
        .config
        .pointer("/storage/files/0/contents/source")?;
    let (_, text) = source.as_str()?.rsplit_once(',')?;
    serde_json::from_slice(&STANDARD.decode(text).ok()?).ok()
}
