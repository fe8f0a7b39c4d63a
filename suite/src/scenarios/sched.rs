//! The scheduler's objects as its resource specifies them (scenarios-other.md 4).
//!
//! Where the original waits for two minutes to see that nothing changes, these scenarios rely on the operator's status: once it has
//! observed the current resource, nothing more changes.

use api::duration::GoDuration;
use api::labels::CONTROL_PLANE;
use api::names;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::context::Context;
use crate::context::checks::node_of;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, StepError, body};
use crate::scenarios::area::Area;

mod hosts;
mod images;
mod installed;

const UPDATES: Area = Area {
    context: "[Scheduler] scheduler object updates",
    labels: &["disruptive", "scheduler"],
    needs: &[],
};
const SPREAD: Area = Area {
    context: "[Scheduler] scheduler object updates testing deployment TopologySpreadConstraints",
    ..UPDATES
};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        UPDATES.scenario(
            "sched/react-owned",
            None,
            "",
            "should react to owned objects changes",
            body(|ctx| Box::pin(owned_objects_are_restored(ctx))),
        ),
        UPDATES.scenario(
            "sched/resync-period",
            None,
            "",
            "should change the cache resync period",
            body(|ctx| Box::pin(period_is_passed_on(ctx))),
        ),
        SPREAD.scenario(
            "sched/spread-nodes",
            None,
            "",
            "should have each replica on a node of its own",
            body(|ctx| Box::pin(replicas_are_spread(ctx))),
        ),
        SPREAD.scenario(
            "sched/replicas-0",
            None,
            "",
            "should have no replica when none is asked for",
            body(|ctx| Box::pin(no_replica_is_left(ctx))),
        ),
        SPREAD.scenario(
            "sched/replicas-same",
            None,
            "",
            "should change nothing when the number of replicas that is there is asked for",
            body(|ctx| Box::pin(same_replicas_change_nothing(ctx))),
        ),
        SPREAD.scenario(
            "sched/replicas-1",
            None,
            "",
            "should have one replica when one is asked for",
            body(|ctx| Box::pin(one_replica_is_left(ctx))),
        ),
    ];
    all.extend(hosts::scenarios());
    all.extend(images::scenarios());
    all.extend(installed::scenarios());
    all
}

fn deployments(ctx: &Context) -> Api<Deployment> {
    Api::namespaced(ctx.client(), names::NAMESPACE)
}

fn config_maps(ctx: &Context) -> Api<ConfigMap> {
    Api::namespaced(ctx.client(), names::NAMESPACE)
}

fn template(deployment: &Deployment) -> Value {
    json!(deployment.spec.as_ref().map(|spec| &spec.template))
}

async fn owned_objects_are_restored(ctx: &Context) -> Result<(), StepError> {
    // skips if no operator restores objects
    ctx.scheduler_resource().await?;
    ctx.step("a key more in the ConfigMap goes again", async {
        let maps = config_maps(ctx);
        let before = maps.get(names::SCHEDULER_CONFIG_MAP).await?;
        let reference = ObjectRef::of(&before);
        ctx.recorder.plan(
            &format!("add a key to {reference}"),
            Undo::Patch {
                object: reference,
                patch: json!({"data": {"somekey": null}}),
            },
        );
        let patch = Patch::Merge(json!({"data": {"somekey": "somevalue"}}));
        maps.patch(names::SCHEDULER_CONFIG_MAP, &PatchParams::default(), &patch)
            .await?;
        let limit = ctx.deadlines().settled;
        ctx.until("its data are as before", limit, async || {
            let now = maps.get(names::SCHEDULER_CONFIG_MAP).await?;
            Ok(if now.data == before.data {
                PollResult::Ready(())
            } else {
                let keys: Vec<_> = now.data.into_iter().flatten().map(|(key, _)| key).collect();
                PollResult::NotYet(format!("it has the keys {}", keys.join(", ")))
            })
        })
        .await
    })
    .await?;
    ctx.step("a container more in the Deployment goes again", async {
        let before = deployments(ctx).get(names::SCHEDULER).await?;
        let mut containers = before
            .spec
            .iter()
            .filter_map(|spec| spec.template.spec.as_ref())
            .flat_map(|pod| pod.containers.clone())
            .collect::<Vec<_>>();
        let mut added = containers
            .first()
            .cloned()
            .ok_or_else(|| StepError::fail("the Deployment has no container"))?;
        "newcontainer".clone_into(&mut added.name);
        let old = json!({"hostname": null, "containers": containers});
        containers.push(added);
        let reference = ObjectRef::of(&before);
        ctx.recorder.plan(
            &format!("add a container to {reference}"),
            Undo::Patch {
                object: reference,
                patch: json!({"spec": {"template": {"spec": old}}}),
            },
        );
        let changed = json!({"hostname": "newhostname", "containers": containers});
        let patch = Patch::Merge(json!({"spec": {"template": {"spec": changed}}}));
        deployments(ctx)
            .patch(names::SCHEDULER, &PatchParams::default(), &patch)
            .await?;
        let limit = ctx.deadlines().settled;
        ctx.until("its template is as before", limit, async || {
            let now = deployments(ctx).get(names::SCHEDULER).await?;
            Ok(if template(&now) == template(&before) {
                PollResult::Ready(())
            } else {
                PollResult::NotYet("it differs".to_owned())
            })
        })
        .await?;
        replicas_are(ctx, replicas(&before)).await
    })
    .await
}

