//! What schedulers did with pods, by their events: who bound one, and why one stays pending.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use regex::Regex;

use super::{describe, node_of, phase};
use crate::context::Context;
use crate::observed::{NodeTopology, difference};
use crate::recorder::PollResult;
use crate::step::StepError;

/// How many attempts must have failed since the last change of an NRT for "stays pending".
const REJECTIONS: i64 = 2;
/// How long after a change of an NRT a scheduler knows it for certain: its watch brings a change within milliseconds.
const KNOWN_AFTER: Duration = Duration::from_secs(3);

impl Context {
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

    /// Waits until the pods *stay pending*: the scheduler under test rejected each of them for a reason that matches, and knew the last change
    /// of an NRT when it did. It did if it has rejected the pod twice since the change, or once when the change had been there for three
    /// seconds. The pods must be created after the cluster was settled.
    pub async fn stay_pending(&self, names: &[String], reason: &str) -> Result<(), StepError> {
        let expected = Regex::new(reason).map_err(|error| {
            StepError::fail(format!("the reason is not a regular expression: {error}"))
        })?;
        let mut since = self.last_settled().map(Unchanged::new);
        let what = format!(
            "{} rejected with {reason:?} while no NRT changes",
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
            let same = since
                .take()
                .filter(|since| difference(&since.nodes, &nodes).is_none());
            let unchanged = since.insert(same.unwrap_or_else(|| Unchanged {
                attempts: attempts.clone(),
                ..Unchanged::new(nodes)
            }));
            unchanged.look(&attempts, Instant::now());
            let missing = names.iter().find_map(|name| {
                let (count, late) = unchanged.rejections(name, attempts[name]);
                let notes = &reasons[name];
                let enough = (count >= REJECTIONS || late > 0)
                    && notes.iter().any(|note| expected.is_match(note));
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
    pub(crate) async fn rejections(&self, pod: &Pod) -> Result<Vec<Event>, StepError> {
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
}

/// The time since which no NRT has changed, as a wait sees it.
struct Unchanged {
    nodes: Vec<NodeTopology>,
    from: Instant,
    /// Attempts to place each pod until the last change.
    attempts: BTreeMap<String, i64>,
    /// Attempts until the scheduler knew the change for certain.
    known: Option<BTreeMap<String, i64>>,
}

impl Unchanged {
    fn new(nodes: Vec<NodeTopology>) -> Self {
        Self {
            nodes,
            from: Instant::now(),
            attempts: BTreeMap::new(),
            known: None,
        }
    }

    /// Takes note of the attempts until now.
    fn look(&mut self, attempts: &BTreeMap<String, i64>, now: Instant) {
        if self.known.is_none() && now >= self.from + KNOWN_AFTER {
            self.known = Some(attempts.clone());
        }
    }

    /// Returns the number of attempts since the last change, and of those when the scheduler knew it for certain.
    fn rejections(&self, name: &str, attempts: i64) -> (i64, i64) {
        let before = |known: &BTreeMap<String, i64>| known.get(name).copied().unwrap_or_default();
        let late = self
            .known
            .as_ref()
            .map_or(0, |known| attempts - before(known));
        (attempts - before(&self.attempts), late)
    }
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

    #[test]
    fn a_rejection_counts_as_late_once_the_scheduler_must_know_the_change() {
        let attempts = |count: i64| BTreeMap::from([("p".to_owned(), count)]);
        let mut unchanged = Unchanged {
            attempts: attempts(4),
            ..Unchanged::new(Vec::new())
        };
        let before = unchanged.from + KNOWN_AFTER / 2;
        unchanged.look(&attempts(5), before);
        assert_eq!(unchanged.rejections("p", 5), (1, 0));
        // this rejection may have come before the change was known, so it only counts as one of two
        unchanged.look(&attempts(5), unchanged.from + KNOWN_AFTER);
        assert_eq!(unchanged.rejections("p", 5), (1, 0));
        unchanged.look(&attempts(6), unchanged.from + 2 * KNOWN_AFTER);
        assert_eq!(unchanged.rejections("p", 6), (2, 1));
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
