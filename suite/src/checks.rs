//! Waiting for pods and workloads, and reading their events (scenarios-serial.md 7.7).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use regex::Regex;
use serde_json::{Value, json};

use crate::context::Context;
use crate::observed::{NodeTopology, accounting_difference, difference, zones_difference};
use crate::recorder::PollResult;
use crate::resources::Resources;
use crate::scenario::{Scope, StepError};
use crate::workload::PodPlan;

/// How many attempts must have failed since the last change of an NRT for "stays pending".
const REJECTIONS: i64 = 2;

impl Context {
    /// Waits until these pods run; a pod that failed ends the wait.
    pub async fn pods_running(&self, names: &[String]) -> Result<Vec<Pod>, StepError> {
        self.pods_running_within(names, self.deadlines().running)
            .await
    }

    /// Like [`Context::pods_running`], with a limit that is part of what is tested.
    pub async fn pods_running_within(
        &self,
        names: &[String],
        limit: Duration,
    ) -> Result<Vec<Pod>, StepError> {
        let pods = self.api::<Pod>();
        let what = match names {
            [name] => format!("pod {name} runs"),
            names => format!("{} pods run", names.len()),
        };
        self.until(&what, limit, async || {
            let mut there: BTreeMap<String, Pod> = pods
                .list(&ListParams::default())
                .await?
                .items
                .into_iter()
                .map(|pod| (pod.name_any(), pod))
                .collect();
            let mut found = Vec::new();
            let mut missing = Vec::new();
            for name in names {
                match there.remove(name) {
                    None => missing.push(format!("{name} is missing")),
                    Some(pod) if phase(&pod) == "Failed" => return Err(failed_pod(&pod)),
                    Some(pod) if phase(&pod) == "Running" => found.push(pod),
                    Some(pod) => missing.push(describe(&pod)),
                }
            }
            Ok(if missing.is_empty() {
                PollResult::Ready(found)
            } else {
                let more = if missing.len() > 3 {
                    format!(", and {} more", missing.len() - 3)
                } else {
                    String::new()
                };
                PollResult::NotYet(format!(
                    "{}{more}",
                    missing[..missing.len().min(3)].join(", ")
                ))
            })
        })
        .await
    }

    /// Returns the pod as it is now.
    pub async fn pod(&self, name: &str) -> Result<Pod, StepError> {
        Ok(self.api::<Pod>().get(name).await?)
    }

