//! What is wrong with the stack itself: containers that ended, containers that cannot start, leases that nobody holds.
//!
//! A scenario that fails because the scheduler crashes says little about placement. So the set-up proves that the stack works
//! (`setup::proof`), the page of each failure opens with the [`troubles`] of the stack, and a stack that does not stay up ends the run.

use std::collections::BTreeMap;
use std::time::Duration;

use api::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt as _};
use tokio::time::Instant;

/// Number of log lines of a container that ended.
const LOG_LINES: i64 = 5;
/// How long containers must run before a stack counts as up again. A program that ends as soon as it has started has several ends in that time, or
/// waits for its next start.
const STAYS_UP: Duration = Duration::from_secs(5);

/// How often each container of the stack had restarted at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restarts(BTreeMap<(String, String), i32>);

impl Restarts {
    /// Counts the restarts of these pods.
    fn of(pods: &[Pod]) -> Self {
        Self(
            containers(pods)
                .map(|(pod, status)| (key(pod, status), status.restart_count))
                .collect(),
        )
    }

    /// Counts the restarts of the stack's containers on this cluster.
    ///
    /// # Errors
    /// Returns an error if the pods cannot be listed.
    pub async fn count(client: &Client) -> kube::Result<Self> {
        Ok(Self::of(&pods(client).await?))
    }

    /// Returns how often a container has ended since then, if it has. A container that did not exist then counts from zero.
    fn since(&self, pod: &Pod, status: &ContainerStatus) -> Option<i32> {
        let before = self.0.get(&key(pod, status)).copied().unwrap_or_default();
        (status.restart_count > before).then(|| status.restart_count - before)
    }
}

/// A container is known by its pod's UID and its name.
fn key(pod: &Pod, status: &ContainerStatus) -> (String, String) {
    (pod.uid().unwrap_or_default(), status.name.clone())
}

fn containers(pods: &[Pod]) -> impl Iterator<Item = (&Pod, &ContainerStatus)> {
    pods.iter().flat_map(|pod| {
        let statuses = pod.status.iter().flat_map(|status| {
            let init = status.init_container_statuses.iter().flatten();
            init.chain(status.container_statuses.iter().flatten())
        });
        statuses.map(move |status| (pod, status))
    })
}

/// Returns the pods of the stack, without those that are being deleted, whose containers have to end.
async fn pods(client: &Client) -> kube::Result<Vec<Pod>> {
    let pods = Api::<Pod>::namespaced(client.clone(), names::NAMESPACE);
    let all = pods.list(&ListParams::default()).await?.items;
    Ok(all
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .collect())
}

/// Describes each container of the stack that ended since `before` or does not run, with its last log lines. An empty list means that nothing is wrong.
///
/// # Errors
/// Returns an error if the pods cannot be listed. Logs that cannot be read are left out.
pub async fn troubles(client: &Client, before: &Restarts) -> kube::Result<Vec<String>> {
    let all = pods(client).await?;
    let mut lines = Vec::new();
    for (pod, status) in containers(&all) {
        let Some(trouble) = trouble(pod, status, before) else {
            continue;
        };
        lines.push(trouble);
        let log = last_lines(client, pod, status).await;
        lines.extend(log.lines().map(|line| format!("  | {line}")));
    }
    Ok(lines)
}

/// Returns the containers of the stack that ended since `before`, one phrase each.
///
/// # Errors
/// Returns an error if the pods cannot be listed.
pub async fn ended(client: &Client, before: &Restarts) -> kube::Result<Vec<String>> {
    let all = pods(client).await?;
    let ended = containers(&all)
        .filter(|(pod, status)| before.since(pod, status).is_some() || has_crashed(status));
    Ok(ended
        .filter_map(|(pod, status)| trouble(pod, status, before))
        .collect())
}

/// Watches whether the stack stays up: for [`STAYS_UP`], no container restarts and none is down.
#[derive(Debug, Default)]
pub(crate) struct StaysUp(Option<(Instant, Restarts)>);

