//! What happens in a run, drawn from a seed: the same seed and length give the same plan on every machine.

use std::fmt;
use std::time::Duration;

use api::names;
use cluster_faults::{Disturbance, Process, Schedule, SeededRandom, Targets};
use serde::{Deserialize, Serialize};
use testbed::lane::Lane;

/// Nodes that pods run on, in every cluster of a run.
pub const WORKERS: [&str; 4] = ["worker-0", "worker-1", "worker-2", "worker-3"];
/// Stands for the node of a process that is wherever its pod runs.
pub const ANYWHERE: &str = "*";
/// Faults per minute.
const FAULTS_PER_MINUTE: u32 = 30;
/// Pods that are created per minute. Together they want about three quarters of the CPUs.
const PODS_PER_MINUTE: u64 = 72;
/// Other changes per minute: of nodes, Deployments, custom resources and objects of the operator.
const CHANGES_PER_MINUTE: u64 = 15;
/// Deployments that exist at the same time.
const DEPLOYMENTS: u64 = 3;

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
    /// What goes wrong. The pod of a [`Process`] here is the `app` or `name` label of a part of the stack: who injects it looks for the pod.
    pub faults: Schedule,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64, length: Duration, lane: Lane) -> Self {
        let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let mut random = SeededRandom::new(seed);
        let count = |per_minute: u64| (per_minute * milliseconds).div_ceil(60_000);
        let mut churn = Vec::new();
        for number in 0..count(PODS_PER_MINUTE) {
            let after_milliseconds = random.in_range(0, milliseconds);
            let job = job(&mut random, number);
            churn.push(Turn {
                after_milliseconds,
                what: Action::Create { job },
            });
            if random.in_range(0, 9) == 0 {
                churn.push(Turn {
                    after_milliseconds: after_milliseconds + random.in_range(100, 8_000),
                    what: Action::Delete { number },
                });
            }
        }
        for _ in 0..count(CHANGES_PER_MINUTE) {
            let after_milliseconds = random.in_range(0, milliseconds);
            let what = change(&mut random);
            churn.push(Turn {
                after_milliseconds,
                what,
            });
        }
        churn.retain(|turn| turn.after_milliseconds <= milliseconds);
        churn.sort_by_key(|turn| turn.after_milliseconds);
        let mut faults = Schedule::random(seed, FAULTS_PER_MINUTE, length, &targets(lane));
        // a real kubelet serves its socket itself, so nobody can replace it
        faults.steps.retain(|step| {
            lane == Lane::Embedded || !matches!(step.what, Disturbance::PodResources { .. })
        });
        Self {
            seed,
            length_milliseconds: milliseconds,
            churn,
            faults,
        }
    }
}

fn job(random: &mut SeededRandom, number: u64) -> Job {
    let (quality, cpus) = match random.in_range(0, 9) {
        0 => (Quality::BestEffort, 0),
        1 | 2 => (Quality::Burstable, random.in_range(1, 4)),
        _ => (Quality::Guaranteed, 2 * random.in_range(1, 8)),
    };
    Job {
        number,
        quality,
        cpus,
        containers: if cpus <= 6 && random.in_range(0, 3) == 0 {
            2
        } else {
            1
        },
        lifetime_milliseconds: random.in_range(1_000, 15_000),
        urgent: random.in_range(0, 7) == 0,
    }
}

fn change(random: &mut SeededRandom) -> Action {
    let node = |random: &mut SeededRandom| {
        let node = random.choose(&WORKERS).copied();
        node.unwrap_or(WORKERS[0]).to_owned()
    };
    let level = |random: &mut SeededRandom| {
        let levels = ["Normal", "Debug", "Trace"];
        let level = random.choose(&levels).copied();
        level.unwrap_or("Normal").to_owned()
    };
    match random.in_range(0, 11) {
        0..=3 => Action::Scale {
            number: random.in_range(1, DEPLOYMENTS),
            replicas: random.in_range(0, 3),
        },
        4..=6 => Action::Cordon {
            node: node(random),
            cordoned: random.in_range(0, 1) == 0,
        },
        7 => Action::Label {
            node: node(random),
            value: random.in_range(0, 9),
        },
        8 => Action::LogLevel {
            of: Edited::Operator,
            level: level(random),
        },
        9 => Action::LogLevel {
            of: Edited::Scheduler,
            level: level(random),
        },
        _ => {
            let all = [
                Tampered::DaemonSet,
                Tampered::Deployment,
                Tampered::SchedulerConfig,
                Tampered::ExporterBinding,
            ];
            let with = random.choose(&all).copied();
            Action::Tamper {
                with: with.unwrap_or(Tampered::DaemonSet),
            }
        }
    }
}

/// Returns what may go wrong: requests of the stack, of the controllers and of the kubelets, but not those of the run itself.
fn targets(lane: Lane) -> Targets {
    let of = |group: &str, resources: &[&str]| -> Vec<(String, String)> {
        let pair = |resource: &&str| (group.to_owned(), (*resource).to_owned());
        resources.iter().map(pair).collect()
    };
    let resources = [
        of(
            "",
            &["pods", "nodes", "events", "configmaps", "serviceaccounts"],
        ),
        of("apps", &["daemonsets", "deployments", "replicasets"]),
        of("topology.node.k8s.io", &["noderesourcetopologies"]),
        of(
            "nodetopology.openshift.io",
            &["numaresourcesoperators", "numaresourcesschedulers"],
        ),
        of("coordination.k8s.io", &["leases"]),
    ];
    let process = |node: &str, part: &str, container: &str| Process {
        node: node.to_owned(),
        namespace: names::NAMESPACE.to_owned(),
        pod: part.to_owned(),
        container: container.to_owned(),
    };
    let mut processes = vec![
        process(ANYWHERE, names::SCHEDULER, names::SCHEDULER),
        process(ANYWHERE, names::OPERATOR_DEPLOYMENT, "manager"),
    ];
    processes.extend(WORKERS.map(|node| process(node, names::RTE, names::RTE_CONTAINER)));
    Targets {
        resources: if lane == Lane::Embedded {
            resources.concat()
        } else {
            // a real API server has no rules
            Vec::new()
        },
        users: [
            "system:serviceaccount:numaresources:*",
            "system:node:*",
            "system:kube-controller-manager",
            "system:kube-scheduler",
        ]
        .map(str::to_owned)
        .to_vec(),
        leases: [names::OPERATOR_LEASE, names::SCHEDULER_LEASE]
            .map(|lease| (names::NAMESPACE.to_owned(), lease.to_owned()))
            .to_vec(),
        processes,
        nodes: WORKERS.map(str::to_owned).to_vec(),
        outages: true,
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
                        | Disturbance::PodResources { .. }
                ),
                "{step:?}"
            );
        }
    }
}
