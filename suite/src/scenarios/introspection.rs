//! What the stack reports about itself: its metrics, its termination messages, its version (scenarios-serial.md 9.7, 9.9, 9.10).

use api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Deserialize;

use crate::context::Context;
use crate::context::metrics::Endpoint;
use crate::context::stack::Component;
use crate::scenario::{Scenario, body};
use crate::scenarios::registry::scenario;
use crate::step::StepError;

/// File of the operator's image with its build information.
const BUILD_INFO: &str = "/usr/local/share/buildinfo.json";

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "introspection/operator-termination-policy",
            &[],
            body(|ctx| Box::pin(operators_end_with_their_logs(ctx))),
        ),
        scenario(
            "introspection/rte-termination-policy",
            &[],
            body(|ctx| Box::pin(exporters_end_with_their_logs(ctx))),
        ),
        scenario(
            "metrics/operator",
            &[],
            body(|ctx| Box::pin(operator_counts_its_work(ctx))),
        ),
        scenario(
            "metrics/rte",
            &[],
            body(|ctx| Box::pin(exporters_count_their_writes(ctx))),
        ),
        scenario(
            "version/report",
            &[],
            body(|ctx| Box::pin(versions_are_reported(ctx))),
        ),
    ]
}

/// Returns the pods of the operator. It is an error if there are none.
async fn operators(ctx: &Context) -> Result<Vec<Pod>, StepError> {
    let pods = ctx.operator_pods().await?;
    if pods.is_empty() {
        let label = Component::Operator.selector();
        return Err(StepError::fail(format!("no pod has the label {label}")));
    }
    Ok(pods)
}

async fn operators_end_with_their_logs(ctx: &Context) -> Result<(), StepError> {
    let pods = operators(ctx).await?;
    end_with_their_logs(ctx, &pods).await
}

async fn exporters_end_with_their_logs(ctx: &Context) -> Result<(), StepError> {
    let pods = ctx.exporters().await?;
    end_with_their_logs(ctx, &pods).await
}

/// Checks that a container's termination message is the end of its log unless the container writes another message.
async fn end_with_their_logs(ctx: &Context, pods: &[Pod]) -> Result<(), StepError> {
    const EXPECTED: &str = "FallbackToLogsOnError";
    for pod in pods {
        ctx.step(
            format!("{} ends with the end of its log", pod.name_any()),
            async {
                let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
                for container in containers {
                    let seen = container.termination_message_policy.as_deref();
                    if seen != Some(EXPECTED) {
                        let what = format!("terminationMessagePolicy of {}", container.name);
                        return Err(StepError::mismatch(
                            what,
                            EXPECTED,
                            seen.unwrap_or_default(),
                        ));
                    }
                }
                Ok(())
            },
        )
        .await?;
    }
    Ok(())
}

async fn operator_counts_its_work(ctx: &Context) -> Result<(), StepError> {
    let pods = ctx
        .step("there is one operator", async {
            let pods = operators(ctx).await?;
            if let [_] = pods.as_slice() {
                return Ok(pods);
            }
            Err(StepError::mismatch("pods of the operator", 1, pods.len()))
        })
        .await?;
    let reader = ctx.metrics_reader().await?;
    for controller in [names::OPERATOR_CR, names::SCHEDULER_CR] {
        let sample =
            format!("workqueue_adds_total{{controller=\"{controller}\",name=\"{controller}\"}}");
        ctx.step(
            format!("it counts what {controller} has to do"),
            ctx.metrics_have(&reader, &pods[0], Endpoint::Https(8080), &[&sample]),
        )
        .await?;
    }
    Ok(())
}

async fn exporters_count_their_writes(ctx: &Context) -> Result<(), StepError> {
    let wanted = [
        "rte_noderesourcetopology_writes_total",
        "rte_wakeup_delay_milliseconds",
    ];
    let reader = ctx.metrics_reader().await?;
    let endpoint = Endpoint::Https(api::metrics::RTE_PORT);
    for pod in ctx.exporters().await? {
        ctx.step(
            format!("{} counts its writes", pod.name_any()),
            ctx.metrics_have(&reader, &pod, endpoint, &wanted),
        )
        .await?;
    }
    Ok(())
}

/// Build information of an image.
#[derive(Deserialize)]
struct BuildInfo {
    branch: String,
    version: String,
    commit: String,
}

/// Returns version, commit and branch of a build information. It is an error if one of them is missing.
fn build_info(text: &str) -> Result<String, StepError> {
    let info: BuildInfo = serde_json::from_str(text).map_err(|error| {
        StepError::fail(format!("{BUILD_INFO} is not readable ({error}): {text}"))
    })?;
    let BuildInfo {
        branch,
        version,
        commit,
    } = &info;
    if [branch, version, commit].iter().any(|word| word.is_empty()) {
        return Err(StepError::fail(format!(
            "{BUILD_INFO} leaves something empty: {text}"
        )));
    }
    Ok(format!("{version} {commit} ({branch})"))
}

async fn versions_are_reported(ctx: &Context) -> Result<(), StepError> {
    ctx.step("the suite and the cluster", async {
        ctx.recorder.saw(format!(
            "suite {}, Kubernetes {}",
            env!("CARGO_PKG_VERSION"),
            ctx.facts().kubernetes
        ));
        Ok(())
    })
    .await?;
    let pod = ctx
        .step("the operator's pod", async {
            ctx.operator_resource().await?;
            Ok(operators(ctx).await?.remove(0))
        })
        .await?;
    ctx.step("the operator", async {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let name = containers.map(|container| container.name.as_str()).next();
        let command = ["/bin/cat", BUILD_INFO];
        let output = ctx.exec(&pod, name.unwrap_or_default(), &command).await?;
        let version = if output.succeeded {
            build_info(&output.stdout)?
        } else {
            // an image without the file, or without the program that prints it
            "UNKNOWN UNKNOWN".to_owned()
        };
        ctx.recorder
            .saw(format!("running against NUMAResources {version}"));
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_information_has_version_commit_and_branch() {
        let text = r#"{"gitbranch": "main", "branch": "devel", "version": "5.0", "commit": "abc"}"#;
        assert_eq!(build_info(text).ok().as_deref(), Some("5.0 abc (devel)"));
        assert!(build_info(r#"{"branch": "devel", "version": "5.0"}"#).is_err());
        assert!(build_info(r#"{"branch": "", "version": "5.0", "commit": "abc"}"#).is_err());
    }
}