    /// Returns the pods with these labels that are not being deleted.
    pub async fn pods_with(
        &self,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Pod>, StepError> {
        let selector: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let params = ListParams::default().labels(&selector.join(","));
        let pods = self.api::<Pod>().list(&params).await?.items;
        Ok(pods
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect())
    }

    /// Replaces the pod template of a deployment and its number of replicas.
    pub async fn update_deployment(&self, plan: &PodPlan, replicas: i32) -> Result<(), StepError> {
        let template = plan.deployment(replicas).spec.map(|spec| spec.template);
        let patch = json!({"spec": {"replicas": replicas, "template": template}});
        self.patch_deployment(plan.name(), &patch).await
    }

    /// Changes the number of pods of a deployment.
    pub async fn scale_deployment(&self, name: &str, replicas: usize) -> Result<(), StepError> {
        self.patch_deployment(name, &json!({"spec": {"replicas": replicas}}))
            .await
    }

    async fn patch_deployment(&self, name: &str, patch: &Value) -> Result<(), StepError> {
        let params = PatchParams::default();
        let deployments = self.api::<Deployment>();
        deployments
            .patch(name, &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Waits until a deployment is complete, and returns its pods. A pod that its kubelet refused ends the wait.
    pub async fn deployment_complete(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<Pod>, StepError> {
        let deployments = self.api::<Deployment>();
        self.until(
            &format!("deployment {name} is complete"),
            self.deadlines().running,
            async || {
                let pods = self.pods_with(labels).await?;
                if let Some(pod) = pods.iter().find(|pod| phase(pod) == "Failed") {
                    return Err(failed_pod(pod));
                }
                let deployment = deployments.get(name).await?;
                let wanted = deployment
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.replicas)
                    .unwrap_or(1);
                let status = deployment.status.clone().unwrap_or_default();
                let counts = [
                    status.replicas,
                    status.updated_replicas,
                    status.available_replicas,
                ];
                let complete = status.observed_generation >= deployment.metadata.generation
                    && counts
                        .iter()
                        .all(|count| count.unwrap_or_default() == wanted)
                    && pods.len() == usize::try_from(wanted).unwrap_or_default();
                Ok(if complete {
                    PollResult::Ready(pods)
                } else {
                    let pods: Vec<_> = pods.iter().map(describe).collect();
                    let [all, updated, available] = counts.map(Option::unwrap_or_default);
                    PollResult::NotYet(format!(
                        "{all} replicas, {updated} updated, {available} available of {wanted}: {}",
                        pods.join(", ")
                    ))
                })
            },
        )
        .await
    }

    /// Waits until a workload has `count` pods, in any phase.
    pub async fn pods_created(
        &self,
        labels: &BTreeMap<String, String>,
        count: usize,
    ) -> Result<Vec<Pod>, StepError> {
        self.until(
            &format!("{count} pods are created"),
            self.deadlines().running,
            async || {
                let pods = self.pods_with(labels).await?;
                Ok(if pods.len() == count {
                    PollResult::Ready(pods)
                } else {
                    PollResult::NotYet(format!("{} pods are there", pods.len()))
                })
            },
        )
        .await
    }

    /// Waits until a daemon set desires pods on `count` nodes.
    pub async fn daemon_set_desired(&self, name: &str, count: usize) -> Result<(), StepError> {
        let sets = self.api::<DaemonSet>();
        self.until(
            &format!("daemon set {name} wants {count} pods"),
            self.deadlines().running,
            async || {
                let desired = sets
                    .get(name)
                    .await?
                    .status
                    .map_or(0, |status| status.desired_number_scheduled);
                Ok(if usize::try_from(desired) == Ok(count) {
                    PollResult::Ready(())
                } else {
                    PollResult::NotYet(format!("it wants {desired}"))
                })
            },
        )
        .await
    }

    /// Checks that the pod is on this node.
    pub fn on_node(&self, pod: &Pod, node: &str) -> Result<(), StepError> {
        let seen = node_of(pod).unwrap_or("no node");
        if seen == node {
            self.recorder.saw(format!("{} on {seen}", pod.name_any()));
            return Ok(());
        }
        Err(StepError::mismatch(
            format!("pod {} is on the wrong node", pod.name_any()),
            node,
            seen,
        ))
    }

    /// Waits for the event that the scheduler under test bound the pod.
    pub async fn scheduled_by_stack(&self, pod: &Pod) -> Result<(), StepError> {
        self.scheduled_by(self.scheduler(), pod).await
    }

    /// Waits for the event that the scheduler `expected` bound the pod, and that no other scheduler did. The event may be missing if the
    /// pod names the scheduler under test and that scheduler has restarted since: a process that is killed loses the events that it has not
    /// written yet.
    pub async fn scheduled_by(&self, expected: &str, pod: &Pod) -> Result<(), StepError> {
        let name = pod.name_any();
        self.until(
            &format!("pod {name} has a Scheduled event by {expected}"),
            self.deadlines().running,
            async || {
                let events = self.events(pod).await?;
                let scheduled: Vec<_> = events
                    .iter()
                    .filter(|event| event.reason.as_deref() == Some("Scheduled"))
                    .collect();
                let by = |event: &&Event| reporter(event) == expected;
                Ok(match scheduled.first() {
                    None if expected == self.scheduler() && self.report_is_lost(pod).await? => {
                        self.recorder.saw(format!(
                            "{name} without a Scheduled event: {expected} was restarted since"
                        ));
                        PollResult::Ready(())
                    }
                    None => PollResult::NotYet("it has no Scheduled event".to_owned()),
                    Some(_) if scheduled.iter().any(by) => PollResult::Ready(()),
                    Some(event) => {
                        let message = format!("pod {name} was placed by another scheduler");
                        return Err(StepError::mismatch(message, expected, reporter(event)));
                    }
                })
            },
        )
        .await
    }

    /// Returns whether the scheduler under test had to bind this pod, the pod is bound, and that scheduler has started since.
    async fn report_is_lost(&self, pod: &Pod) -> Result<bool, StepError> {
        let Some(bound) = bound_for(pod, self.scheduler()) else {
            return Ok(false);
        };
        let schedulers = self.scheduler_pods().await?;
        Ok(schedulers
            .iter()
            .any(|scheduler| started(scheduler).is_some_and(|started| started >= bound)))
    }

    /// Returns the events about exactly this pod, not about an older one of the same name.
    pub async fn events(&self, pod: &Pod) -> Result<Vec<Event>, StepError> {
        let about = format!("regarding.uid={}", pod.uid().unwrap_or_default());
        let events = self.api::<Event>();
        let list = events.list(&ListParams::default().fields(&about)).await?;
        Ok(list.items)
    }

    /// Waits until the pods *stay pending*: the scheduler under test rejected each of them at least twice since the last change of an NRT,
    /// for a reason that matches. The pods must be created after the cluster was settled.
    pub async fn stay_pending(&self, names: &[String], reason: &str) -> Result<(), StepError> {
        let expected = Regex::new(reason).map_err(|error| {
            StepError::fail(format!("the reason is not a regular expression: {error}"))
        })?;
        let mut since = self
            .last_settled()
            .map(|nodes| (nodes, BTreeMap::<String, i64>::new()));
        let what = format!(
            "{} rejected twice with {reason:?} while no NRT changes",
            names.join(", ")
        );
        self.until(&what, self.deadlines().rejected, async || {
            let mut attempts = BTreeMap::new();
            let mut reasons = BTreeMap::new();
            for name in names {
                let pod = self.pod(name).await?;
                if phase(&pod) != "Pending" || node_of(&pod).is_some() {
                    let message = format!("pod {name} does not stay pending");
                    return Err(StepError::mismatch(
                        message,
                        "Pending, without a node",
                        describe(&pod),
                    ));
                }
                let rejected = self.rejections(&pod).await?;
                attempts.insert(name.clone(), rejected.iter().map(occurrences).sum::<i64>());
                reasons.insert(
                    name.clone(),
                    rejected
                        .into_iter()
                        .filter_map(|event| event.note)
                        .collect::<Vec<_>>(),
                );
            }
            let nodes = self.topologies().await?;
            let base = match &since {
                Some((before, base)) if difference(before, &nodes).is_none() => base.clone(),
                _ => {
                    since = Some((nodes, attempts.clone()));
                    attempts.clone()
                }
            };
            let missing = names.iter().find_map(|name| {
                let count = attempts[name] - base.get(name).copied().unwrap_or_default();
                let notes = &reasons[name];
                let enough =
                    count >= REJECTIONS && notes.iter().any(|note| expected.is_match(note));
                (!enough).then(|| {
                    format!(
                        "{name}: {count} rejections since the last change of an NRT; reasons: {}",
                        notes.join(" | ")
                    )
                })
            });
            Ok(missing.map_or_else(|| PollResult::Ready(()), PollResult::NotYet))
        })
        .await
    }

    /// Returns the events of failed attempts by the scheduler under test to place a pod.
    async fn rejections(&self, pod: &Pod) -> Result<Vec<Event>, StepError> {
        let by_stack = |event: &Event| {
            event.reason.as_deref() == Some("FailedScheduling")
                && reporter(event) == self.scheduler()
        };
        Ok(self
            .events(pod)
            .await?
            .into_iter()
            .filter(by_stack)
            .collect())
    }

    /// Checks that the zones of a node account for exactly these resources since `before`; with scope `pod`, or with a single container, in
    /// one zone.
    pub async fn accounted(
        &self,
        before: &NodeTopology,
        required: &Resources,
        guaranteed: bool,
        scope: Scope,
    ) -> Result<(), StepError> {
        let after = self.settled_on(&before.node).await?;
        match accounting_difference(before, &after, required, guaranteed, scope == Scope::Pod) {
            None => Ok(()),
            Some(seen) => Err(StepError::mismatch(
                "the NRT accounts for something else",
                required,
                seen,
            )),
        }
    }

    /// Waits until a node's zones are as they were before.
    pub async fn restored(&self, before: &NodeTopology) -> Result<(), StepError> {
        self.until(
            &format!("the NRT of {} is as before", before.node),
            self.deadlines().settled,
            async || {
                let after = self.topology(&before.node).await?;
                Ok(match zones_difference(before, &after) {
                    None => PollResult::Ready(()),
                    Some(difference) => PollResult::NotYet(difference),
                })
            },
        )
        .await
    }
}

/// How far the rollout of a daemon set has progressed.
#[derive(Clone, Copy, Debug)]
pub struct Rollout {
    /// Nodes that should have a pod of it.
    pub wanted: i32,
    /// Its pods that are ready.
    pub ready: i32,
    /// Its pods that were made from the current template.
    pub updated: i32,
    is_observed: bool,
}

impl Rollout {
    /// Reads the status of the set.
    pub fn of(set: &DaemonSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        Self {
            wanted: status.desired_number_scheduled,
            ready: status.number_ready,
            updated: status.updated_number_scheduled.unwrap_or_default(),
            is_observed: set.status.is_some()
                && status.observed_generation == set.metadata.generation,
        }
    }

    /// Returns whether every pod is made from the current template and ready.
    pub fn is_over(self) -> bool {
        self.is_observed && [self.ready, self.updated] == [self.wanted; 2]
    }
}

impl fmt::Display for Rollout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            wanted,
            ready,
            updated,
            is_observed,
        } = self;
        write!(f, "{wanted} wanted, {ready} ready, {updated} up to date")?;
        if *is_observed {
            return Ok(());
        }
        f.write_str(", before the last change")
    }
}

