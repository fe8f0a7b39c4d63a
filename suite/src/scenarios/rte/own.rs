//! An exporter of the scenario itself: a pod like those of the stack, started with other arguments.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta};

use crate::context::stack::exporters;
use crate::context::{Context, RUN_LABEL, creation};
use crate::ledger::ObjectRef;
use crate::recorder::PollResult;
use crate::step::StepError;

/// A port that the exporters of the stack do not use, because pods may share their node's address.
pub(super) const METRICS_PORT: u16 = 2199;

/// Arguments that keep two exporters of one node from disturbing each other, and the pod from waiting for what this exporter does not do.
const PRIVATE_ARGUMENTS: [&str; 4] = [
    "--podreadiness=false",
    "--watch-pods=false",
    "--add-nrt-owner=false",
    "--metrics-mode=disabled",
];

/// Starts an exporter on a node, with these arguments in addition to those for its paths. It runs in the namespace of the stack's
/// exporters.
pub(super) async fn start(
    ctx: &Context,
    name: &str,
    node: &str,
    arguments: &[&str],
) -> Result<Pod, StepError> {
    let sets = ctx.exporter_daemon_sets().await?;
    let set = sets
        .first()
        .ok_or_else(|| StepError::fail("no daemon set runs exporters"))?;
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.clone());
    let mut spec = template.ok_or_else(|| StepError::fail("the daemon set has no pods"))?;
    let mut container = exporters::container(&spec)
        .cloned()
        .ok_or_else(|| StepError::fail("no container of the daemon set is an exporter"))?;
    let path_flags = [
        "--sysfs=",
        "--podresources-socket=",
        "--kubelet-config-file=",
    ];
    let mut args: Vec<String> = container.args.take().unwrap_or_default();
    args.retain(|arg| path_flags.iter().any(|flag| arg.starts_with(flag)));
    args.extend(PRIVATE_ARGUMENTS.iter().map(|&arg| arg.to_owned()));
    args.extend(arguments.iter().map(|&arg| arg.to_owned()));
    container.args = Some(args);
    container.ports = None;
    container.readiness_probe = None;
    container.liveness_probe = None;
    spec.containers = vec![container];
    spec.readiness_gates = None;
    spec.affinity = None;
    spec.node_selector = None;
    spec.node_name = Some(node.to_owned());
    spec.restart_policy = Some("Never".to_owned());
    spec.termination_grace_period_seconds = Some(1);
    let namespace = set.namespace().unwrap_or_default();
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", ctx.namespace)),
            namespace: Some(namespace.clone()),
            labels: Some([(RUN_LABEL.to_owned(), ctx.run().to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    };
    ctx.recorder.plan_creation(&ObjectRef::of(&pod))?;
    let pods: Api<Pod> = Api::namespaced(ctx.client(), &namespace);
    Ok(creation::create(&pods, &pod).await?)
}

/// Waits until a pod is in this phase.
pub(super) async fn in_phase(ctx: &Context, pod: &Pod, phase: &str) -> Result<(), StepError> {
    let pods: Api<Pod> = Api::namespaced(ctx.client(), &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    ctx.until(
        &format!("{name} is {phase}"),
        ctx.deadlines().running,
        async || {
            let pod = pods.get(&name).await?;
            let seen = crate::context::checks::phase(&pod);
            Ok(if seen == phase {
                PollResult::Ready(())
            } else {
                PollResult::NotYet(crate::context::checks::describe(&pod))
            })
        },
    )
    .await
}
