//! Waits until the stack is available, and says why it is not.

use std::time::Duration;

use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use api::{conditions, names};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, ListParams};

use super::Options;
use crate::context::checks::{describe, is_ready};
use crate::recorder::{PollResult, Recorder};
use crate::step::StepError;

/// What the status of the stack reports.
pub(super) struct Status {
    /// Name of the scheduler's profile.
    pub(super) scheduler: Option<String>,
    /// Whether the scheduler has a resource.
    pub(super) scheduler_resource: bool,
    /// Period of its cache resynchronisation.
    pub(super) cache_resync: Option<Duration>,
}

/// Waits until both resources are Available.
pub(super) async fn available(
    options: &Options,
    recorder: &Recorder,
    client: &Client,
) -> Result<Status, StepError> {
    let limit = options.deadlines.installed;
    let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
    recorder
        .step("the exporters are available", async {
            recorder
                .until("NUMAResourcesOperator is Available", limit, async || {
                    let object = operators.get(names::OPERATOR_CR).await?;
                    let status = object.status.unwrap_or_default();
                    Ok(match not_available(&status.conditions) {
                        None => PollResult::Ready(()),
                        Some(why) => {
                            PollResult::NotYet(format!("{why}; {}", pods_not_ready(client).await?))
                        }
                    })
                })
                .await
        })
        .await?;
    let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
    if options.scheduler.is_some() {
        // another scheduler is under test
        let found = schedulers.get_opt(names::SCHEDULER_CR).await?;
        let scheduler_resource = found.is_some();
        let status = found.and_then(|object| object.status).unwrap_or_default();
        let cache_resync = status.cache_resync_period.as_deref().and_then(duration);
        return Ok(Status {
            scheduler_resource,
            scheduler: status.scheduler_name,
            cache_resync,
        });
    }
    recorder
        .step("the scheduler is available", async {
            let status = recorder
                .until("NUMAResourcesScheduler is Available", limit, async || {
                    let object = schedulers.get(names::SCHEDULER_CR).await?;
                    let status = object.status.unwrap_or_default();
                    Ok(match not_available(&status.conditions) {
                        None => PollResult::Ready(status),
                        Some(why) => {
                            PollResult::NotYet(format!("{why}; {}", pods_not_ready(client).await?))
                        }
                    })
                })
                .await?;
            let period = status.cache_resync_period.as_deref().and_then(duration);
            recorder.saw(status.scheduler_name.clone().unwrap_or_default());
            Ok(Status {
                scheduler_resource: true,
                scheduler: status.scheduler_name,
                cache_resync: period,
            })
        })
        .await
}

fn duration(text: &str) -> Option<Duration> {
    let parsed: goflags::GoDuration = text.parse().ok()?;
    u64::try_from(parsed.as_nanos())
        .ok()
        .map(Duration::from_nanos)
}

/// Returns from its conditions why a resource is not available.
fn not_available(all: &[Condition]) -> Option<String> {
    let is_true = |name: &str| {
        all.iter()
            .find(|condition| condition.type_ == name && condition.status == "True")
    };
    if is_true(conditions::AVAILABLE).is_some() {
        return None;
    }
    let active = is_true(conditions::DEGRADED).or_else(|| is_true(conditions::PROGRESSING));
    Some(active.map_or_else(
        || "it has no condition that is True".to_owned(),
        |condition| {
            format!(
                "it is {}: {} {}",
                condition.type_, condition.reason, condition.message
            )
        },
    ))
}

/// Returns why the stack is not available now, if it is not.
pub(super) async fn unavailable(client: &Client) -> Result<Option<String>, StepError> {
    let operator = Api::<NumaResourcesOperator>::all(client.clone());
    let operator = operator.get(names::OPERATOR_CR).await?.status;
    let scheduler = Api::<NumaResourcesScheduler>::all(client.clone());
    let scheduler = scheduler.get(names::SCHEDULER_CR).await?.status;
    let all = [
        (
            "NUMAResourcesOperator",
            operator.map(|status| status.conditions),
        ),
        (
            "NUMAResourcesScheduler",
            scheduler.map(|status| status.conditions),
        ),
    ];
    Ok(all.into_iter().find_map(|(kind, conditions)| {
        let why = not_available(&conditions.unwrap_or_default())?;
        Some(format!("{kind}: {why}"))
    }))
}

/// Describes the pods of the stack that are not ready, for people who wait.
async fn pods_not_ready(client: &Client) -> Result<String, StepError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::NAMESPACE);
    let pods = pods.list(&ListParams::default()).await?.items;
    let waiting: Vec<_> = pods
        .iter()
        .filter(|pod| !is_ready(pod))
        .map(describe)
        .collect();
    Ok(if waiting.is_empty() {
        format!("all {} pods are ready", pods.len())
    } else {
        waiting.join(", ")
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn what_keeps_a_resource_from_being_available_is_told() {
        let condition = |type_: &str, status: &str| Condition {
            last_transition_time: Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH),
            message: "a message".to_owned(),
            observed_generation: None,
            reason: "Reason".to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        };
        assert_eq!(not_available(&[condition("Available", "True")]), None);
        assert_eq!(
            not_available(&[]).as_deref(),
            Some("it has no condition that is True")
        );
        let degraded = [
            condition("Available", "False"),
            condition("Degraded", "True"),
        ];
        assert_eq!(
            not_available(&degraded).as_deref(),
            Some("it is Degraded: Reason a message")
        );
    }
}
