//! The servers of the stack follow the cluster's TLS profile (scenarios-other.md 6).

use api::openshift::config::{ApiServer, CLUSTER};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use rustls::ProtocolVersion;

use crate::context::Context;
use crate::needs::Need;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::scenarios::tls_profile::{Profile, Version, tls_flags};
use crate::step::StepError;

const NEEDS: &[Need] = &[Need::OpenShift];
/// TCP port of the schedulers.
const SCHEDULER_PORT: u16 = 10259;

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "tls/sched-reject",
            NEEDS,
            body(|ctx| Box::pin(rejected_by_scheduler(ctx))),
        ),
        scenario(
            "tls/sched-accept",
            NEEDS,
            body(|ctx| Box::pin(accepted_by_scheduler(ctx))),
        ),
        scenario(
            "tls/rte-flags",
            NEEDS,
            body(|ctx| Box::pin(exporters_have_flags(ctx))),
        ),
        scenario(
            "tls/rte-metrics",
            NEEDS,
            body(|ctx| Box::pin(metrics_are_served(ctx))),
        ),
        scenario(
            "tls/rte-reject",
            NEEDS,
            body(|ctx| Box::pin(rejected_by_exporters(ctx))),
        ),
    ]
}

/// Returns the TLS profile of the cluster's servers.
async fn profile(ctx: &Context) -> Result<Profile, StepError> {
    ctx.step("the cluster's TLS profile is known", async {
        let server = Api::<ApiServer>::all(ctx.client()).get(CLUSTER).await?;
        let found = Profile::of(server.spec.tls_security_profile.as_ref())?;
        ctx.recorder.saw(found.name);
        Ok(found)
    })
    .await
}

/// Returns the schedulers' pods. It is an error if there are none.
async fn schedulers(ctx: &Context) -> Result<Vec<Pod>, StepError> {
    ctx.scheduler_resource().await?;
    let pods = ctx.scheduler_pods().await?;
    if pods.is_empty() {
        return Err(StepError::fail("the scheduler has no pods"));
    }
    Ok(pods)
}

async fn rejected_by_scheduler(ctx: &Context) -> Result<(), StepError> {
    rejected(ctx, &schedulers(ctx).await?, SCHEDULER_PORT).await
}

async fn rejected_by_exporters(ctx: &Context) -> Result<(), StepError> {
    rejected(ctx, &ctx.exporters().await?, api::metrics::RTE_PORT).await
}

async fn rejected(ctx: &Context, pods: &[Pod], port: u16) -> Result<(), StepError> {
    let profile = profile(ctx).await?;
    let below = profile.min_version.below();
    let version = below.map(|version| {
        let suite = profile.accepted();
        ("a version below the smallest", version, suite)
    });
    let suite = profile
        .refused()
        .map(|suite| ("a suite that is not allowed", Version::Tls12, suite));
    let hellos: Vec<_> = version.into_iter().chain(suite).collect();
    if hellos.is_empty() {
        return Err(StepError::Skip(format!(
            "the TLS profile {} allows every version and every suite",
            profile.name
        )));
    }
    for pod in pods {
        // a server that accepts no connection at all would reject everything
        ctx.step(format!("{} answers at all", pod.name_any()), async {
            ctx.connect_tls(pod, port).await.map(drop)
        })
        .await?;
        for (what, version, suite) in &hellos {
            ctx.step(format!("{} rejects {what}", pod.name_any()), async {
                let answer = ctx
                    .send_client_hello(pod, port, version.number(), suite.number)
                    .await?;
                ctx.recorder.saw(format!("{answer:?}"));
                if answer.is_rejection() {
                    return Ok(());
                }
                Err(StepError::mismatch(
                    "answer",
                    "a rejection",
                    format!("{answer:?}"),
                ))
            })
            .await?;
        }
    }
    Ok(())
}

async fn accepted_by_scheduler(ctx: &Context) -> Result<(), StepError> {
    let profile = profile(ctx).await?;
    for pod in schedulers(ctx).await? {
        ctx.step(
            format!(
                "{} accepts clients that keep to the profile",
                pod.name_any()
            ),
            async {
                let stream = ctx.connect_tls(&pod, SCHEDULER_PORT).await?;
                let connection = stream.get_ref().1;
                agreed(ctx, &profile, connection)
            },
        )
        .await?;
    }
    Ok(())
}

/// Checks that the negotiated version and suite are in the profile.
fn agreed(
    ctx: &Context,
    profile: &Profile,
    connection: &rustls::ClientConnection,
) -> Result<(), StepError> {
    let version = connection.protocol_version();
    let suite = connection
        .negotiated_cipher_suite()
        .map(|suite| suite.suite());
    ctx.recorder.saw(format!("{version:?} {suite:?}"));
    let smallest = profile.min_version;
    if version.is_none_or(|version| u16::from(version) < smallest.number()) {
        return Err(StepError::mismatch(
            "version",
            format!("{} or later", smallest.name()),
            format!("{version:?}"),
        ));
    }
    let name = suite.and_then(|suite| suite.as_str()).unwrap_or_default();
    let mut allowed = profile.suites.iter();
    let is_allowed = allowed.any(|suite| suite.iana == name);
    if version == Some(ProtocolVersion::TLSv1_3) || is_allowed {
        return Ok(());
    }
    Err(StepError::mismatch("suite", profile.flags().1, name))
}

async fn exporters_have_flags(ctx: &Context) -> Result<(), StepError> {
    let profile = profile(ctx).await?;
    let wanted = profile.flags();
    let groups = ctx
        .step("the status names node groups", async {
            ctx.operator_available().await?;
            let status = ctx.operator_resource().await?.status.unwrap_or_default();
            if status.node_groups.is_empty() {
                return Err(StepError::fail("status.nodeGroups is empty"));
            }
            Ok(status.node_groups)
        })
        .await?;
    for named in groups.iter().map(|group| &group.daemon_set) {
        let sets = Api::<DaemonSet>::namespaced(ctx.client(), &named.namespace);
        ctx.step(
            format!("exporters of {} have the flags of the profile", named.name),
            async {
                let seen = tls_flags(&sets.get(&named.name).await?);
                if seen == wanted {
                    return Ok(());
                }
                Err(StepError::mismatch(
                    "version and suites",
                    format!("{wanted:?}"),
                    format!("{seen:?}"),
                ))
            },
        )
        .await?;
    }
    Ok(())
}

async fn metrics_are_served(ctx: &Context) -> Result<(), StepError> {
    const WANTED: &str = "rte_noderesourcetopology_writes_total";
    let profile = profile(ctx).await?;
    let reader = ctx.metrics_reader().await?;
    let port = api::metrics::RTE_PORT;
    for pod in ctx.exporters().await? {
        ctx.step(format!("{} serves its metrics", pod.name_any()), async {
            let stream = ctx.connect_tls(&pod, port).await?;
            agreed(ctx, &profile, stream.get_ref().1)?;
            let answer = reader.read(stream).await?;
            if answer.contains(WANTED) {
                return Ok(());
            }
            let what = format!("{} bytes without it", answer.len());
            Err(StepError::mismatch("metrics", WANTED, what))
        })
        .await?;
    }
    Ok(())
}
