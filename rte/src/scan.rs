//! Looks at the node: asks the kubelet and reads sysfs. Either all of it works or there is no observation.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use nrt::fingerprint::Method;
use podresources::v1::{AllocatableResourcesResponse, PodResources};
use tokio::time::{Instant, sleep};

use crate::arrivals::{self, Arrivals};
use crate::demand::{Demands, Key};
use crate::kubelet::{self, Kubelet};
use crate::locality;
use crate::metrics::Metrics;
use crate::monitor::Problem;
use crate::observation::{Observation, Settings, observe};
use crate::sysinfo::{self, Machine};
use crate::watch::Terminal;

/// How old what can be allocated may be when a look uses it: looks come in quick succession.
const FRESH: Duration = Duration::from_millis(250);

/// Pauses between looks while a pod has not arrived: the first, and the longest, to which they grow.
const ARRIVAL_PAUSES: (Duration, Duration) =
    (Duration::from_millis(20), Duration::from_millis(320));

/// Looks at one node again and again.
pub struct Scanner {
    kubelet: Kubelet,
    settings: Settings,
    source: Machines,
    machine: Machine,
    pods: PodsTold,
    arrivals: Arrivals,
    metrics: Metrics,
    told: (BTreeSet<Problem>, Option<String>),
    allocatable: Option<(Instant, AllocatableResourcesResponse)>,
}

/// What the API server tells about the node's pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodsTold {
    /// Pods that are over, if they are to be left out.
    pub(crate) terminal: Option<Terminal>,
    /// What the others ask for.
    pub(crate) demands: Demands,
}

/// Where the machine is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machines {
    /// Root of the sysfs.
    pub sysfs: PathBuf,
    /// Whether it is read again with each scan.
    pub refresh: bool,
}

/// Why there is no observation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubelet did not tell.
    #[error("cannot ask the kubelet")]
    Kubelet(#[from] kubelet::Error),
    /// The machine cannot be read any more.
    #[error("cannot read the machine")]
    Machine(#[from] sysinfo::Error),
}

impl Scanner {
    /// Reads the machine for the first time. `pods` may know more later.
    pub(crate) fn new(
        kubelet: Kubelet,
        settings: Settings,
        source: Machines,
        pods: PodsTold,
        metrics: Metrics,
    ) -> Result<Self, sysinfo::Error> {
        let machine = sysinfo::read(&source.sysfs)?;
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
            told: (BTreeSet::new(), None),
            allocatable: None,
        })
    }

    /// A scan: reads all that there is, the machine too if it may change. Pods of the fingerprint that have not arrived are waited for, for a
    /// short time.
    pub async fn scan(&mut self) -> Result<Observation, Error> {
        if self.source.refresh {
            let machine = sysinfo::read(&self.source.sysfs)?;
            if machine != self.machine {
                tracing::info!("update node resources");
                self.machine = machine;
            }
        }
        // What can be allocated changes when device plugins come and go, so it is asked for each time.
        self.allocatable = None;
        let begun = Instant::now();
        let (mut pause, longest) = ARRIVAL_PAUSES;
        let (mut observation, mut missing) = self.ask().await?;
        while let Some((namespace, name)) = missing {
            // A pod after the other could come: the others are not to wait for all of them.
            if begun.elapsed() >= arrivals::LIMIT {
                tracing::info!(pod = %format_args!("{namespace}/{name}"),
                    "Published although the kubelet may not have given it everything yet");
                break;
            }
            sleep(pause).await;
            pause = longest.min(pause * 2);
            (observation, missing) = self.ask().await?;
        }
        self.tell_problems(&observation);
        Ok(observation)
    }

    /// As a scan, but cheaper, waiting for nothing, and without a word about what does not fit.
    pub async fn look(&mut self) -> Result<Observation, Error> {
        self.ask().await.map(|(observation, _)| observation)
    }

    /// Asks the kubelet; also returns a pod that has not arrived.
    async fn ask(&mut self) -> Result<(Observation, Option<Key>), Error> {
        let fresh = matches!(&self.allocatable, Some((at, _)) if at.elapsed() < FRESH);
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
        // Together: half as often awake.
        let (answer, pods) = tokio::join!(ask_allocatable, ask_pods);
        if let Some(answer) = answer? {
            self.allocatable = Some((Instant::now(), answer));
        }
        let mut pods = pods?;
        if let Some(terminal) = &self.pods.terminal {
            terminal.leave_out(&mut pods.pod_resources);
        }
        let none = AllocatableResourcesResponse::default();
        let allocatable = self
            .allocatable
            .as_ref()
            .map_or(&none, |(_, answer)| answer);
        let method = self.settings.fingerprint;
        let covers = |pod: &PodResources| match method {
            None => false,
            Some(Method::All) => true,
            Some(Method::WithExclusiveResources) => locality::is_exclusive(pod),
        };
        let (pods, now) = (pods.pod_resources, Instant::now());
        let demands = &self.pods.demands;
        let missing = self.arrivals.note(&pods, allocatable, demands, covers, now);
        let observation = observe(&self.settings, &self.machine, allocatable, pods);
        Ok((observation, missing))
    }

    /// Problems stay for long: they are logged when they change.
    fn tell_problems(&mut self, observation: &Observation) {
        let (told, told_placement) = &mut self.told;
        for problem in observation.problems.difference(told) {
            tracing::warn!(%problem, "The kubelet's answer does not fit the machine");
        }
        observation.problems.clone_into(told);
        if observation.placement_problem != *told_placement {
            if let Some(problem) = &observation.placement_problem {
                tracing::warn!(%problem, "NUMA placement is not published");
            }
            told_placement.clone_from(&observation.placement_problem);
        }
    }
}