impl StaysUp {
    /// Looks once. Returns what is missing, or nothing once the stack has stayed up.
    ///
    /// # Errors
    /// Returns an error if the pods cannot be listed.
    pub(crate) async fn look(&mut self, client: &Client) -> kube::Result<Option<String>> {
        let all = pods(client).await?;
        let now = Restarts::of(&all);
        let crashed = containers(&all).find(|(_, status)| has_crashed(status));
        if let Some((pod, status)) = crashed {
            self.0 = None;
            return Ok(trouble(pod, status, &Restarts::default()));
        }
        match &self.0 {
            Some((since, before)) if *before == now => Ok((since.elapsed() < STAYS_UP)
                .then(|| "its containers have run for a short time only".to_owned())),
            _ => {
                self.0 = Some((Instant::now(), now));
                Ok(Some("containers of it have restarted".to_owned()))
            }
        }
    }
}

/// Returns whether a container is down after a failure.
fn has_crashed(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    let waits = state.and_then(|state| state.waiting.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    waits.is_some_and(|waits| waits.reason.as_deref() == Some("CrashLoopBackOff"))
        || ended.is_some_and(|ended| ended.exit_code != 0)
}

/// Describes what is wrong with a container, if anything is.
fn trouble(pod: &Pod, status: &ContainerStatus, before: &Restarts) -> Option<String> {
    let state = status.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let starts = waiting.is_none_or(|waiting| {
        // what every container goes through
        matches!(
            waiting.reason.as_deref(),
            None | Some("ContainerCreating" | "PodInitializing")
        )
    });
    let restarts = before.since(pod, status);
    if restarts.is_none() && starts && !has_crashed(status) {
        return None;
    }
    let mut parts = vec![format!(
        "container {} of pod {}",
        status.name,
        pod.name_any()
    )];
    if let Some(count) = restarts {
        let times = if count == 1 { "time" } else { "times" };
        parts[0] = format!("{} ended {count} {times}", parts[0]);
    }
    if let Some(last) = last_end(status) {
        let signal = last.signal.filter(|signal| *signal != 0);
        let signal = signal.map_or_else(String::new, |signal| format!(" by signal {signal}"));
        let reason = last.reason.as_ref();
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        let times = last.started_at.as_ref().zip(last.finished_at.as_ref());
        let after = times.map_or_else(String::new, |(from, to)| {
            format!(" after {} s", to.0.duration_since(from.0).as_secs())
        });
        let code = last.exit_code;
        parts.push(format!("last with exit code {code}{signal}{reason}{after}"));
    }
    if let (Some(waiting), false) = (waiting, starts) {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        parts.push(format!("waits: {reason} {message}").trim_end().to_owned());
    }
    Some(parts.join(", "))
}

/// Returns the last end of a container: of the run that is over now, or of the one before.
fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let now = status
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let then = status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    now.or(then)
}

/// Returns the last lines that a container wrote before it ended.
async fn last_lines(client: &Client, pod: &Pod, status: &ContainerStatus) -> String {
    let pods = Api::<Pod>::namespaced(client.clone(), names::NAMESPACE);
    let ended_before = status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some());
    let params = LogParams {
        container: Some(status.name.clone()),
        previous: ended_before,
        tail_lines: Some(LOG_LINES),
        ..LogParams::default()
    };
    pods.logs(&pod.name_any(), &params)
        .await
        .unwrap_or_default()
}

/// A lease of the stack, as it was at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    holder: String,
    renewed: Option<Timestamp>,
}

/// Leases at the first look at them, by name: a lease that is renewed later is held, whatever the clocks of the cluster say.
pub(crate) type FirstLook = BTreeMap<&'static str, Held>;

