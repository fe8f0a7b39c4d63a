//! What happens in a run, drawn from a seed: the same seed and length give the same plan on every machine.

mod draw;

use std::fmt;
use std::time::Duration;

use cluster_faults::{Disturbance, Schedule, SeededRandom};
use serde::{Deserialize, Serialize};
use testbed::lane::Lane;

/// Nodes that pods run on, in every cluster of a run.
pub const WORKERS: [&str; 4] = ["worker-0", "worker-1", "worker-2", "worker-3"];
/// Stands for the node of a process that is wherever its pod runs.
pub const ANYWHERE: &str = "*";
/// Faults per minute.
const FAULTS_PER_MINUTE: u32 = 30;

/// Quality of service of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Quality {
    /// Whole CPUs, aligned to a zone.
    Guaranteed,
    /// Requests without limits.
    Burstable,
    /// No requests; placed by the default scheduler.
    BestEffort,
}

/// A pod that ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Number, which is in its name.
    pub number: u64,
    /// Quality of service.
    pub quality: Quality,
    /// CPUs of each container.
    pub cpus: u64,
    /// Containers.
    pub containers: u64,
    /// How long its processes run, in milliseconds.
    pub lifetime_milliseconds: u64,
    /// Whether it may preempt others.
    pub urgent: bool,
    /// The only node that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Job {
    /// Returns the name of the pod.
    pub fn name(&self) -> String {
        job_name(self.number)
    }
}

/// Returns the name of the pod with a number.
pub fn job_name(number: u64) -> String {
    format!("job-{number}")
}

/// A custom resource that an administrator edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Edited {
    /// The `NUMAResourcesOperator`: all exporters start again.
    Operator,
    /// The `NUMAResourcesScheduler`: the scheduler starts again.
    Scheduler,
}

/// An object of the operator that somebody tampers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tampered {
    /// The DaemonSet of the exporters is deleted.
    DaemonSet,
    /// The Deployment of the scheduler is deleted.
    Deployment,
    /// The configuration of the scheduler is deleted.
    SchedulerConfig,
    /// The ServiceAccount of the exporters loses its role.
    ExporterBinding,
    /// The Deployment of the scheduler gets no replicas.
    Replicas,
    /// The configuration of the scheduler becomes another one, without any data.
    ConfigData,
    /// The role of the exporters allows nothing any more.
    Rules,
}

impl Tampered {
    const ALL: [Self; 7] = [
        Self::DaemonSet,
        Self::Deployment,
        Self::SchedulerConfig,
        Self::ExporterBinding,
        Self::Replicas,
        Self::ConfigData,
        Self::Rules,
    ];
}

/// One change that somebody makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "action",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Action {
    /// A pod is created.
    Create {
        /// The pod.
        job: Job,
    },
    /// A pod is deleted, if it is still there.
    Delete {
        /// Number of the pod.
        number: u64,
    },
    /// A Deployment gets this many replicas of a small Guaranteed pod; it is created if it is not there, and deleted with none.
    Scale {
        /// Number of the Deployment.
        number: u64,
        /// Replicas.
        replicas: u64,
    },
    /// A node takes no more pods, or takes them again.
    Cordon {
        /// The node.
        node: String,
        /// Whether it takes none.
        cordoned: bool,
    },
    /// A label of a node changes.
    Label {
        /// The node.
        node: String,
        /// The value.
        value: u64,
    },
    /// The log level of a custom resource changes.
    LogLevel {
        /// Whose.
        of: Edited,
        /// The level, as the custom resource spells it.
        level: String,
    },
    /// Somebody tampers with what the operator keeps.
    Tamper {
        /// With what.
        with: Tampered,
    },
}

/// An action and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// Time from the start, in milliseconds.
    pub after_milliseconds: u64,
    /// The action.
    #[serde(flatten)]
    pub what: Action,
}

/// What happens in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// Length in milliseconds.
    pub length_milliseconds: u64,
    /// What somebody changes, sorted by time.
    pub churn: Vec<Turn>,
    /// What goes wrong. The pod of a [`Process`](cluster_faults::Process) here is the `app` or `name` label of a part of the stack: who injects it looks for the pod.
    pub faults: Schedule,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64, length: Duration, lane: Lane) -> Self {
        let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let mut random = SeededRandom::new(seed);
        let (churn, unanswered) = draw::churn(&mut random, milliseconds);
        let mut faults = Schedule::random(seed, FAULTS_PER_MINUTE, length, &draw::targets(lane));
        // a real kubelet serves its socket itself, so nobody can replace it; a real API server has no rules
        if lane == Lane::Embedded {
            faults
                .steps
                .extend(draw::lost_bindings(&mut random, &unanswered));
            faults.steps.sort_by_key(|step| step.after_milliseconds);
        } else {
            faults
                .steps
                .retain(|step| !matches!(step.what, Disturbance::PodResources { .. }));
        }
        Self {
            seed,
            length_milliseconds: milliseconds,
            churn,
            faults,
        }
    }
}

