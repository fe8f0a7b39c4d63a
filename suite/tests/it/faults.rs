//! The suite can fail: for each fault, exactly the scenarios of a table fail, and all others pass.
//!
//! Each fault gets its own embedded cluster. The fault whose effect depends on the real scheduler and real kubelets also gets a cluster of
//! real parts.

use std::time::Duration;

use api::annotations::{ENABLED, PAUSE_RECONCILIATION};
use api::operator::v1::NumaResourcesOperator;
use cri_runtime::control::Signal;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Container;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use reports::event::Verdict;
use serde_json::json;
use suite::context::checks::Rollout;
use suite::run::Outcome;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use testbed::lane::{self, Lane};

use crate::harness::{run_scenarios, runtime};

/// Scenarios that check more than the attributes of an NRT: none of them can pass without an exporter that publishes what pods hold.
const NEED_ACCOUNTING: &[&str] = &[
    "byres/cpu-decides",
    "byres/memory-decides",
    "fundamentals/all-gu",
    "hostlevel/gu-multi",
    "hostlevel/gu-multi-frac",
    "hostlevel/gu-single",
    "tmpol/1cnt-devs-pod",
    "tmpol/2cnt-same-pod",
    "tmpol/2cnt-split-cnt",
    "tmpol/dp-single-zone-cnt",
    "tmpol/dp-single-zone-pod",
    "tmpol/pend-cpu-cnt",
    "tmpol/pend-hp1g-cnt",
    "tmpol/pend-mem-cnt",
];

/// Scenarios in which the zones decide about the node: a scheduler that ignores zones certainly fails them. Other scenarios do not detect
/// it: any scheduler spreads a burst of small pods evenly over zones, and the hostlevel pods fit everywhere.
const NEED_PLACEMENT: &[&str] = &[
    "byres/cpu-decides",
    "byres/memory-decides",
    "tmpol/1cnt-devs-pod",
    "tmpol/2cnt-same-pod",
    "tmpol/2cnt-split-cnt",
    "tmpol/dp-single-zone-cnt",
    "tmpol/dp-single-zone-pod",
    "tmpol/pend-cpu-cnt",
    "tmpol/pend-hp1g-cnt",
    "tmpol/pend-mem-cnt",
];

/// A fault that begins at the end of the set-up.
struct Fault {
    name: &'static str,
    /// Scheduler that places the pods, if not the stack's.
    scheduler: Option<&'static str>,
    /// Time limit for a settled cluster, if not the default.
    settled: Option<Duration>,
    /// How the fault is injected.
    inject: for<'a> fn(&'a Session) -> LocalBoxFuture<'a, Result<(), String>>,
    /// Scenarios that detect it.
    must_fail: &'static [&'static str],
}

const OTHER_SCHEDULER: Fault = Fault {
    name: "default-scheduler",
    scheduler: Some("default-scheduler"),
    settled: None,
    inject: |_| Box::pin(async { Ok(()) }),
    must_fail: NEED_PLACEMENT,
};

const STOPPED_EXPORTER: Fault = Fault {
    name: "stopped-exporter",
    scheduler: None,
    settled: Some(SETTLED),
    inject: |session| Box::pin(stop_exporters(session)),
    must_fail: NEED_ACCOUNTING,
};

