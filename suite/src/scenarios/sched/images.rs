//! Images of the scheduler: another one, and those that are not to be trusted (scenarios-other.md 4.3, 4.5).

use api::{conditions, names};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::json;

use super::{UPDATES, deployments, replicas, replicas_are, scenario};
use crate::context::Context;
use crate::scenario::{Scenario, Stop, body};

/// A reference that somebody can move to another image.
const BY_TAG: &str = "quay.io/openshift-kni/scheduler-plugins:4.12-snapshot";
/// A digest that no operator trusts by itself.
const DIGEST: &str = "sha256:c1b0456fa8b7b96325a9cd2509c19c1e407e9d2cd7523ca62dd5db30cadb73b9";
/// Variable of the operator with the digests that it is to trust.
const TRUSTED: &str = "SCHEDULER_IMAGE_DIGESTS";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "sched/image-change",
            UPDATES,
            "should change the image",
            body(|ctx| Box::pin(image_is_changed(ctx))),
        ),
        scenario(
            "sched/image-validation",
            "[Scheduler] image validation",
            "should refuse images that are not pinned to a trusted digest",
            body(|ctx| Box::pin(only_trusted_images_are_run(ctx))),
        ),
    ]
}

/// Image of the first container.
fn image(deployment: &Deployment) -> String {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let container = pod.and_then(|pod| pod.containers.first());
    container
        .and_then(|one| one.image.clone())
        .unwrap_or_default()
}

async fn image_is_changed(ctx: &Context) -> Result<(), Stop> {
    let before = ctx.scheduler_resource().await?;
    let deployment = deployments(ctx).get(names::SCHEDULER).await?;
    let Some((repository, digest)) = before.spec.scheduler_image.split_once('@') else {
        let reason = "the image is not pinned: no other reference is known to be the same image";
        return Err(Stop::Skip(reason.to_owned()));
    };
    // the digest alone tells what is run
    let repository = repository
        .rsplit_once(':')
        .map_or(repository, |(name, tag)| {
            if tag.contains('/') { repository } else { name }
        });
    let other = format!("{repository}:changed@{digest}");
    for wanted in [&other, &before.spec.scheduler_image] {
        ctx.step(format!("the scheduler's image is {wanted}"), async {
            ctx.set_scheduler_field("imageSpec", json!(wanted)).await?;
            let now = deployments(ctx).get(names::SCHEDULER).await?;
            if image(&now) != *wanted {
                return Err(Stop::mismatch(
                    "image of the Deployment",
                    wanted,
                    image(&now),
                ));
            }
            replicas_are(ctx, replicas(&deployment)).await
        })
        .await?;
    }
    ctx.step("the resource is the same one", async {
        let now = ctx.scheduler_resource().await?;
        if now.uid() == before.uid() {
            return Ok(());
        }
        let [expected, seen] = [before.uid(), now.uid()].map(Option::unwrap_or_default);
        Err(Stop::mismatch("uid of the resource", expected, seen))
    })
    .await
}

async fn only_trusted_images_are_run(ctx: &Context) -> Result<(), Stop> {
    let before = ctx.scheduler_resource().await?.spec.scheduler_image;
    if !before.starts_with(names::STACK_REPOSITORY) {
        let reason = format!("{before} is an image that cannot be run by another digest");
        return Err(Stop::Skip(reason));
    }
    let running = image(&deployments(ctx).get(names::SCHEDULER).await?);
    let unknown = format!("{}@{DIGEST}", names::STACK_REPOSITORY);
    for refused in [BY_TAG, &unknown] {
        ctx.step(
            format!("{refused} is refused, and what runs runs on"),
            async {
                ctx.ask_scheduler("imageSpec", json!(refused)).await?;
                let reason = conditions::REASON_INVALID_SCHEDULER_IMAGE;
                ctx.scheduler_is(conditions::DEGRADED, Some(reason)).await?;
                let now = image(&deployments(ctx).get(names::SCHEDULER).await?);
                if now == running {
                    return Ok(());
                }
                Err(Stop::mismatch("image of the Deployment", &running, now))
            },
        )
        .await?;
    }
    ctx.step("it is run as soon as its digest is trusted", async {
        trust(ctx).await?;
        ctx.scheduler_available().await?;
        let now = image(&deployments(ctx).get(names::SCHEDULER).await?);
        if now == unknown {
            return Ok(());
        }
        Err(Stop::mismatch("image of the Deployment", &unknown, now))
    })
    .await?;
    ctx.step("the image of before is run again", async {
        ctx.set_scheduler_field("imageSpec", json!(before)).await
    })
    .await
}

/// Has the operator trust one digest more.
async fn trust(ctx: &Context) -> Result<(), Stop> {
    let operator = deployments(ctx).get(names::OPERATOR_DEPLOYMENT).await?;
    let pod = operator.spec.and_then(|spec| spec.template.spec);
    let containers = pod.map(|pod| pod.containers).unwrap_or_default();
    let mut variables = containers
        .iter()
        .flat_map(|container| container.env.iter().flatten());
    let known = variables.find(|variable| variable.name == TRUSTED);
    let old = known.and_then(|variable| variable.value.clone());
    let all = format!("{},{DIGEST}", old.unwrap_or_default());
    ctx.set_operator_variable(TRUSTED, all.trim_start_matches(','))
        .await
}