/// Returns the phase of a pod.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Unknown")
}

/// Returns the node of a pod.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Returns whether a pod is ready.
pub fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Describes a pod's state in a few words, with the reason if it has one.
pub fn describe(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            Some(format!(
                "{} {}",
                waiting.reason.as_deref()?,
                waiting.message.as_deref().unwrap_or_default()
            ))
        });
    let unscheduled = status.conditions.iter().flatten().find_map(|condition| {
        (condition.type_ == "PodScheduled" && condition.status == "False")
            .then(|| condition.message.clone())
            .flatten()
    });
    let reason = status
        .reason
        .map(|reason| format!("{reason} {}", status.message.unwrap_or_default()));
    let node = node_of(pod).map_or(String::new(), |node| format!(" on {node}"));
    let detail = reason
        .or(waiting)
        .or(unscheduled)
        .map_or(String::new(), |text| format!(" ({})", text.trim()));
    format!("{} is {}{node}{detail}", pod.name_any(), phase(pod))
}

fn failed_pod(pod: &Pod) -> StepError {
    StepError::mismatch(
        format!("pod {} failed", pod.name_any()),
        "Running",
        describe(pod),
    )
}

fn reporter(event: &Event) -> &str {
    match event.reporting_controller.as_deref() {
        Some(controller) if !controller.is_empty() => controller,
        _ => event
            .deprecated_source
            .as_ref()
            .and_then(|source| source.component.as_deref())
            .unwrap_or_default(),
    }
}