async fn period_is_passed_on(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?;
    let uids = |pods: &[Pod]| pods.iter().filter_map(ResourceExt::uid).collect::<Vec<_>>();
    let old = uids(&ctx.scheduler_pods().await?);
    let period = before.spec.cache_resync_period.as_deref();
    let period = period.and_then(|period| period.parse::<GoDuration>().ok());
    let seconds = period.map_or(300, |period| 2 * period.rounded_seconds());
    let wanted = GoDuration::from_seconds(seconds).to_string();
    ctx.step(
        format!("the period is {wanted}, and the status says so"),
        async {
            ctx.set_scheduler_field("cacheResyncPeriod", json!(wanted))
                .await?;
            let status = ctx.scheduler_resource().await?.status.unwrap_or_default();
            let seen = status.cache_resync_period.unwrap_or_default();
            if seen == wanted {
                return Ok(());
            }
            Err(StepError::mismatch("period in the status", &wanted, seen))
        },
    )
    .await?;
    ctx.step("the scheduler's configuration says so", async {
        let map = config_maps(ctx).get(names::SCHEDULER_CONFIG_MAP).await?;
        let text = map.data.unwrap_or_default();
        let text = text.get(names::CONFIG_KEY).map_or("", String::as_str);
        let config =
            scheduler_config::parse(text).map_err(|error| StepError::fail(error.to_string()))?;
        let profile = config
            .profiles
            .iter()
            .find(|profile| profile.scheduler_name == ctx.scheduler());
        let args = profile.and_then(|profile| profile.topology_match.as_ref());
        let seen = args.map_or(0, |args| args.cache_resync_period_seconds);
        if seen == seconds {
            return Ok(());
        }
        Err(StepError::mismatch("seconds in the profile", seconds, seen))
    })
    .await?;
    ctx.step("the old pods are gone", async {
        let limit = ctx.deadlines().gone;
        ctx.until("no old pod is left", limit, async || {
            let now = uids(&ctx.scheduler_pods().await?);
            Ok(match now.iter().find(|uid| old.contains(uid)) {
                None => PollResult::Ready(()),
                Some(uid) => PollResult::NotYet(format!("pod with uid {uid} is there")),
            })
        })
        .await
    })
    .await
}

