//! The exporters: their daemon sets and pods.

use api::labels::{RTE_POD, RTE_POD_VALUE};
use api::operator::NamespacedName;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::Client;
use kube::api::{Api, ListParams};

use super::Component;
use crate::context::Context;
use crate::context::checks::{Rollout, node_of};
use crate::recorder::PollResult;
use crate::step::StepError;

impl Context {
    /// Returns the exporters' daemon sets. It is an error if there are none.
    pub async fn exporter_daemon_sets(&self) -> Result<Vec<DaemonSet>, StepError> {
        let sets = daemon_sets(&self.client()).await?;
        if sets.is_empty() {
            return Err(StepError::fail("no daemon set runs exporters"));
        }
        Ok(sets)
    }

    /// Returns the exporters' pods. It is an error if there are none.
    pub async fn exporters(&self) -> Result<Vec<Pod>, StepError> {
        let ours = Component::Exporters.pods();
        let pods = Api::<Pod>::all(self.client()).list(&ours).await?.items;
        if pods.is_empty() {
            let label = Component::Exporters.selector();
            return Err(StepError::fail(format!("no pod has the label {label}")));
        }
        Ok(pods)
    }

    /// Returns the exporter's pod on a node. It is an error if there is none.
    pub async fn exporter_on(&self, node: &str) -> Result<Pod, StepError> {
        let exporters = self.exporters().await?;
        let here = exporters.into_iter().find(|pod| node_of(pod) == Some(node));
        here.ok_or_else(|| StepError::fail(format!("no exporter runs on {node}")))
    }

    pub(super) async fn exporters_rolled_out(
        &self,
        named: &NamespacedName,
    ) -> Result<(), StepError> {
        let sets = Api::<DaemonSet>::namespaced(self.client(), &named.namespace);
        let what = format!("DaemonSet {} is rolled out", named.name);
        self.until(&what, self.deadlines().installed, async || {
            let rollout = Rollout::of(&sets.get(&named.name).await?);
            Ok(if rollout.is_over() {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(rollout.to_string())
            })
        })
        .await
    }
}

/// Returns the exporter's container.
pub(crate) fn container(spec: &PodSpec) -> Option<&Container> {
    let is_exporter = |container: &&Container| {
        let args = container.command.iter().chain(&container.args).flatten();
        args.clone()
            .next()
            .is_some_and(|arg| arg.contains("resource-topology-exporter"))
    };
    spec.containers.iter().find(is_exporter)
}

/// Returns the daemon sets whose pods have the exporters' label.
pub(crate) async fn daemon_sets(client: &Client) -> Result<Vec<DaemonSet>, StepError> {
    let all = Api::<DaemonSet>::all(client.clone());
    let mut sets = all.list(&ListParams::default()).await?.items;
    sets.retain(|set| {
        let labels = set
            .spec
            .as_ref()
            .and_then(|spec| spec.template.metadata.as_ref()?.labels.as_ref());
        labels
            .and_then(|labels| labels.get(RTE_POD))
            .is_some_and(|value| value == RTE_POD_VALUE)
    });
    Ok(sets)
}