impl fmt::Display for Plan {
    /// Writes one line for each event, in the order in which they happen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let churn = self
            .churn
            .iter()
            .map(|turn| (turn.after_milliseconds, serde_json::to_string(&turn.what)));
        let faults = self.faults.steps.iter().map(|step| {
            let text = serde_json::to_string(&step.what);
            let text = text.map(|text| format!("{text} for {} ms", step.lasting_milliseconds));
            (step.after_milliseconds, text)
        });
        let mut all: Vec<_> = churn.chain(faults).collect();
        all.sort_by_key(|(at, _)| *at);
        writeln!(
            f,
            "seed {}, {} s, {} events",
            self.seed,
            self.length_milliseconds / 1_000,
            all.len()
        )?;
        for (at, text) in all {
            let text = text.map_err(|_| fmt::Error)?;
            writeln!(f, "{:>8.3} {text}", at as f64 / 1e3)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use cluster_faults::{Fault, Step};

    use super::*;

    const MINUTES: Duration = Duration::from_mins(2);

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another() {
        let drawn = |seed| Plan::draw(seed, MINUTES, Lane::Embedded);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1).churn, drawn(2).churn);
        assert_ne!(drawn(1).faults.steps, drawn(2).faults.steps);
    }

    #[test]
    fn bursts_want_more_of_a_zone_than_it_has_and_no_more_of_a_node() {
        let plan = Plan::draw(3, MINUTES, Lane::Embedded);
        let mut bursts: BTreeMap<(u64, &str), u64> = BTreeMap::new();
        let mut numbers = BTreeSet::new();
        for turn in &plan.churn {
            let Action::Create { job } = &turn.what else {
                continue;
            };
            assert!(numbers.insert(job.number), "{job:?}");
            if let Some(node) = &job.node {
                *bursts.entry((turn.after_milliseconds, node)).or_default() += job.cpus;
            }
        }
        for cpus in bursts.values() {
            assert!(*cpus >= 3 * draw::BURST_CPUS);
        }
        // what pods can have of a zone of the default machine
        let zone = 22;
        assert!(2 * draw::BURST_CPUS > zone && 3 * draw::BURST_CPUS < 2 * zone);
        let is_first = |burst: &&(u64, &str)| burst.0 == 0;
        assert_eq!(bursts.keys().filter(is_first).count(), 1);
        assert_eq!(bursts.len(), 12);
    }

    #[test]
    fn held_bursts_are_known_before_the_scheduler_stops_hearing_of_pods() {
        let plan = Plan::draw(3, MINUTES, Lane::Embedded);
        let freezes = |step: &&Step| matches!(&step.what, Disturbance::Api { rule } if rule.fault == Fault::Freeze && rule.select.verbs == ["list", "watch"]);
        let frozen: Vec<&Step> = plan.faults.steps.iter().filter(freezes).collect();
        assert_eq!(frozen.len(), 3, "a quarter of twelve bursts");
        for step in frozen {
            let from = step.after_milliseconds;
            let waiting = |node: &str| {
                let creations = plan.churn.iter().filter(|turn| {
                    let job = matches!(&turn.what, Action::Create { job } if job.node.as_deref() == Some(node));
                    job && turn.after_milliseconds < from
                });
                creations.count()
            };
            let is_opened = plan.churn.iter().any(|turn| match &turn.what {
                Action::Cordon { node, cordoned } => {
                    let time = from..from + step.lasting_milliseconds;
                    !cordoned && time.contains(&turn.after_milliseconds) && waiting(node) >= 3
                }
                _ => false,
            });
            assert!(is_opened, "{step:?}");
        }
    }

    #[test]
    fn a_plan_shows_every_event_in_its_order() {
        let plan = Plan::draw(3, MINUTES, Lane::Embedded);
        let text = plan.to_string();
        let times: Vec<f64> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(times.len(), plan.churn.len() + plan.faults.steps.len());
        assert!(times.is_sorted());
    }

    #[test]
    fn a_plan_for_real_parts_has_only_faults_that_can_be_had_there() {
        let plan = Plan::draw(3, MINUTES, Lane::Local);
        assert!(!plan.faults.steps.is_empty());
        for step in &plan.faults.steps {
            assert!(
                !matches!(
                    step.what,
                    Disturbance::Api { .. }
                        | Disturbance::EndWatches { .. }
                        | Disturbance::Compact
                        | Disturbance::PodResources { .. }
                ),
                "{step:?}"
            );
        }
    }
}