fn replicas(deployment: &Deployment) -> i32 {
    let spec = deployment.spec.as_ref();
    spec.and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Waits until the scheduler has exactly this many pods, all of them ready.
async fn replicas_are(ctx: &Context, count: i32) -> Result<(), StepError> {
    let limit = ctx.deadlines().installed;
    ctx.until(
        &format!("the scheduler has {count} pods"),
        limit,
        async || {
            let deployment = deployments(ctx).get(names::SCHEDULER).await?;
            let status = deployment.status.unwrap_or_default();
            let pods = ctx.scheduler_pods().await?.len();
            let seen = (
                i32::try_from(pods).unwrap_or(i32::MAX),
                status.ready_replicas.unwrap_or(0),
                status.updated_replicas.unwrap_or(0),
            );
            Ok(if seen == (count, count, count) {
                PollResult::Ready(())
            } else {
                let (pods, ready, updated) = seen;
                PollResult::NotYet(format!("{pods} pods, {ready} ready, {updated} updated"))
            })
        },
    )
    .await
}

async fn replicas_are_spread(ctx: &Context) -> Result<(), StepError> {
    ctx.scheduler_resource().await?;
    let deployment = deployments(ctx).get(names::SCHEDULER).await?;
    ctx.step("replicas must be on different nodes", async {
        let spec = deployment.spec.as_ref();
        let (expected, seen) = spec.map(spread).unwrap_or_default();
        if expected == seen {
            return Ok(());
        }
        Err(StepError::mismatch(
            "topology spread constraints",
            expected,
            seen,
        ))
    })
    .await?;
    ctx.step("they are", async {
        replicas_are(ctx, replicas(&deployment)).await?;
        let pods = ctx.scheduler_pods().await?;
        let mut nodes: Vec<_> = pods.iter().filter_map(node_of).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() == pods.len() {
            ctx.recorder.saw(nodes.join(", "));
            return Ok(());
        }
        Err(StepError::mismatch(
            "nodes with a replica",
            pods.len(),
            nodes.len(),
        ))
    })
    .await
}

/// Returns the topology spread constraints that a deployment should have, and those that it has.
fn spread(spec: &DeploymentSpec) -> (Value, Value) {
    let template = &spec.template;
    let pod_labels = template
        .metadata
        .as_ref()
        .and_then(|meta| meta.labels.as_ref());
    let expected = json!([{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["pod-template-hash"],
        "labelSelector": {"matchLabels": pod_labels},
    }]);
    let pod = template.spec.as_ref();
    let seen = pod.and_then(|pod| pod.topology_spread_constraints.as_ref());
    (expected, json!(seen))
}

async fn no_replica_is_left(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?.spec.replicas;
    let count = replicas(&deployments(ctx).get(names::SCHEDULER).await?);
    ctx.step("no replica is requested, and none is left", async {
        ctx.set_scheduler_field("replicas", json!(0)).await?;
        replicas_are(ctx, 0).await
    })
    .await?;
    ctx.step("as many as before come back", async {
        ctx.set_scheduler_field("replicas", json!(before)).await?;
        replicas_are(ctx, count).await
    })
    .await
}

/// Runs at least two replicas, each on its own node: as many as there are, but no fewer than two. The operator allows no more replicas than
/// nodes of the control plane (operator.md 5.5), so workers join the control plane for the time of the scenario if it has too few nodes.
async fn several_replicas(ctx: &Context) -> Result<Several, StepError> {
    let asked_for = ctx.scheduler_resource().await?.spec.replicas;
    let before = replicas(&deployments(ctx).get(names::SCHEDULER).await?);
    let count = before.max(2);
    ctx.step(format!("the control plane has {count} nodes"), async {
        let nodes = Api::<Node>::all(ctx.client());
        let all = nodes.list(&ListParams::default()).await?.items;
        let is_one = |node: &&Node| node.labels().contains_key(CONTROL_PLANE);
        let missing = usize::try_from(count)
            .unwrap_or(0)
            .saturating_sub(all.iter().filter(is_one).count());
        for worker in all.iter().filter(|node| !is_one(node)).take(missing) {
            ctx.label_node(&worker.name_any(), CONTROL_PLANE, "")
                .await?;
        }
        Ok(())
    })
    .await?;
    ctx.step(format!("the scheduler has {count} replicas"), async {
        ctx.set_scheduler_field("replicas", json!(count)).await?;
        replicas_are(ctx, count).await
    })
    .await?;
    Ok(Several {
        count,
        before,
        asked_for,
    })
}

/// Several replicas of the scheduler, and the numbers before.
struct Several {
    count: i32,
    before: i32,
    asked_for: Option<i32>,
}

impl Several {
    /// Waits until there are as many as before, because the next scenario counts them.
    async fn restore(&self, ctx: &Context) -> Result<(), StepError> {
        ctx.step("as many replicas as before are left", async {
            ctx.set_scheduler_field("replicas", json!(self.asked_for))
                .await?;
            replicas_are(ctx, self.before).await
        })
        .await
    }
}

async fn one_replica_is_left(ctx: &Context) -> Result<(), StepError> {
    let several = several_replicas(ctx).await?;
    for wanted in [1, several.count] {
        ctx.step(format!("{wanted} requested, {wanted} running"), async {
            ctx.set_scheduler_field("replicas", json!(wanted)).await?;
            replicas_are(ctx, wanted).await
        })
        .await?;
    }
    several.restore(ctx).await
}

async fn same_replicas_change_nothing(ctx: &Context) -> Result<(), StepError> {
    let given = ctx.scheduler_resource().await?.spec.replicas;
    let before = deployments(ctx).get(names::SCHEDULER).await?;
    let other = match given {
        Some(_) => None,
        None => Some(replicas(&before)),
    };
    for wanted in [other, given] {
        ctx.step(
            format!("replicas is {wanted:?}, and the Deployment as before"),
            async {
                ctx.set_scheduler_field("replicas", json!(wanted)).await?;
                let now = deployments(ctx).get(names::SCHEDULER).await?;
                let identity =
                    |one: &Deployment| format!("{:?} {:?}", one.uid(), one.metadata.generation);
                if identity(&now) == identity(&before) {
                    return Ok(());
                }
                let what = "uid and generation of the Deployment";
                Err(StepError::mismatch(what, identity(&before), identity(&now)))
            },
        )
        .await?;
    }
    Ok(())
}
