//! Configurations of kubelets on `OpenShift`, and how the stack follows them.
//!
//! Each scenario takes the first node group whose pool has a `KubeletConfig`, and restores the kubelets' old configuration.

use api::labels::OPERATOR_NAME;
use api::names;
use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NodeGroup;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::ON_OPENSHIFT;
use super::pools::{Kubelets, POLICY, SCOPE};
use crate::context::Context;
use crate::context::checks::node_of;
use crate::observed::{Scope, topology_of};
use crate::recorder::PollResult;
use crate::resources::{CPU, Resources};
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "config/nro-modify",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(operator_is_modified(ctx))),
        ),
        scenario(
            "config/ignore-other-kubeletconfigs",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(others_are_ignored(ctx))),
        ),
        scenario(
            "config/kubeletconfig-change",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(changed_scope_is_followed(ctx))),
        ),
        scenario(
            "config/tm-policy-watch",
            ON_OPENSHIFT,
            body(|ctx| Box::pin(policy_is_watched(ctx))),
        ),
    ]
}

async fn changed_scope_is_followed(ctx: &Context) -> Result<(), StepError> {
    let kubelets = Kubelets::find(ctx).await?;
    let (other, aligned) = if kubelets.scope == "pod" {
        ("container", Scope::Container)
    } else {
        ("pod", Scope::Pod)
    };
    ctx.step(
        format!("kubelets, ConfigMap and NRTs say scope {other}"),
        kubelets.set(SCOPE, other, &kubelets.policy, other),
    )
    .await?;
    ctx.step("the ConfigMap belongs to the KubeletConfig", async {
        let map = kubelets.config_map().await?.unwrap_or_default();
        let owners: Vec<_> = map
            .owner_references()
            .iter()
            .map(|owner| format!("{} {}", owner.kind, owner.name))
            .collect();
        let wanted = format!("KubeletConfig {}", kubelets.config);
        if owners == [wanted.as_str()] {
            return Ok(());
        }
        Err(StepError::mismatch("owner", wanted, owners.join(", ")))
    })
    .await?;
    ctx.step("a pod is placed there and accounted for", async {
        let before = ctx.baseline().await?;
        let plan = kubelets.plan("testpod", Resources::literal("1c 100Mi"));
        ctx.create(plan.pod()).await?;
        let pod = ctx.pods_running(&[plan.name().to_owned()]).await?.remove(0);
        ctx.scheduled_by_stack(&pod).await?;
        let node = node_of(&pod).unwrap_or_default();
        let before = topology_of(&before, node)?;
        ctx.accounted(before, &plan.total(), true, aligned).await?;
        ctx.delete::<Pod>(plan.name()).await
    })
    .await?;
    ctx.step(
        "all is as before again",
        kubelets.set(SCOPE, &kubelets.scope, &kubelets.policy, &kubelets.scope),
    )
    .await
}

async fn policy_is_watched(ctx: &Context) -> Result<(), StepError> {
    const ALIGNED: &str = "single-numa-node";
    let kubelets = Kubelets::find(ctx).await?;
    if kubelets.policy != ALIGNED {
        let reason = format!("the pool's policy is {}, not {ALIGNED}", kubelets.policy);
        return Err(StepError::Skip(reason));
    }
    ctx.step(
        "the pool's kubelets align nothing",
        kubelets.set(POLICY, "none", "none", &kubelets.scope),
    )
    .await?;
    ctx.step("the scheduler restarts and uses it", async {
        let pods = Api::<Pod>::namespaced(ctx.client(), names::NAMESPACE);
        let old = ctx.scheduler_pods().await?;
        for pod in &old {
            pods.delete(&pod.name_any(), &DeleteParams::default())
                .await?;
        }
        let limit = ctx.deadlines().gone;
        ctx.until("the old pods are gone", limit, async || {
            let now = ctx.scheduler_pods().await?;
            let left = now
                .iter()
                .find(|pod| old.iter().any(|old| old.uid() == pod.uid()));
            Ok(left.map_or(PollResult::Ready(()), |pod| {
                PollResult::NotYet(format!("{} is there", pod.name_any()))
            }))
        })
        .await?;
        ctx.scheduler_available().await
    })
    .await?;
    ctx.step(
        "the pool's kubelets align to one zone again",
        kubelets.set(POLICY, ALIGNED, ALIGNED, &kubelets.scope),
    )
    .await?;
    let reason = format!("cannot align {}", kubelets.scope);
    ctx.step(format!("a pod for two zones waits: {reason}"), async {
        let nodes = ctx.settle().await?;
        let ours = nodes
            .iter()
            .filter(|one| kubelets.nodes.contains(&one.node));
        let zones = ours.flat_map(|node| &node.zones);
        let cpus = zones
            .map(|zone| zone.available().units(CPU))
            .max()
            .unwrap_or(0);
        let mut limits = Resources::literal("256Mi");
        limits.set(CPU, cpus * 3 / 2 * 1000);
        let plan = kubelets.plan("testdp", limits);
        ctx.create(plan.deployment(1)).await?;
        let pods = ctx.pods_created(&plan.selector_labels(), 1).await?;
        let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
        ctx.stay_pending(&names, &reason).await
    })
    .await
}