/// Returns why a lease that the stack elects by is not held now, if one is not. The operator always elects, unless its Deployment says otherwise
/// (operator.md 1); schedulers elect when there are several of them, or when the configuration of the one says so.
///
/// # Errors
/// Returns an error if Deployments, the configuration or leases cannot be read.
pub(crate) async fn lease_not_held(
    client: &Client,
    first: &mut FirstLook,
) -> kube::Result<Option<String>> {
    let leases = Api::<Lease>::namespaced(client.clone(), names::NAMESPACE);
    for (deployment, name) in [
        (names::OPERATOR_DEPLOYMENT, names::OPERATOR_LEASE),
        (names::SCHEDULER, names::SCHEDULER_LEASE),
    ] {
        let deployments = Api::<Deployment>::namespaced(client.clone(), names::NAMESPACE);
        let Some(found) = deployments.get_opt(deployment).await? else {
            continue;
        };
        let configured = deployment == names::SCHEDULER && is_configured(client).await?;
        let elects = elects(&found, configured);
        if !elects {
            continue;
        }
        let Some(lease) = leases.get_opt(name).await? else {
            return Ok(Some(format!("Deployment {deployment} has no Lease {name}")));
        };
        if let Some(why) = not_held(&lease, name, first, Timestamp::now()) {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Returns whether the configuration of the scheduler asks for an election.
async fn is_configured(client: &Client) -> kube::Result<bool> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), names::NAMESPACE);
    let map = maps.get_opt(names::SCHEDULER_CONFIG_MAP).await?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    Ok(data
        .get(names::CONFIG_KEY)
        .is_some_and(|text| asks_for_election(text)))
}

/// What is no configuration asks for nothing: the scheduler itself refuses it.
fn asks_for_election(config: &str) -> bool {
    let config: serde_json::Value = serde_yaml::from_str(config).unwrap_or_default();
    config["leaderElection"]["leaderElect"] == true
}

/// Returns whether the pods of a Deployment elect one among them, where their configuration asks for it or not.
fn elects(deployment: &Deployment, configured: bool) -> bool {
    let Some(spec) = &deployment.spec else {
        return false;
    };
    let pod = spec.template.spec.iter();
    let mut words = pod
        .flat_map(|pod| &pod.containers)
        .flat_map(|container| container.command.iter().chain(&container.args))
        .flatten();
    let is_operator = deployment.name_any() == names::OPERATOR_DEPLOYMENT;
    let refuses = words.any(|word| word.trim_start_matches('-') == "leader-elect=false");
    let replicas = spec.replicas.unwrap_or(1);
    replicas > 0 && !refuses && (is_operator || replicas > 1 || configured)
}

