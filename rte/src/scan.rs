//! Scans the node: asks the kubelet, reads the machine, and combines both. If any part fails, there is no observation.
//!
//! Only this file asks somebody; what it calls is pure. Reading order: [`observation`] (what a scan gives), [`filter`] (what is left out),
//! [`accounting`] (amounts per zone), `locality` (who holds resources of which NUMA node), [`fingerprint`] (which pods are in it).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use podresources::v1::{AllocatableResourcesResponse, PodResources};
use tokio::time::{Instant, sleep};

use self::accounting::Problem;
use self::observation::{Observation, Settings, observe};
use crate::hardware::{self, Machine};
use crate::kubelet::answers::{self, Kubelet};
use crate::kubelet::arrivals::{self, Arrivals};
use crate::kubelet::demand::{Demands, Key};
use crate::kubelet::terminal_pods::TerminalPods;
use crate::metrics::Metrics;

pub mod accounting;
pub mod filter;
pub mod fingerprint;
mod locality;
pub mod observation;

/// Maximum age of the allocatable resources that a probe uses. Probes follow each other quickly, so they share an answer.
const MAX_ALLOCATABLE_AGE: Duration = Duration::from_millis(250);

/// Pauses between the calls while a pod has not arrived: the first one, and the maximum to which they grow.
const ARRIVAL_PAUSES: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_millis(320));

/// Scans one node repeatedly.
pub(crate) struct Scanner {
    kubelet: Kubelet,
    settings: Settings,
    source: MachineSource,
    machine: Machine,
    pods: PodInfo,
    arrivals: Arrivals,
    metrics: Metrics,
    logged: (BTreeSet<Problem>, Option<String>),
    allocatable: Option<(Instant, AllocatableResourcesResponse)>,
}

/// Information from the API server about the node's pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodInfo {
    /// Finished pods, if they are left out.
    pub(crate) terminal: Option<TerminalPods>,
    /// Demands of the other pods.
    pub(crate) demands: Demands,
}

/// How the machine is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineSource {
    /// Root of the sysfs.
    pub(crate) sysfs: PathBuf,
    /// Whether sysfs is read again at each scan.
    pub(crate) refresh: bool,
}

/// A scan failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kubelet did not answer.
    #[error("cannot ask the kubelet")]
    Kubelet(#[from] answers::Error),
    /// The machine cannot be read.
    #[error("cannot read the machine")]
    Machine(#[from] hardware::Error),
}

impl Scanner {
    /// Reads the machine for the first time. Other tasks may add to `pods` later.
    pub(crate) fn new(
        kubelet: Kubelet,
        settings: Settings,
        source: MachineSource,
        pods: PodInfo,
        metrics: Metrics,
    ) -> Result<Self, hardware::Error> {
        let machine = hardware::read(&source.sysfs)?;
        if source.refresh {
            tracing::info!("tracking node resources");
        }
        Ok(Self {
            kubelet,
            settings,
            source,
            machine,
            pods,
            arrivals: Arrivals::default(),
            metrics,
            logged: (BTreeSet::new(), None),
            allocatable: None,
        })
    }

    /// Runs a full scan, which also reads the machine if it may change. Waits for a short time for pods of the fingerprint that have not
    /// arrived.
    pub(crate) async fn scan(&mut self) -> Result<Observation, Error> {
        if self.source.refresh {
            let machine = hardware::read(&self.source.sysfs)?;
            if machine != self.machine {
                tracing::info!("update node resources");
                self.machine = machine;
            }
        }
        // device plugins may appear and disappear, so the allocatable resources are read again at each scan
        self.allocatable = None;
        let begun = Instant::now();
        let (mut pause, longest) = ARRIVAL_PAUSES;
        let (mut observation, mut missing) = self.ask().await?;
        while let Some((namespace, name)) = missing {
            // the wait is limited, because new pods could keep arriving while others wait to be published
            if begun.elapsed() >= arrivals::MAX_WAIT {
                tracing::info!(pod = %format_args!("{namespace}/{name}"),
                    "Published although the kubelet may not have given it everything yet");
                break;
            }
            sleep(pause).await;
            pause = longest.min(pause * 2);
            (observation, missing) = self.ask().await?;
        }
        self.log_problems(&observation);
        Ok(observation)
    }

    /// Runs a cheaper scan that waits for nothing and does not log problems.
    pub(crate) async fn probe(&mut self) -> Result<Observation, Error> {
        self.ask().await.map(|(observation, _)| observation)
    }

    /// Asks the kubelet. Also returns a pod that has not arrived.
    async fn ask(&mut self) -> Result<(Observation, Option<Key>), Error> {
        let fresh =
            matches!(&self.allocatable, Some((at, _)) if at.elapsed() < MAX_ALLOCATABLE_AGE);
        let ask_allocatable = async {
            if fresh {
                return Ok(None);
            }
            let answer = self.kubelet.allocatable().await;
            answer
                .map(Some)
                .inspect_err(|_| self.metrics.call_failed("get_allocatable_resources"))
        };
        let ask_pods = async {
            let answer = self.kubelet.list().await;
            answer.inspect_err(|_| self.metrics.call_failed("list"))
        };
        // both calls at the same time, so that the process wakes up half as often
        let (answer, pods) = tokio::join!(ask_allocatable, ask_pods);
        if let Some(answer) = answer? {
            self.allocatable = Some((Instant::now(), answer));
        }
        let mut pods = pods?;
        if let Some(terminal) = &self.pods.terminal {
            terminal.exclude_from(&mut pods.pod_resources);
        }
        let none = AllocatableResourcesResponse::default();
        let allocatable = self
            .allocatable
            .as_ref()
            .map_or(&none, |(_, answer)| answer);
        let method = self.settings.fingerprint;
        let covers =
            |pod: &PodResources| method.is_some_and(|method| fingerprint::covers(method, pod));
        let (pods, now) = (pods.pod_resources, Instant::now());
        let demands = &self.pods.demands;
        let missing = self
            .arrivals
            .record(&pods, allocatable, demands, covers, now);
        let observation = observe(&self.settings, &self.machine, allocatable, pods);
        Ok((observation, missing))
    }

    /// Logs problems only when they change, because they last for a long time.
    fn log_problems(&mut self, observation: &Observation) {
        let (logged, logged_placement) = &mut self.logged;
        for problem in observation.problems.difference(logged) {
            tracing::warn!(%problem, "The kubelet's answer does not fit the machine");
        }
        observation.problems.clone_into(logged);
        if observation.placement_problem != *logged_placement {
            if let Some(problem) = &observation.placement_problem {
                tracing::warn!(%problem, "NUMA placement is not published");
            }
            logged_placement.clone_from(&observation.placement_problem);
        }
    }
}
