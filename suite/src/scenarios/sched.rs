//! The scheduler's objects as its resource specifies them (scenarios-other.md 4).
//!
//! Where the original waits for two minutes to see that nothing changes, these scenarios rely on the operator's status: once it has
//! observed the current resource, nothing more changes.

use api::names;
use goflags::GoDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use replicas::{replicas, replicas_are};
use serde_json::{Value, json};

use crate::context::Context;
use crate::ledger::{ObjectRef, Undo};
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

mod hosts;
mod images;
mod installed;
mod replicas;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = vec![
        scenario(
            "sched/react-owned",
            &[],
            body(|ctx| Box::pin(owned_objects_are_restored(ctx))),
        ),
        scenario(
            "sched/resync-period",
            &[],
            body(|ctx| Box::pin(period_is_passed_on(ctx))),
        ),
    ];
    all.extend(replicas::scenarios());
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
        )?;
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
        )?;
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
