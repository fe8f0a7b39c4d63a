//! Images of the scheduler: a change of the image, and images that cannot be pulled or are not trusted (scenarios-other.md 4.3, 4.5).

use api::{conditions, names};
use cluster_spec::images::Reference;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::deployments;
use super::replicas::{replicas, replicas_are};
use crate::context::Context;
use crate::context::checks::{describe, first_container, node_of, phase};
use crate::images::TRUSTED_DIGESTS;
use crate::recorder::PollResult;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::steps;
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

/// A reference by tag, which can be moved to another image.
const BY_TAG: &str = "quay.io/openshift-kni/scheduler-plugins:4.12-snapshot";
/// A digest that an operator does not trust by default.
const DIGEST: &str = "sha256:c1b0456fa8b7b96325a9cd2509c19c1e407e9d2cd7523ca62dd5db30cadb73b9";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "sched/image-change",
            &[],
            body(|ctx| Box::pin(image_is_changed(ctx))),
        ),
        scenario(
            "sched/image-pull-error",
            &[],
            body(|ctx| Box::pin(missing_image_is_reported(ctx))),
        ),
        scenario(
            "sched/image-validation",
            &[],
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

/// Returns the name of an image without its tag.
fn without_tag(name: &str) -> &str {
    Reference::parse(name).repository
}

async fn image_is_changed(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?;
    let deployment = deployments(ctx).get(names::SCHEDULER).await?;
    let Some((repository, digest)) = before.spec.scheduler_image.split_once('@') else {
        let reason = "the image is not pinned: no other reference is known to be the same image";
        return Err(StepError::Skip(reason.to_owned()));
    };
    // the digest alone decides which image runs
    let other = format!("{}:changed@{digest}", without_tag(repository));
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

async fn missing_image_is_reported(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?.spec.scheduler_image;
    let Some((name, digest)) = before.split_once('@') else {
        let reason =
            "the image is not pinned: the operator would refuse another one before it is pulled";
        return Err(StepError::Skip(reason.to_owned()));
    };
    // the operator trusts the digest, but no registry has it under this name
    let missing = format!("{}-missing@{digest}", without_tag(name));
    let plan = |name: &str| PodPlan::new(name, ctx.scheduler(), [ResourceRequest::Nothing]);
    let early = plan("early");
    let running = steps::pod_runs(ctx, "a pod is placed and runs", &early).await?;
    ctx.step(
        format!("the scheduler's image is {missing}, which cannot be pulled"),
        async {
            ctx.patch_scheduler_field("imageSpec", json!(missing))
                .await?;
            let limit = ctx.deadlines().installed;
            let reason = ctx.until("all pods wait for the image", limit, async || {
                let pods = ctx.scheduler_pods().await?;
                let reasons: Option<Vec<_>> =
                    pods.iter().map(|pod| pull_error(pod, &missing)).collect();
                let first = reasons.and_then(|reasons| reasons.into_iter().next());
                Ok(first.map_or_else(
                    || {
                        let pods: Vec<_> = pods.iter().map(describe).collect();
                        PollResult::NotYet(format!("pods: {}", pods.join(", ")))
                    },
                    PollResult::Ready,
                ))
            });
            ctx.recorder.saw(reason.await?);
            Ok(())
        },
    )
    .await?;
    ctx.step(
        "its resource does not call that Available",
        ctx.scheduler_is(conditions::PROGRESSING, None),
    )
    .await?;
    let late = plan("late");
    ctx.step(
        "the pod that was placed runs on, and a new one waits",
        async {
            ctx.create(late.pod()).await?;
            steps::default_scheduler_places_a_pod(ctx).await?;
            let now = ctx.pod(early.name()).await?;
            if now.uid() != running.uid() || phase(&now) != "Running" {
                return Err(StepError::mismatch("the pod", "as before", describe(&now)));
            }
            match node_of(&ctx.pod(late.name()).await?) {
                None => Ok(()),
                Some(node) => Err(StepError::mismatch("node of the new pod", "none", node)),
            }
        },
    )
    .await?;
    ctx.step("with the old image the new pod is placed", async {
        ctx.set_scheduler_field("imageSpec", json!(before)).await?;
        let pods = ctx.pods_running(&[late.name().to_owned()]).await?;
        ctx.scheduled_by_stack(&pods[0]).await
    })
    .await
}

/// Returns why a pod with this image waits, if the image cannot be pulled.
fn pull_error(pod: &Pod, image: &str) -> Option<String> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    containers.find(|container| container.image.as_deref() == Some(image))?;
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find_map(|status| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        matches!(reason, "ErrImagePull" | "ImagePullBackOff").then(|| {
            let message = waiting.message.as_deref().unwrap_or_default();
            format!("{reason} {message}")
        })
    })
}

async fn only_trusted_images_are_run(ctx: &Context) -> Result<(), StepError> {
    let before = ctx.scheduler_resource().await?.spec.scheduler_image;
    if !before.starts_with(names::STACK_REPOSITORY) {
        let reason = format!("{before} is an image that cannot be run by another digest");
        return Err(StepError::Skip(reason));
    }
    let running = image(&deployments(ctx).get(names::SCHEDULER).await?);
    // a registry knows digests by what they name; elsewhere any digest of this repository is the same image
    let unknown = ctx
        .facts()
        .published
        .by_digest(names::TESTS_IMAGE)
        .map_or_else(
            || format!("{}@{DIGEST}", names::STACK_REPOSITORY),
            str::to_owned,
        );
    let digest = unknown.split_once('@').map_or("", |(_, digest)| digest);
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
        trust(ctx, digest).await?;
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
async fn trust(ctx: &Context, digest: &str) -> Result<(), StepError> {
    let operator = deployments(ctx).get(names::OPERATOR_DEPLOYMENT).await?;
    let pod = operator.spec.and_then(|spec| spec.template.spec);
    let containers = pod.map(|pod| pod.containers).unwrap_or_default();
    let mut variables = containers
        .iter()
        .flat_map(|container| container.env.iter().flatten());
    let known = variables.find(|variable| variable.name == TRUSTED_DIGESTS);
    let old = known.and_then(|variable| variable.value.clone());
    let all = format!("{},{digest}", old.unwrap_or_default());
    ctx.set_operator_variable(TRUSTED_DIGESTS, all.trim_start_matches(','))
        .await
}
