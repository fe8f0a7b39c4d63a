//! The exporters of the first node group, and what becomes of them when the first of their nodes is tainted.

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::json;

use super::KEY;
use crate::context::Context;
use crate::context::checks::{Rollout, describe, node_of};
use crate::ledger::Undo;
use crate::recorder::PollResult;
use crate::step::StepError;

/// The exporters of the first node group.
pub(super) struct Exporters<'a> {
    pub(super) ctx: &'a Context,
    pub(super) namespace: String,
    pub(super) name: String,
    /// The nodes that they run on before a node is tainted.
    pub(super) nodes: Vec<String>,
}

impl<'a> Exporters<'a> {
    pub(super) async fn find(ctx: &'a Context) -> Result<Self, StepError> {
        ctx.step("the exporters of the first node group run", async {
            let status = ctx.operator_resource().await?.status.unwrap_or_default();
            let Some(first) = status.daemonsets.first() else {
                return Err(StepError::fail("the status names no daemon sets"));
            };
            let mut found = Self {
                ctx,
                namespace: first.namespace.clone(),
                name: first.name.clone(),
                nodes: Vec::new(),
            };
            found.nodes = found.settled_nodes().await?;
            ctx.recorder
                .saw(format!("{} on {}", found.name, found.nodes.join(", ")));
            Ok(found)
        })
        .await
    }

    /// Returns the nodes of all its pods, once no pod is being created or deleted: pods of the previous scenario may still be terminating.
    async fn settled_nodes(&self) -> Result<Vec<String>, StepError> {
        self.ctx.operator_available().await?;
        let what = format!("{} is ready, and none of its pods is going", self.name);
        let limit = self.ctx.deadlines().installed;
        self.ctx
            .until(&what, limit, async || {
                let Some(rollout) = self.rollout().await? else {
                    return Ok(PollResult::NotYet("it is not there".to_owned()));
                };
                let pods = self.pods().await?;
                let nodes = pods
                    .iter()
                    .filter_map(|pod| node_of(pod).map(str::to_owned))
                    .collect::<Vec<_>>();
                let settled = !nodes.is_empty()
                    && pods.len() == nodes.len()
                    && i32::try_from(nodes.len()) == Ok(rollout.wanted);
                Ok(if rollout.is_over() && settled {
                    PollResult::Ready(nodes)
                } else {
                    PollResult::NotYet(format!("{rollout}; pods on {}", nodes.join(", ")))
                })
            })
            .await
    }

    /// Returns the node that is tainted.
    fn node(&self) -> &str {
        &self.nodes[0]
    }

