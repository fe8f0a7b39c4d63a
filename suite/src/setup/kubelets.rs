//! On `OpenShift` the operator learns the kubelets' settings from `KubeletConfig` objects. Where the suite installs the stack and there are
//! none, each pool gets one with the settings that its kubelets already have. Into a hosted cluster they come from outside, so there they have to
//! be there before.

use api::labels::{HYPERSHIFT_KUBELET_CONFIG, HYPERSHIFT_NODE_POOL};
use api::names::HYPERSHIFT_CONFIG_NAMESPACE;
use api::openshift::machine_config::KubeletConfig;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Options, connect, install};
use crate::context::{RUN_LABEL, creation};
use crate::environment::Platform;
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

/// The title of the step.
const TITLE: &str = "each pool has the configuration of its kubelets";

/// Creates the missing objects, and waits until the kubelets run with them. In a hosted cluster none may be missing.
pub(super) async fn configured(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
) -> Result<(), StepError> {
    let platform = connect::platform(client).await?;
    match platform {
        Platform::Kubernetes => Ok(()),
        Platform::Hypershift => recorder.step(TITLE, all_are_told(client)).await,
        Platform::Openshift if !machine_pools::kubelet_configs(client).await?.is_empty() => Ok(()),
        Platform::Openshift => {
            let each = async {
                for pool in install::pools(client, platform).await? {
                    configure(options, recorder, client, &pool).await?;
                }
                Ok(())
            };
            recorder.step(TITLE, each).await
        }
    }
}

/// Returns an error if the platform has told nothing of some node pool's kubelets (operator.md 7).
async fn all_are_told(client: &Client) -> Result<(), StepError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), HYPERSHIFT_CONFIG_NAMESPACE);
    let told = ListParams::default().labels(HYPERSHIFT_KUBELET_CONFIG);
    let told = maps.list_metadata(&told).await?.items;
    let is_told = |pool: &String| {
        let mut pools = told
            .iter()
            .map(|map| map.labels().get(HYPERSHIFT_NODE_POOL));
        pools.any(|of| of == Some(pool))
    };
    let pools = install::pools(client, Platform::Hypershift).await?;
    match pools.iter().find(|pool| !is_told(pool)) {
        None => Ok(()),
        Some(pool) => Err(StepError::fail(format!(
            "no ConfigMap in namespace {HYPERSHIFT_CONFIG_NAMESPACE} has the labels {HYPERSHIFT_KUBELET_CONFIG} and \
             {HYPERSHIFT_NODE_POOL}={pool}: give NodePool {pool} a KubeletConfig (spec.config) on the management cluster, and wait until its \
             nodes are updated"
        ))),
    }
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
    creation::create(&Api::<KubeletConfig>::all(client.clone()), &config).await?;
    let limit = options.deadlines.installed;
    machine_pools::rolled_out(recorder, client, pool, &before, limit).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn list(pools: &[&str]) -> Value {
        let item = |pool: &&str| json!({"metadata": {"name": pool, "labels": {HYPERSHIFT_NODE_POOL: pool}}});
        let items: Vec<Value> = pools.iter().map(item).collect();
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items})
    }

    #[tokio::test]
    async fn a_node_pool_of_whose_kubelets_nothing_is_told_is_named() {
        let (client, _) = testing::client(|_, path| {
            let answer = match path {
                "/api/v1/nodes" => list(&["a", "b"]),
                _ => list(&["a"]),
            };
            (200, answer)
        });
        let failure = all_are_told(&client).await.expect_err("b is missing");
        let message = failure.into_failure("").message;
        assert!(
            message.contains("give NodePool b a KubeletConfig"),
            "{message}"
        );
    }
}
