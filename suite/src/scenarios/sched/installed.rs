//! The scheduler is created for its resource and deleted with it (scenarios-other.md 4.1, 4.2).

use api::{conditions, names};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::deployments;
use super::replicas::{replicas, replicas_are};
use crate::context::Context;
use crate::context::checks::node_of;
use crate::environment::Platform;
use crate::ledger::ObjectRef;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

const DEFINITION: &str = "numaresourcesschedulers.nodetopology.openshift.io";
/// Default number of replicas on a control plane with at least this many nodes; with fewer nodes there is a single replica
/// (operator.md 5.5).
const REPLICATED: usize = 3;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "sched/install",
            &[],
            body(|ctx| Box::pin(resource_brings_the_scheduler(ctx))),
        ),
        scenario(
            "sched/uninstall",
            &[],
            body(|ctx| Box::pin(nothing_is_left(ctx))),
        ),
    ]
}

async fn resource_brings_the_scheduler(ctx: &Context) -> Result<(), StepError> {
    let removed = ctx
        .step("there is no scheduler", ctx.remove_scheduler())
        .await?;
    ctx.step("its resource brings one", async {
        ctx.restore_scheduler(&removed).await?;
        ctx.scheduler_is(conditions::UPGRADEABLE, None).await?;
        let status = ctx.scheduler_resource().await?.status.unwrap_or_default();
        let bad = [conditions::DEGRADED, conditions::PROGRESSING];
        let seen = status
            .conditions
            .iter()
            .find(|one| bad.contains(&one.type_.as_str()) && one.status == "True");
        match seen {
            None => Ok(()),
            Some(one) => Err(StepError::mismatch(
                "condition",
                "none that is bad",
                &one.type_,
            )),
        }
    })
    .await?;
    ctx.step("its kind is defined", async {
        let definitions = Api::<CustomResourceDefinition>::all(ctx.client());
        definitions.get(DEFINITION).await?;
        Ok(())
    })
    .await?;
    replicas_follow_the_nodes(ctx).await
}

/// Checks the number of replicas and, where nodes have the control plane, that the replicas are on these, which they prefer. A hosted cluster's have
/// not: there workers are counted, and a replica may be on any node.
async fn replicas_follow_the_nodes(ctx: &Context) -> Result<(), StepError> {
    let platform = ctx.facts().environment.platform;
    let label = platform.label_of_schedulers();
    ctx.step(
        format!("nodes with the label {label} decide on its replicas"),
        async {
            let params = ListParams::default().labels(label);
            let nodes = Api::<Node>::all(ctx.client()).list(&params).await?.items;
            let nodes: Vec<String> = nodes.iter().map(kube::ResourceExt::name_any).collect();
            let count = replicas(&deployments(ctx).get(names::SCHEDULER).await?);
            replicas_are(ctx, count).await?;
            let pods = ctx.scheduler_pods().await?;
            let wanted = if nodes.len() < REPLICATED {
                1
            } else {
                REPLICATED
            };
            if pods.len() != wanted {
                return Err(StepError::mismatch("replicas", wanted, pods.len()));
            }
            let misplaced = pods.iter().find_map(|pod| {
                let node = node_of(pod).unwrap_or_default();
                (!nodes.iter().any(|one| one == node)).then_some((pod, node))
            });
            match misplaced {
                Some((pod, node)) if platform != Platform::Hypershift => {
                    let what = format!("node of {}", pod.name_any());
                    Err(StepError::mismatch(what, nodes.join(", "), node))
                }
                _ => {
                    ctx.recorder
                        .saw(format!("{wanted} for {}", nodes.join(", ")));
                    Ok(())
                }
            }
        },
    )
    .await
}

/// Returns the objects of the scheduler (operator.md 6.1).
fn objects() -> [ObjectRef; 9] {
    let here = Some(names::NAMESPACE);
    [
        ObjectRef::named::<ServiceAccount>(here, names::SCHEDULER),
        ObjectRef::named::<ConfigMap>(here, names::SCHEDULER_CONFIG_MAP),
        ObjectRef::named::<Deployment>(here, names::SCHEDULER),
        ObjectRef::named::<ClusterRole>(None, names::SCHEDULER_CLUSTER_ROLE),
        ObjectRef::named::<ClusterRoleBinding>(None, names::SCHEDULER_CLUSTER_ROLE),
        ObjectRef::named::<Role>(here, names::SCHEDULER_LEADER_ROLE),
        ObjectRef::named::<RoleBinding>(here, names::SCHEDULER_LEADER_ROLE),
        ObjectRef::named::<NetworkPolicy>(here, "scheduler-default-deny-all"),
        ObjectRef::named::<NetworkPolicy>(here, "scheduler-egress-to-api-server"),
    ]
}

async fn nothing_is_left(ctx: &Context) -> Result<(), StepError> {
    ctx.scheduler_resource().await?;
    let objects = objects();
    ctx.step("all of the scheduler is there", ctx.are_there(&objects))
        .await?;
    let removed = ctx
        .step("its resource is deleted", ctx.remove_scheduler())
        .await?;
    ctx.step("nothing of it is left", ctx.are_gone(&objects))
        .await?;
    ctx.step("the scheduler is back", ctx.restore_scheduler(&removed))
        .await
}