    pub(super) fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.ctx.client(), &self.namespace)
    }

    /// Returns its pods, including those that are being deleted.
    pub(super) async fn pods(&self) -> Result<Vec<Pod>, StepError> {
        let set = self.sets().get(&self.name).await?;
        let uid = set.uid();
        let pods = Api::<Pod>::namespaced(self.ctx.client(), &self.namespace);
        let all = pods.list(&ListParams::default()).await?.items;
        let ours = |pod: &Pod| {
            let mut owners = pod.owner_references().iter();
            owners.any(|owner| Some(&owner.uid) == uid.as_ref())
        };
        Ok(all.into_iter().filter(ours).collect())
    }

    /// Returns its pod on the tainted node.
    async fn pod_there(&self) -> Result<Option<Pod>, StepError> {
        let pods = self.pods().await?;
        let mut pods = pods.into_iter();
        Ok(pods.find(|pod| node_of(pod) == Some(self.node())))
    }

    async fn spec(&self) -> Result<DaemonSetSpec, StepError> {
        let set = self.sets().get(&self.name).await?;
        Ok(set.spec.unwrap_or_default())
    }

    pub(super) async fn tolerations(&self) -> Result<Vec<Toleration>, StepError> {
        let pod = self.spec().await?.template.spec.unwrap_or_default();
        Ok(pod.tolerations.unwrap_or_default())
    }

    /// Returns how far the rollout of the set is; `None` if the set does not exist.
    async fn rollout(&self) -> Result<Option<Rollout>, StepError> {
        let set = self.sets().get_opt(&self.name).await?;
        Ok(set.as_ref().map(Rollout::of))
    }

    /// Waits until the set desires this many pods, and all of them are ready and up to date.
    pub(super) async fn ready_on(&self, count: usize) -> Result<(), StepError> {
        // before that, the set may still reflect an older spec of the resource
        self.ctx.operator_available().await?;
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let what = format!("{} is ready on {count} nodes", self.name);
        let limit = self.ctx.deadlines().installed;
        self.ctx
            .until(&what, limit, async || {
                let Some(rollout) = self.rollout().await? else {
                    return Ok(PollResult::NotYet("it is not there".to_owned()));
                };
                Ok(if rollout.is_over() && rollout.wanted == count {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(rollout.to_string())
                })
            })
            .await
    }

    /// Waits until the set desires this many pods.
    pub(super) async fn wanted_on(&self, count: usize) -> Result<(), StepError> {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let what = format!("{} wants {count} pods", self.name);
        let limit = self.ctx.deadlines().running;
        self.ctx
            .until(&what, limit, async || {
                let status = self.sets().get(&self.name).await?.status;
                let wanted = status.map_or(0, |status| status.desired_number_scheduled);
                Ok(if wanted == count {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("it wants {wanted}"))
                })
            })
            .await
    }

    /// Checks that this many of its pods are there to stay.
    pub(super) async fn are(&self, count: usize) -> Result<(), StepError> {
        let pods = self.pods().await?;
        let stay = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let seen = stay.count();
        if seen == count {
            return Ok(());
        }
        Err(StepError::mismatch("exporters that stay", count, seen))
    }

    /// Waits until a pod is gone.
    pub(super) async fn wait_until_gone(&self, pod: &Pod) -> Result<(), StepError> {
        let pods = Api::<Pod>::namespaced(self.ctx.client(), &self.namespace);
        let what = format!("pod {} is gone", pod.name_any());
        self.ctx
            .until(&what, self.ctx.deadlines().gone, async || {
                let found = pods.get_opt(&pod.name_any()).await?;
                Ok(match found.filter(|now| now.uid() == pod.uid()) {
                    None => PollResult::Ready(()),
                    Some(now) => PollResult::NotYet(describe(&now)),
                })
            })
            .await
    }

    /// Waits until one of its pods is on the tainted node.
    pub(super) async fn is_there(&self) -> Result<Pod, StepError> {
        let what = format!("an exporter is on {}", self.node());
        let limit = self.ctx.deadlines().running;
        self.ctx
            .until(&what, limit, async || {
                Ok(match self.pod_there().await? {
                    Some(pod) => PollResult::Ready(pod),
                    None => PollResult::NotYet("none is".to_owned()),
                })
            })
            .await
    }

    pub(super) async fn is_not_there(&self) -> Result<(), StepError> {
        match self.pod_there().await? {
            None => Ok(()),
            Some(pod) => Err(StepError::mismatch(
                format!("an exporter on {}", self.node()),
                "none",
                describe(&pod),
            )),
        }
    }

    pub(super) async fn taint(&self, value: Option<&str>, effect: &str) -> Result<(), StepError> {
        self.ctx
            .taint_node_with(self.node(), KEY, value, effect)
            .await
    }

    /// Taints the node with another key.
    pub(super) async fn taint_by(&self, key: &str, effect: &str) -> Result<(), StepError> {
        self.ctx.taint_node(self.node(), key, effect).await
    }

    pub(super) async fn untaint(&self, effect: &str) -> Result<(), StepError> {
        self.untaint_by(KEY, effect).await
    }

    pub(super) async fn untaint_by(&self, key: &str, effect: &str) -> Result<(), StepError> {
        let undo = Undo::RemoveTaint {
            node: self.node().to_owned(),
            key: key.to_owned(),
            effect: effect.to_owned(),
        };
        self.ctx.undo(&undo).await
    }

    /// Waits until its pods are made with exactly these tolerations.
    pub(super) async fn tolerate(&self, wanted: &[Toleration]) -> Result<(), StepError> {
        let limit = self.ctx.deadlines().installed;
        self.ctx
            .until("the daemon set has the tolerations", limit, async || {
                let seen = self.tolerations().await?;
                Ok(if seen == wanted {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(json!(seen).to_string())
                })
            })
            .await
    }
}
