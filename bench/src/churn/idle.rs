//! The way back to an idle cluster after a run.

use std::time::Duration;

use anyhow::bail;
use api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::clients::{CLIENT, Run, pod};

/// Label of the pods that show whether the cluster is idle.
const PROBE: &str = "settled";
/// Longest time from creation to end of such a pod on an idle cluster. A kubelet looks every second whether a container runs or has ended.
const AT_REST: Duration = Duration::from_secs(4);
/// Longest time until pods are deleted or have ended.
const LIMIT: Duration = Duration::from_secs(30);

impl Run<'_> {
    /// Deletes all pods and waits until the kubelets have all of their zones free.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let ours = ListParams::default().labels(CLIENT);
        let at_once = DeleteParams::default();
        self.pods.delete_collection(&at_once, &ours).await?;
        let deadline = Instant::now() + LIMIT;
        while !self.pods.list_metadata(&ours).await?.items.is_empty() {
            if Instant::now() > deadline {
                bail!("the pods were not deleted in time");
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.cluster.wait_until_free().await?;
        self.wait_until_settled().await
    }

    /// Waits until the effects of earlier pods are over: on every worker a pod of our scheduler starts and ends within [`AT_REST`].
    /// Kubelets that refused a thousand pods must forget them, and our scheduler waits for the NRTs of nodes on which other schedulers
    /// placed pods.
    async fn wait_until_settled(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        for round in 0.. {
            let begun = Instant::now();
            for node in self.cluster.worker_names() {
                let name = format!("settled-{round}-{node}");
                let scheduler = names::SCHEDULER_PROFILE;
                let mut pod = pod(&name, &json!({PROBE: ""}), scheduler, 1, "0")?;
                pod.spec.get_or_insert_default().node_selector =
                    Some([(api::labels::HOSTNAME.to_owned(), node)].into());
                self.pods.create(&PostParams::default(), &pod).await?;
            }
            let probes = ListParams::default().labels(PROBE);
            loop {
                let pods = self.pods.list(&probes).await?.items;
                let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
                if pods
                    .iter()
                    .all(|pod| phase(pod).as_deref() == Some("Succeeded"))
                {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("workers are still busy with earlier pods");
                }
                sleep(Duration::from_millis(100)).await;
            }
            let took = begun.elapsed();
            self.pods
                .delete_collection(&DeleteParams::default(), &probes)
                .await?;
            self.cluster.wait_until_free().await?;
            if took < AT_REST {
                break;
            }
        }
        Ok(())
    }
}