/// Returns when the pod was bound, if it names this scheduler.
fn bound_for(pod: &Pod, scheduler: &str) -> Option<Timestamp> {
    let named = pod.spec.as_ref()?.scheduler_name.as_deref() == Some(scheduler);
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let bound = conditions
        .iter()
        .find(|one| one.type_ == "PodScheduled" && one.status == "True")?;
    named.then(|| bound.last_transition_time.as_ref().map(|time| time.0))?
}

/// Returns when the most recently started container of the pod started.
fn started(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    let running = |status: &ContainerStatus| {
        let state = status.state.as_ref()?.running.as_ref()?;
        state.started_at.as_ref().map(|time| time.0)
    };
    statuses.iter().filter_map(running).max()
}

/// Returns how often an event occurred.
fn occurrences(event: &Event) -> i64 {
    let series = event.series.as_ref().map(|series| series.count);
    i64::from(series.or(event.deprecated_count).unwrap_or(1).max(1))
}

/// Formats events as lines for people, oldest first.
pub async fn event_lines(api: &Api<Event>) -> Vec<String> {
    let Ok(list) = api.list(&ListParams::default()).await else {
        return Vec::new();
    };
    let mut events = list.items;
    events.sort_by_key(|event| event.metadata.creation_timestamp.clone().map(|time| time.0));
    events
        .iter()
        .map(|event| {
            let object = event.regarding.clone().unwrap_or_default();
            format!(
                "{} {} {}/{} x{} by {}: {}",
                event.type_.as_deref().unwrap_or_default(),
                event.reason.as_deref().unwrap_or_default(),
                object.kind.unwrap_or_default(),
                object.name.unwrap_or_default(),
                occurrences(event),
                reporter(event),
                event.note.as_deref().unwrap_or_default()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn mk_pod(scheduler: &str, scheduled: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"schedulerName": scheduler, "containers": []},
            "status": {"conditions": [{
                "type": "PodScheduled", "status": scheduled, "lastTransitionTime": "2026-01-01T00:00:10Z",
            }]},
        }))
        .unwrap()
    }

    #[rstest]
    #[case::bound("ours", "True", true)]
    #[case::waits("ours", "False", false)]
    #[case::of_another("theirs", "True", false)]
    fn only_a_bound_pod_of_this_scheduler_has_a_time_of_its_binding(
        #[case] scheduler: &str,
        #[case] scheduled: &str,
        #[case] expected: bool,
    ) {
        let bound = bound_for(&mk_pod(scheduler, scheduled), "ours");
        assert_eq!(bound.is_some(), expected);
    }

    #[test]
    fn a_scheduler_started_when_its_newest_container_did() {
        let at = |second: u32| {
            json!({"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": format!("2026-01-01T00:00:{second:02}Z")}}})
        };
        let waiting = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        let mk = |statuses: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"status": {"containerStatuses": statuses}})).unwrap()
        };
        let bound = bound_for(&mk_pod("ours", "True"), "ours");
        assert!(started(&mk(json!([at(9)]))) < bound);
        assert!(started(&mk(json!([at(9), at(10)]))) >= bound);
        assert_eq!(started(&mk(json!([waiting]))), None);
    }
}
