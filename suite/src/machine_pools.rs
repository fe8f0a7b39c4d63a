//! Pools of machines on `OpenShift`, and the configurations of their kubelets.

use std::time::Duration;

use api::openshift::machine_config::{KubeletConfig, MachineConfigPool, UPDATED};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use crate::recorder::{PollResult, Recorder};
use crate::step::StepError;

/// Returns the name of the last configuration that all machines of a pool had.
pub async fn configuration(client: &Client, pool: &str) -> Result<String, StepError> {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let status = pools.get(pool).await?.status.unwrap_or_default();
    Ok(status.configuration.name)
}

/// Waits until all machines of a pool have another configuration than `before` and are ready.
pub async fn rolled_out(
    recorder: &Recorder,
    client: &Client,
    pool: &str,
    before: &str,
    limit: Duration,
) -> Result<(), StepError> {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let what = format!("pool {pool} is updated to another configuration");
    recorder
        .until(&what, limit, async || {
            let status = pools.get(pool).await?.status.unwrap_or_default();
            let is_other = status.configuration.name != before;
            let is_ready = status.ready_machine_count == status.machine_count;
            let is_updated = status.condition(UPDATED) == Some("True");
            Ok(if is_other && is_ready && is_updated {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(format!(
                    "{} of {} machines are updated, {} ready",
                    status.updated_machine_count, status.machine_count, status.ready_machine_count
                ))
            })
        })
        .await
}

/// Returns the `KubeletConfig` objects, oldest first. If several select one pool, the newest takes effect.
pub async fn kubelet_configs(client: &Client) -> Result<Vec<KubeletConfig>, StepError> {
    let configs = Api::<KubeletConfig>::all(client.clone());
    let mut items = configs.list(&ListParams::default()).await?.items;
    items.sort_by_key(|config| (config.creation_timestamp(), config.name_any()));
    Ok(items)
}

/// Returns the configuration that a running kubelet reports.
pub async fn kubelet(client: &Client, node: &str) -> Result<Value, StepError> {
    let url = format!("/api/v1/nodes/{node}/proxy/configz");
    let request = http::Request::get(&url)
        .body(Vec::new())
        .map_err(|error| StepError::fail(format!("{url}: {error}")))?;
    let mut response = client.request::<Value>(request).await?;
    Ok(response["kubeletconfig"].take())
}
