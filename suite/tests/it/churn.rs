//! No restart loses a pod. Clients run one Guaranteed pod after another, more than fit. Meanwhile the scheduler, the API server, an
//! exporter and a kubelet restart, and the scheduler's leader loses its lease. No kubelet refuses a pod, and no pod is forgotten.
//!
//! On real kubelets the kubelet is not restarted. Until a restarted kubelet knows its pods, it does not release what ended pods held, and
//! it refuses pods that no scheduler could know to be refused (`docs/placement.md`).
#![expect(
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

mod clients;

use std::time::Duration;

use api::names;
use clients::{Churn, Seen};
use cluster_faults::{Disturbance, Faults};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use suite::context::checks::node_of;
use suite::setup::Options;
use testbed::lane;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::harness::{begin, report_paths, runtime, start};

/// Number of clients that each run one pod after another. Together they request more than the cluster has.
const CLIENTS: u64 = 20;
/// How long a fault lasts, if it does not end by itself.
const FAULT_DURATION: Duration = Duration::from_secs(2);
/// Longest time that the clients may take to run `clients::ENDED_AFTER_FAULT` pods after a fault, and to end. A lease is free after 15 s, and a pod is retried
/// after 10 s at the latest.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How often the only scheduler is replaced.
const REPLACEMENTS: usize = 12;

#[test]
fn restarts_have_no_pod_refused_and_none_forgotten() {
    run_on(lane::Lane::Embedded, Schedulers::Two);
}

/// The same test on real kubelets.
mod long {
    use testbed::lane::Lane;

    use super::{Schedulers, run_on};

    #[test]
    #[ignore = "long: two and a half minutes of real kubelets"]
    fn restarts_have_no_pod_refused_and_none_forgotten_by_real_kubelets() {
        run_on(Lane::Local, Schedulers::Two);
    }

    #[test]
    #[ignore = "long: three and a half minutes of real kubelets"]
    fn replacements_of_the_only_scheduler_have_no_pod_refused_and_none_forgotten_by_real_kubelets()
    {
        run_on(Lane::Local, Schedulers::One);
    }
}

/// The number of schedulers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Schedulers {
    /// One, which is replaced again and again.
    One,
    /// Two, of which one leads.
    Two,
}

fn run_on(lane: lane::Lane, schedulers: Schedulers) {
    runtime().block_on(check(lane, schedulers));
}

async fn check(lane: lane::Lane, schedulers: Schedulers) {
    let options = Options::own(lane, &[]).expect("no flag is wrong");
    let paths = report_paths(&format!("churn/{}/{schedulers:?}", lane.name()), &options);
    let stream = begin(&options, &paths);
    let session = start(&options, &stream, &paths).await;
    let cluster = session.own().expect("the cluster is this run's");
    let churn = Churn::new(cluster.client()).await;
    if schedulers == Schedulers::Two {
        churn.elect().await.expect("two schedulers elect a leader");
    }
    let over = watch::Sender::new(false);
    let clients = join_all((0..CLIENTS).map(|number| churn.client(number, over.subscribe())));
    let restarted = async {
        let progress = restart_components(&churn, &cluster.faults(), lane, schedulers).await;
        over.send_replace(true);
        progress
    };
    let progress = tokio::select! {
        () = churn.follow() => Err("the watch of the pods ended".to_owned()),
        (clients, progress) = async {
            tokio::join!(timeout(6 * TIMEOUT, clients), restarted)
        } => progress.and_then(|()| {
            clients.map(drop).map_err(|_| "clients still wait".to_owned())
        }),
    };
    let pods = churn.pods.borrow().clone();
    assert!(session.finish().await, "the tear-down works");
    let of = |wanted: fn(&Seen) -> bool| -> Vec<(String, Seen)> {
        let pods = pods.iter().filter(|(_, seen)| wanted(seen));
        pods.map(|(name, seen)| (name.clone(), seen.clone()))
            .collect()
    };
    let refused = of(|seen| seen.phase == "Failed");
    let forgotten = of(|seen| seen.phase != "Failed" && seen.phase != "Succeeded");
    assert_eq!(
        (refused, forgotten),
        (Vec::new(), Vec::new()),
        "{progress:?}"
    );
    assert_eq!(progress, Ok(()));
}

/// Restarts one program after another, each when the effects of the one before are over. Returns an error if pods no longer run.
async fn restart_components(
    churn: &Churn,
    faults: &Faults,
    lane: lane::Lane,
    schedulers: Schedulers,
) -> Result<(), String> {
    churn.wait_for_progress("at first").await?;
    if schedulers == Schedulers::One {
        for _ in 0..REPLACEMENTS {
            churn.replace_scheduler().await?;
            churn
                .wait_for_progress("another scheduler has taken over")
                .await?;
        }
        return Ok(());
    }
    let exporter = |pod: &Pod| node_of(pod) == Some("worker-0");
    let mut restarts = vec![
        (
            "the schedulers start again",
            churn.kill(names::SCHEDULER, |_| true).await,
        ),
        ("the API server starts again", vec![Disturbance::Outage]),
        (
            "an exporter starts again",
            churn.kill(names::RTE_CONTAINER, exporter).await,
        ),
    ];
    if lane == lane::Lane::Embedded {
        let kubelet = Disturbance::RestartKubelet {
            node: "worker-1".to_owned(),
        };
        restarts.push(("a kubelet starts again", vec![kubelet]));
    }
    for (text, all) in restarts {
        for what in all {
            let injected = faults.inject(&what, FAULT_DURATION).await;
            injected.map_err(|error| format!("{text}: {error}"))?;
        }
        churn.wait_for_progress(text).await?;
    }
    let lost = Disturbance::LoseLease {
        namespace: names::NAMESPACE.to_owned(),
        name: names::SCHEDULER_LEASE.to_owned(),
    };
    let injected = faults.inject(&lost, FAULT_DURATION).await;
    injected.map_err(|error| error.to_string())?;
    churn.wait_for_leader().await?;
    churn.wait_for_progress("the leader lost its lease").await
}