#[test]
fn the_default_scheduler_in_place_of_ours_is_found_out() {
    check(Lane::Embedded, &OTHER_SCHEDULER);
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn the_default_scheduler_in_place_of_ours_is_found_out_on_real_parts() {
    check(Lane::Local, &OTHER_SCHEDULER);
}

#[test]
fn a_stopped_exporter_is_found_out() {
    check(Lane::Embedded, &STOPPED_EXPORTER);
}

#[test]
fn the_set_up_finds_out_that_allocations_are_hidden() {
    let mut options = Options::own(Lane::Embedded, &["--hide-allocations"]).expect("it exists");
    options.deadlines.running = HIDDEN;
    let completed = runtime().block_on(run_scenarios(
        "faults/hidden-allocations",
        &options,
        &Selection::default(),
        async |_| Ok(()),
    ));
    let why = completed.phase_failure.unwrap_or_default();
    assert_eq!(completed.outcome, Outcome::SetupFailed, "{why}");
    assert!(
        why.contains("the exporters count the pod while it is there")
            && why.contains("but the API's pods have"),
        "{why}"
    );
}

/// Time limit for settling with a faulty exporter, which each failing wait uses up. Without the fault, settling takes less than a second
/// when nothing else runs.
const SETTLED: Duration = Duration::from_secs(3);

/// Time limit for the set-up's pod with hidden allocations: what is waited for does not come.
const HIDDEN: Duration = Duration::from_secs(15);

/// Time limit for new exporters without liveness probes.
const ROLLED_OUT: Duration = Duration::from_mins(1);

/// Stops all exporters, after their liveness probes were taken away: a probe would have stopped exporters restarted in the midst of the run.
async fn stop_exporters(session: &Session) -> Result<(), String> {
    let cluster = session.own().and_then(lane::Cluster::embedded);
    let cluster = cluster.ok_or("the cluster is not an embedded one")?;
    remove_probes(&cluster.client()).await?;
    let mut stopped = 0;
    for node in cluster.nodes() {
        for container in node.containers() {
            if container.target.container == api::names::RTE_CONTAINER {
                let sent = node.signal(&container.target, Signal::Stop);
                sent.map_err(|error| error.to_string())?;
                stopped += 1;
            }
        }
    }
    if stopped == 0 {
        Err("there is no exporter to stop".to_owned())
    } else {
        Ok(())
    }
}

/// Takes the liveness probes of the exporters away, and waits until all exporters run without. The operator is told to leave them alone.
async fn remove_probes(client: &Client) -> Result<(), String> {
    let failed = |error: kube::Error| error.to_string();
    let params = PatchParams::default();
    let paused = json!({"metadata": {"annotations": {PAUSE_RECONCILIATION: ENABLED}}});
    let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
    operators
        .patch(api::names::OPERATOR_CR, &params, &Patch::Merge(paused))
        .await
        .map_err(failed)?;
    let container = json!({"name": api::names::RTE_CONTAINER, "livenessProbe": null});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    for set in exporters(client).await? {
        let namespace = set.namespace().unwrap_or_default();
        let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
        sets.patch(&set.name_any(), &params, &Patch::Strategic(&patch))
            .await
            .map_err(failed)?;
    }
    let without_probes = async || {
        let sets = exporters(client).await?;
        let is_done = |set: &DaemonSet| Rollout::of(set).is_over() && !has_probe(set);
        if !sets.is_empty() && sets.iter().all(is_done) {
            Ok(())
        } else {
            Err("some exporters are not ready, or have a probe".to_owned())
        }
    };
    testbed::eventually(ROLLED_OUT, without_probes).await
}

/// Returns the exporters' daemon sets.
async fn exporters(client: &Client) -> Result<Vec<DaemonSet>, String> {
    let all: Api<DaemonSet> = Api::all(client.clone());
    let sets = all.list(&ListParams::default()).await;
    let mut sets = sets.map_err(|error| error.to_string())?.items;
    sets.retain(|set| container(set).is_some());
    Ok(sets)
}

fn container(set: &DaemonSet) -> Option<&Container> {
    let pods = set.spec.as_ref()?.template.spec.as_ref()?;
    let mut containers = pods.containers.iter();
    containers.find(|container| container.name == api::names::RTE_CONTAINER)
}

fn has_probe(set: &DaemonSet) -> bool {
    container(set).is_some_and(|container| container.liveness_probe.is_some())
}

/// Runs tier0 with a fault and compares the failed scenarios with the table.
fn check(lane: Lane, fault: &Fault) {
    let selection = Selection {
        labels: Some("tier0 && !openshift".to_owned()),
        // those of area `install` restart exporters, which would end their fault; those of area `tls` need OpenShift
        skip: Some("^(install|tls)/".to_owned()),
        ..Selection::default()
    };
    let mut options = Options {
        scheduler: fault.scheduler.map(str::to_owned),
        ..Options::own(lane, &[]).expect("no flags")
    };
    if let Some(settled) = fault.settled {
        options.deadlines.settled = settled;
    }
    let test = format!("faults/{}/{}", fault.name, lane.name());
    let completed = runtime().block_on(run_scenarios(
        &test,
        &options,
        &selection,
        async |session| (fault.inject)(session).await,
    ));
    let events = completed.events.display();
    let why = &completed.phase_failure;
    assert_eq!(
        completed.outcome,
        Outcome::ScenarioFailed,
        "{test}: {why:?}; see {events}"
    );
    let undecided = |verdict: &Verdict| !verdict.is_failed() && !verdict.is_passed();
    assert_eq!(
        completed.ids(undecided),
        Vec::<&str>::new(),
        "{test}: neither passed nor failed; see {events}"
    );
    assert_eq!(
        completed.ids(Verdict::is_failed),
        fault.must_fail,
        "{test}: other scenarios failed than the table says; see {events}"
    );
}
