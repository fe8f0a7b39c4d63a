//! Looks at the node: asks the kubelet and reads sysfs. Either all of it works or there is no observation.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use podresources::v1::AllocatableResourcesResponse;
use tokio::time::Instant;

use crate::kubelet::{self, Kubelet};
use crate::metrics::Metrics;
use crate::monitor::Problem;
use crate::observation::{Observation, Settings, observe};
use crate::sysinfo::{self, Machine};
use crate::watch::Terminal;

/// How old what can be allocated may be when a look uses it: looks come in quick succession.
const FRESH: Duration = Duration::from_millis(250);

/// Looks at one node again and again.
pub struct Scanner {
    kubelet: Kubelet,
    settings: Settings,
    source: Machines,
    machine: Machine,
    terminal: Option<Terminal>,
    metrics: Metrics,
    told: (BTreeSet<Problem>, Option<String>),
    allocatable: Option<(Instant, AllocatableResourcesResponse)>,
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
    /// Reads the machine for the first time. Pods in `terminal` are not seen.
    pub(crate) fn new(
        kubelet: Kubelet,
        settings: Settings,
        source: Machines,
        terminal: Option<Terminal>,
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
            terminal,
            metrics,
            told: (BTreeSet::new(), None),
            allocatable: None,
        })
    }

    /// A scan: reads all that there is, the machine too if it may change.
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
        let observation = self.look().await?;
        self.tell_problems(&observation);
        Ok(observation)
    }

    /// As a scan, but cheaper, and without a word about what does not fit.
    pub async fn look(&mut self) -> Result<Observation, Error> {
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
        if let Some(terminal) = &self.terminal {
            terminal.leave_out(&mut pods.pod_resources);
        }
        let none = AllocatableResourcesResponse::default();
        let allocatable = self
            .allocatable
            .as_ref()
            .map_or(&none, |(_, answer)| answer);
        Ok(observe(
            &self.settings,
            &self.machine,
            allocatable,
            pods.pod_resources,
        ))
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
