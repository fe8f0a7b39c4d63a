//! Images of the scheduler: a change of the image, and images that are not trusted (scenarios-other.md 4.3, 4.5).

use api::{conditions, names};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde_json::json;

use super::replicas::{replicas, replicas_are};
use super::{UPDATES, deployments};
use crate::context::Context;
use crate::context::checks::first_container;
use crate::images::TRUSTED_DIGESTS;
use crate::scenario::{Scenario, body};
use crate::scenarios::area::Area;
use crate::step::StepError;

const VALIDATION: Area = Area {
    context: "[Scheduler] image validation",
    ..UPDATES
};
/// A reference by tag, which can be moved to another image.
const BY_TAG: &str = "quay.io/openshift-kni/scheduler-plugins:4.12-snapshot";
/// A digest that an operator does not trust by default.
const DIGEST: &str = "sha256:c1b0456fa8b7b96325a9cd2509c19c1e407e9d2cd7523ca62dd5db30cadb73b9";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        UPDATES.scenario(
            "sched/image-change",
            None,
            "",
            "should change the image",
            body(|ctx| Box::pin(image_is_changed(ctx))),
        ),
        VALIDATION.scenario(
            "sched/image-validation",
            None,
            "",
            "should refuse images that are not pinned to a trusted digest",
            body(|ctx| Box::pin(only_trusted_images_are_run(ctx))),
        ),
    ]
}

/// Returns the image of the first container.
fn image(deployment: &Deployment) -> String {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    first_container(template)
        .and_then(|one| one.image.clone())
        .unwrap_or_default()
}

async fn image_is_changed(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?;
    let deployment = deployments(ctx).get(names::SCHEDULER).await?;
    let Some((repository, digest)) = before.spec.scheduler_image.split_once('@') else {
        let reason = "the image is not pinned: no other reference is known to be the same image";
        return Err(StepError::Skip(reason.to_owned()));
    };
    // the digest alone decides which image runs
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
                return Err(StepError::mismatch(
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
        Err(StepError::mismatch("uid of the resource", expected, seen))
    })
    .await
}

async fn only_trusted_images_are_run(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?.spec.scheduler_image;
    if !before.starts_with(names::STACK_REPOSITORY) {
        let reason = format!("{before} is an image that cannot be run by another digest");
        return Err(StepError::Skip(reason));
    }
    let running = image(&deployments(ctx).get(names::SCHEDULER).await?);
    let unknown = format!("{}@{DIGEST}", names::STACK_REPOSITORY);
    for refused in [BY_TAG, &unknown] {
        ctx.step(
            format!("{refused} is refused, and what runs runs on"),
            async {
                ctx.patch_scheduler_field("imageSpec", json!(refused))
                    .await?;
                let reason = conditions::REASON_INVALID_SCHEDULER_IMAGE;
                ctx.scheduler_is(conditions::DEGRADED, Some(reason)).await?;
                let now = image(&deployments(ctx).get(names::SCHEDULER).await?);
                if now == running {
                    return Ok(());
                }
                Err(StepError::mismatch(
                    "image of the Deployment",
                    &running,
                    now,
                ))
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
        Err(StepError::mismatch(
            "image of the Deployment",
            &unknown,
            now,
        ))
    })
    .await?;
    ctx.step("the old image runs again", async {
        ctx.set_scheduler_field("imageSpec", json!(before)).await
    })
    .await
}

/// Makes the operator trust one more digest.
async fn trust(ctx: &Context) -> Result<(), StepError> {
    let operator = deployments(ctx).get(names::OPERATOR_DEPLOYMENT).await?;
    let pod = operator.spec.and_then(|spec| spec.template.spec);
    let containers = pod.map(|pod| pod.containers).unwrap_or_default();
    let mut variables = containers
        .iter()
        .flat_map(|container| container.env.iter().flatten());
    let known = variables.find(|variable| variable.name == TRUSTED_DIGESTS);
    let old = known.and_then(|variable| variable.value.clone());
    let all = format!("{},{DIGEST}", old.unwrap_or_default());
    ctx.set_operator_variable(TRUSTED_DIGESTS, all.trim_start_matches(','))
        .await
}