async fn others_are_ignored(ctx: &Context) -> Result<(), StepError> {
    let kubelets = Kubelets::find(ctx).await?;
    let contents = async || {
        let ours = ListParams::default().labels(OPERATOR_NAME);
        let maps = Api::<ConfigMap>::all(ctx.client()).list(&ours).await?.items;
        let mut contents: Vec<_> = maps
            .iter()
            .map(|map| format!("{} {:?}", map.name_any(), map.data))
            .collect();
        contents.sort_unstable();
        Ok::<_, StepError>(contents)
    };
    let before = contents().await?;
    ctx.step("there is one that selects no pool", async {
        let config: KubeletConfig = serde_json::from_value(json!({
            "metadata": {"name": "autoresize-ctrlplane"},
            "spec": {
                "autoSizingReserved": true,
                "machineConfigPoolSelector": {"matchLabels": {
                    "pools.operator.machineconfiguration.openshift.io/ctrplane-invalid-test": "",
                }},
            },
        }))
        .map_err(|error| StepError::fail(error.to_string()))?;
        ctx.create_global(&config).await?;
        Ok(())
    })
    .await?;
    // the operator restores the deleted ConfigMap only in a reconcile after the change above, so it has seen that change
    ctx.step("a deleted ConfigMap comes back", async {
        let Some(old) = kubelets.config_map().await? else {
            return Err(StepError::fail("the pool has no ConfigMap"));
        };
        Api::<ConfigMap>::namespaced(ctx.client(), &old.namespace().unwrap_or_default())
            .delete(&old.name_any(), &DeleteParams::default())
            .await?;
        let limit = ctx.deadlines().settled;
        ctx.until("there is another one", limit, async || {
            let now = kubelets.config_map().await?;
            let is_new = now.is_some_and(|now| now.uid() != old.uid());
            Ok(if is_new {
                PollResult::Ready(())
            } else {
                PollResult::NotYet("there is none".to_owned())
            })
        })
        .await
    })
    .await?;
    ctx.step("all ConfigMaps are as before", async {
        let now = contents().await?;
        if now == before {
            return Ok(());
        }
        let [expected, seen] = [before, now].map(|contents| contents.join("; "));
        Err(StepError::mismatch("ConfigMaps", expected, seen))
    })
    .await
}

async fn operator_is_modified(ctx: &Context) -> Result<(), StepError> {
    const NAME: &str = "mcp-test";
    const TRACE: &str = "-v=6";
    let pool = steps::empty_pool(ctx, NAME).await?;
    let before = ctx.operator_resource().await?.spec;
    let mut groups = before.node_groups.clone();
    groups.push(NodeGroup {
        machine_config_pool_selector: Some(LabelSelector {
            match_labels: Some(pool.labels().clone()),
            ..LabelSelector::default()
        }),
        ..NodeGroup::default()
    });
    ctx.step("a group for it and more logs are asked for", async {
        ctx.set_node_groups(&groups).await?;
        ctx.set_operator_field("logLevel", json!("Trace")).await?;
        ctx.operator_available().await
    })
    .await?;
    ctx.step("each group has exporters, and they log more", async {
        let status = ctx.operator_resource().await?.status.unwrap_or_default();
        if status.daemonsets.len() != groups.len() {
            let seen = status.daemonsets.len();
            return Err(StepError::mismatch("daemon sets", groups.len(), seen));
        }
        for named in &status.daemonsets {
            let sets = Api::<DaemonSet>::namespaced(ctx.client(), &named.namespace);
            let set = sets.get(&named.name).await?;
            let pod = set.spec.and_then(|spec| spec.template.spec);
            let pod = pod.unwrap_or_default();
            let args = pod.containers.first().and_then(|first| first.args.clone());
            let args = args.unwrap_or_default();
            if !args.iter().any(|arg| arg == TRACE) {
                let what = format!("arguments of {}", named.name);
                return Err(StepError::mismatch(what, TRACE, args.join(" ")));
            }
            let wanted = pool.spec.node_selector.clone().unwrap_or_default();
            let is_its_own = named.name == names::rte_daemon_set(names::OPERATOR_CR, NAME);
            if is_its_own && pod.node_selector != wanted.match_labels {
                let what = format!("node selector of {}", named.name);
                let [wanted, seen] =
                    [wanted.match_labels, pod.node_selector].map(|labels| format!("{labels:?}"));
                return Err(StepError::mismatch(what, wanted, seen));
            }
        }
        let wanted = names::rte_daemon_set(names::OPERATOR_CR, NAME);
        if status.daemonsets.iter().all(|set| set.name != wanted) {
            return Err(StepError::fail(format!(
                "the status does not name {wanted}"
            )));
        }
        Ok(())
    })
    .await?;
    ctx.step("all exporters are as before again", async {
        ctx.set_node_groups(&before.node_groups).await?;
        ctx.set_operator_field("logLevel", json!(before.log_level))
            .await?;
        ctx.operator_available().await
    })
    .await
}