/// Returns why a lease is not held. It is when it was renewed less than its duration ago, or since the first look.
fn not_held(
    lease: &Lease,
    name: &'static str,
    first: &mut FirstLook,
    now: Timestamp,
) -> Option<String> {
    let spec = lease.spec.clone().unwrap_or_default();
    let seen = Held {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0),
    };
    if seen.holder.is_empty() {
        return Some(format!("Lease {name} has no holder"));
    }
    let limit = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let age = seen.renewed.map(|at| now.duration_since(at).as_secs());
    let before = first.entry(name).or_insert_with(|| seen.clone());
    if *before != seen || age.is_some_and(|age| age <= limit) {
        return None;
    }
    Some(format!(
        "Lease {name} of {} was renewed {} s ago, and is for {limit} s",
        seen.holder,
        age.map_or_else(|| "an unknown number of".to_owned(), |age| age.to_string())
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn mk_pod(restarts: i32, state: &Value, last: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "status": {"containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": restarts,
                "state": state, "lastState": last,
            }]},
        }))
        .expect("a pod")
    }

    fn describe(pod: &Pod, before: &Restarts) -> Option<String> {
        let pods = [pod.clone()];
        let (pod, status) = containers(&pods).next().expect("it has a container");
        trouble(pod, status, before)
    }

    fn running() -> Value {
        json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    }

    fn ended() -> Value {
        json!({"terminated": {
            "exitCode": 3, "reason": "Error",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:02Z",
        }})
    }

    #[rstest]
    #[case::runs(0, running(), json!({}), None)]
    #[case::starts(0, json!({"waiting": {"reason": "ContainerCreating"}}), json!({}), None)]
    #[case::completed(0, json!({"terminated": {"exitCode": 0}}), json!({}), None)]
    #[case::restarted(
        2,
        running(),
        ended(),
        Some("container c of pod p ended 2 times, last with exit code 3 (Error) after 2 s")
    )]
    #[case::crash_loop(
        1, json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}), ended(),
        Some("container c of pod p ended 1 time, last with exit code 3 (Error) after 2 s, waits: CrashLoopBackOff back-off 10s")
    )]
    #[case::no_image(
        0, json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}}), json!({}),
        Some("container c of pod p, waits: ErrImagePull not found")
    )]
    fn a_container_that_ended_or_cannot_start_is_described(
        #[case] restarts: i32,
        #[case] state: Value,
        #[case] last: Value,
        #[case] expected: Option<&str>,
    ) {
        let pod = mk_pod(restarts, &state, &last);
        assert_eq!(describe(&pod, &Restarts::default()).as_deref(), expected);
    }

    #[test]
    fn restarts_before_the_run_are_not_its_trouble() {
        let pod = mk_pod(2, &running(), &ended());
        let before = Restarts::of(std::slice::from_ref(&pod));
        assert_eq!(describe(&pod, &before), None);
        let later = mk_pod(3, &running(), &ended());
        assert!(describe(&later, &before).is_some_and(|text| text.contains("ended 1 time,")));
    }

    #[rstest]
    #[case::renewed("a", 10, None)]
    #[case::no_holder("", 10, Some("Lease l has no holder"))]
    #[case::expired("a", 20, Some("Lease l of a was renewed 20 s ago, and is for 15 s"))]
    fn a_lease_is_held_for_its_duration(
        #[case] holder: &str,
        #[case] age: i64,
        #[case] expected: Option<&str>,
    ) {
        let lease = mk_lease(holder, 0);
        let now = Timestamp::from_second(age).expect("a time");
        let why = not_held(&lease, "l", &mut FirstLook::new(), now);
        assert_eq!(why.as_deref(), expected);
    }

    #[test]
    fn a_lease_that_is_renewed_while_we_look_is_held_whatever_the_clock_says() {
        let mut first = FirstLook::new();
        let now = Timestamp::from_second(1_000).expect("a time");
        assert!(not_held(&mk_lease("a", 0), "l", &mut first, now).is_some());
        assert_eq!(not_held(&mk_lease("a", 2), "l", &mut first, now), None);
    }

    fn mk_lease(holder: &str, renewed: i64) -> Lease {
        serde_json::from_value(json!({"metadata": {"name": "l"}, "spec": {
            "holderIdentity": holder, "leaseDurationSeconds": 15,
            "renewTime": Timestamp::from_second(renewed).expect("a time").to_string(),
        }}))
        .expect("a lease")
    }

    #[rstest]
    #[case::asks("leaderElection: {leaderElect: true, resourceName: l}", true)]
    #[case::refuses("leaderElection: {leaderElect: false}", false)]
    #[case::says_nothing("profiles: []", false)]
    #[case::no_configuration(": [", false)]
    fn a_configuration_asks_for_an_election(#[case] config: &str, #[case] expected: bool) {
        assert_eq!(asks_for_election(config), expected);
    }

    #[rstest]
    #[case::operator("numaresources-controller-manager", 1, &[], false, true)]
    #[case::operator_told_not_to("numaresources-controller-manager", 1, &["--leader-elect=false"], false, false)]
    #[case::one_scheduler("secondary-scheduler", 1, &[], false, false)]
    #[case::one_scheduler_that_is_to("secondary-scheduler", 1, &[], true, true)]
    #[case::several_schedulers("secondary-scheduler", 3, &[], false, true)]
    #[case::none("numaresources-controller-manager", 0, &[], false, false)]
    #[case::no_scheduler("secondary-scheduler", 0, &[], true, false)]
    fn what_elects_needs_a_lease(
        #[case] name: &str,
        #[case] replicas: i32,
        #[case] args: &[&str],
        #[case] configured: bool,
        #[case] expected: bool,
    ) {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": [{"name": "c", "args": args}]}}},
        }))
        .expect("a deployment");
        assert_eq!(elects(&deployment, configured), expected);
    }
}
