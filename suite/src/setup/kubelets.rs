//! On `OpenShift` the operator learns the kubelets' settings from `KubeletConfig` objects. Where the suite installs the stack and there are
//! none, each pool gets one with the settings that its kubelets already have.

use api::openshift::machine_config::{GROUP, KubeletConfig};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Options, connect, install};
use crate::context::RUN_LABEL;
use crate::ledger::ObjectRef;
use crate::machine_pools;
use crate::recorder::Recorder;
use crate::step::StepError;

/// The fields that the exporters of a pool and the scenarios need in such an object.
const FIELDS: [&str; 4] = [
    "cpuManagerPolicy",
    "memoryManagerPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
];

/// Creates the missing objects, and waits until the kubelets run with them.
pub(super) async fn configured(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
) -> Result<(), StepError> {
    let is_there = connect::has_group(client, GROUP).await?;
    if !is_there || !machine_pools::kubelet_configs(client).await?.is_empty() {
        return Ok(());
    }
    recorder
        .step("each pool has the configuration of its kubelets", async {
            for pool in install::pools(client).await? {
                configure(options, recorder, client, &pool).await?;
            }
            Ok(())
        })
        .await
}

async fn configure(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
    pool: &str,
) -> Result<(), StepError> {
    let members = ListParams::default().labels(&api::labels::node_role(pool));
    let members = Api::<Node>::all(client.clone()).list(&members).await?.items;
    let Some(node) = members.first() else {
        return Ok(());
    };
    let kubelet = machine_pools::kubelet(client, &node.name_any()).await?;
    let payload: serde_json::Map<String, Value> = FIELDS
        .iter()
        .filter_map(|field| Some((field.to_string(), kubelet.get(field)?.clone())))
        .collect();
    let label = format!("pools.operator.machineconfiguration.openshift.io/{pool}");
    let config: KubeletConfig = serde_json::from_value(json!({
        "metadata": {"name": pool, "labels": {RUN_LABEL: options.run}},
        "spec": {"machineConfigPoolSelector": {"matchLabels": {label: ""}}, "kubeletConfig": payload},
    }))
    .map_err(|error| StepError::fail(format!("no KubeletConfig for pool {pool}: {error}")))?;
    let before = machine_pools::configuration(client, pool).await?;
    recorder.plan_creation(&ObjectRef::of(&config))?;
    Api::<KubeletConfig>::all(client.clone())
        .create(&PostParams::default(), &config)
        .await?;
    let limit = options.deadlines.installed;
    machine_pools::rolled_out(recorder, client, pool, &before, limit).await
}
