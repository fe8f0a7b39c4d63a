//! Series of disturbances, written down or drawn from a seed.

use std::time::Duration;

use apiserver::faults::{Fault, Rule, Selector, WatchEnd};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

use super::socket::SocketFault;
use super::{Disturbance, Process};

/// Time between steps that have to happen in their order, in milliseconds.
const MARGIN: u64 = 100;

/// One disturbance with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Time from the start of the schedule, in milliseconds.
    pub after_milliseconds: u64,
    /// Duration in milliseconds.
    #[serde(default)]
    pub lasting_milliseconds: u64,
    /// The disturbance.
    pub what: Disturbance,
}

impl Step {
    /// Returns the time from the start of the schedule.
    pub fn after(&self) -> Duration {
        Duration::from_millis(self.after_milliseconds)
    }

    /// Returns the duration.
    pub fn lasting(&self) -> Duration {
        Duration::from_millis(self.lasting_milliseconds)
    }
}

/// A series of disturbances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The seed that it was drawn from; 0 for one that was written down.
    #[serde(default)]
    pub seed: u64,
    /// The steps, sorted by time.
    pub steps: Vec<Step>,
}

/// What may be disturbed. An empty list excludes that kind of disturbance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Targets {
    /// Group and resource of requests.
    pub resources: Vec<(String, String)>,
    /// Users whose requests are disturbed; empty for all users.
    pub users: Vec<String>,
    /// Namespaces and names of leases.
    pub leases: Vec<(String, String)>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Nodes.
    pub nodes: Vec<String>,
    /// Whether nodes may also be deleted for a while: not where somebody counts nodes, or compares their objects.
    pub node_losses: bool,
    /// Whether outages of the whole API server may occur.
    pub outages: bool,
}

/// Pseudorandom numbers from a seed, which are the same on every machine and in every version.
#[derive(Clone, Debug)]
pub struct SeededRandom {
    seed: u64,
    count: u64,
}

impl SeededRandom {
    /// Returns the numbers of a seed, from the first one on.
    pub fn new(seed: u64) -> Self {
        Self { seed, count: 0 }
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.count += 1;
        XxHash64::oneshot(self.seed, &self.count.to_le_bytes())
    }

    /// Returns a number from `least` to `most`, both inclusive.
    pub fn in_range(&mut self, least: u64, most: u64) -> u64 {
        least + self.draw() % (most - least + 1)
    }

    /// Returns one of these; `None` if there is none.
    pub fn choose<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(of.len()).ok().filter(|count| *count > 0)?;
        of.get(usize::try_from(self.draw() % count).ok()?)
    }
}

impl Schedule {
    /// Draws a schedule: `per_minute` disturbances of all kinds that the targets allow, at random times within `length`. A compaction counts
    /// as one, and comes with the two steps that let watches notice it. The same arguments give the same schedule.
    pub fn random(seed: u64, per_minute: u32, length: Duration, targets: &Targets) -> Self {
        let mut random = SeededRandom::new(seed);
        let milliseconds = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let count = u64::from(per_minute).saturating_mul(milliseconds) / 60_000;
        let mut steps: Vec<Step> = (0..count)
            .filter_map(|_| draw(&mut random, milliseconds, targets))
            .flatten()
            .collect();
        steps.sort_by_key(|step| step.after_milliseconds);
        Self { seed, steps }
    }
}

fn draw(random: &mut SeededRandom, length: u64, targets: &Targets) -> Option<Vec<Step>> {
    let after_milliseconds = random.in_range(0, length);
    let kinds = [
        // Failing requests are the most frequent kind.
        (6, !targets.resources.is_empty()),
        (2, !targets.resources.is_empty()),
        (1, !targets.resources.is_empty()),
        (1, targets.outages),
        (1, !targets.leases.is_empty()),
        (2, !targets.processes.is_empty()),
        (2, !targets.nodes.is_empty()),
    ];
    let weights = kinds.map(|(weight, possible)| if possible { weight } else { 0 });
    let total: u64 = weights.iter().sum();
    if total == 0 {
        return None;
    }
    let mut left = random.draw() % total;
    let kind = weights.iter().position(|&weight| {
        let here = left < weight;
        left = left.saturating_sub(weight);
        here
    })?;
    let (what, longest) = match kind {
        0 => (
            Disturbance::Api {
                rule: rule(random, targets)?,
            },
            5_000,
        ),
        1 => (watches(random, targets)?, 0),
        2 => return compaction(random, targets, after_milliseconds),
        3 => (Disturbance::Outage, 3_000),
        4 => {
            let (namespace, name) = random.choose(&targets.leases)?.clone();
            (Disturbance::LoseLease { namespace, name }, 0)
        }
        5 => process(random, targets)?,
        _ => node(random, targets)?,
    };
    Some(vec![Step {
        after_milliseconds,
        lasting_milliseconds: if longest == 0 {
            0
        } else {
            random.in_range(longest / 10, longest)
        },
        what,
    }])
}

/// Returns a compaction that some watches miss something by: they break and cannot begin again until what happened meanwhile is forgotten.
/// Their clients get 410 then and have to list, as after a real server has started again without its cache of watches.
fn compaction(
    random: &mut SeededRandom,
    targets: &Targets,
    after_milliseconds: u64,
) -> Option<Vec<Step>> {
    let select = select(random, targets)?;
    let from = after_milliseconds.saturating_sub(random.in_range(500, 4_000));
    let closed = Rule::new(select.clone().verbs(&["watch"]), Fault::Unavailable);
    let step = |after_milliseconds, lasting_milliseconds, what| Step {
        after_milliseconds,
        lasting_milliseconds,
        what,
    };
    let how = WatchEnd::Broken;
    Some(vec![
        // a little longer at both ends, so that no watch begins between the steps
        step(
            from.saturating_sub(MARGIN),
            after_milliseconds + MARGIN - from.saturating_sub(MARGIN),
            Disturbance::Api { rule: closed },
        ),
        step(from, 0, Disturbance::EndWatches { select, how }),
        step(after_milliseconds, 0, Disturbance::Compact),
    ])
}

fn select(random: &mut SeededRandom, targets: &Targets) -> Option<Selector> {
    let (group, resource) = random.choose(&targets.resources)?;
    let mut select = Selector::resource(group, resource);
    select.user = random.choose(&targets.users).cloned();
    Some(select)
}

fn rule(random: &mut SeededRandom, targets: &Targets) -> Option<Rule> {
    let mut select = select(random, targets)?;
    let writes = ["create", "update", "patch", "delete"];
    let (fault, verbs): (Fault, &[&str]) = match random.in_range(0, 10) {
        0 => (Fault::Conflict, &["update", "patch"]),
        1 => (Fault::Expired, &["list", "watch"]),
        2 => (
            Fault::TooManyRequests {
                retry_after_seconds: 1,
            },
            &[],
        ),
        3 => (Fault::InternalError, &[]),
        4 => (Fault::Unavailable, &[]),
        5 => (
            Fault::Hang {
                milliseconds: random.in_range(100, 2_000).try_into().ok(),
            },
            &[],
        ),
        6 => (
            Fault::Delay {
                milliseconds: random.in_range(10, 1_000),
            },
            &[],
        ),
        7 => (Fault::Disconnect, &[]),
        8 => (Fault::LoseAnswer, &writes),
        9 => (Fault::TimeOutAfterCommit, &writes),
        _ => (
            Fault::Stale {
                versions: random.in_range(1, 50),
            },
            &["list"],
        ),
    };
    select.verbs = verbs.iter().map(|&verb| verb.to_owned()).collect();
    let share = random.in_range(20, 100) as f64 / 100.0;
    Some(Rule::new(select, fault).probability(share, random.draw()))
}

fn watches(random: &mut SeededRandom, targets: &Targets) -> Option<Disturbance> {
    let select = select(random, targets)?;
    let ends = [WatchEnd::Closed, WatchEnd::Broken, WatchEnd::Expired];
    let how = *random.choose(&ends)?;
    Some(Disturbance::EndWatches { select, how })
}

fn process(random: &mut SeededRandom, targets: &Targets) -> Option<(Disturbance, u64)> {
    let process = random.choose(&targets.processes)?.clone();
    Some(if random.draw().is_multiple_of(2) {
        (Disturbance::Kill { process }, 0)
    } else {
        (Disturbance::Stop { process }, 5_000)
    })
}

fn node(random: &mut SeededRandom, targets: &Targets) -> Option<(Disturbance, u64)> {
    let node = random.choose(&targets.nodes)?.clone();
    Some(
        match random.in_range(0, 2 + u64::from(targets.node_losses)) {
            0 => (Disturbance::Silence { node }, 10_000),
            1 => (Disturbance::RestartKubelet { node }, 0),
            3 => (Disturbance::LoseNode { node }, 5_000),
            _ => {
                let faults = [
                    SocketFault::Hangs,
                    SocketFault::Garbage,
                    SocketFault::Refuses,
                ];
                let fault = *random.choose(&faults)?;
                (Disturbance::PodResources { node, fault }, 5_000)
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Targets {
        Targets {
            resources: vec![
                (String::new(), "pods".into()),
                (
                    "topology.node.k8s.io".into(),
                    "noderesourcetopologies".into(),
                ),
            ],
            users: vec!["system:serviceaccount:*".into()],
            leases: vec![("numaresources".into(), "scheduler".into())],
            processes: vec![Process {
                node: "worker-0".into(),
                namespace: "numaresources".into(),
                pod: "rte".into(),
                container: "exporter".into(),
            }],
            nodes: vec!["worker-0".into(), "worker-1".into()],
            node_losses: true,
            outages: true,
        }
    }

    #[test]
    fn a_seed_gives_the_same_schedule_again_and_another_seed_another() {
        let minutes = Duration::from_mins(10);
        let drawn = |seed| Schedule::random(seed, 60, minutes, &targets());
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1).steps, drawn(2).steps);
        let steps = &drawn(1).steps;
        let is_compaction = |step: &&Step| step.what == Disturbance::Compact;
        let compactions = steps.iter().filter(is_compaction).count();
        assert_eq!(steps.len() - 2 * compactions, 600);
        assert!(drawn(1).steps.iter().all(|step| step.after() <= minutes));
    }

    #[test]
    fn every_kind_comes_up_and_none_that_has_no_target() {
        let minutes = Duration::from_mins(10);
        let kinds = |targets: &Targets| {
            let schedule = Schedule::random(3, 100, minutes, targets);
            schedule
                .steps
                .iter()
                .map(|step| serde_json::to_value(&step.what).unwrap()["kind"].clone())
                .map(|kind| kind.as_str().unwrap().to_owned())
                .collect::<std::collections::BTreeSet<String>>()
        };
        let all = [
            "api",
            "compact",
            "endWatches",
            "kill",
            "loseLease",
            "loseNode",
            "outage",
            "podResources",
            "restartKubelet",
            "silence",
            "stop",
        ];
        assert!(kinds(&targets()).iter().map(String::as_str).eq(all));
        let leases = Targets {
            leases: targets().leases,
            ..Targets::default()
        };
        assert!(kinds(&leases).iter().map(String::as_str).eq(["loseLease"]));
        assert!(kinds(&Targets::default()).is_empty());
    }

    /// If these numbers change, every recorded seed means another schedule.
    #[test]
    fn the_numbers_of_a_seed_are_pinned() {
        let mut random = SeededRandom::new(42);
        let numbers = [random.draw(), random.draw(), random.draw()];
        assert_eq!(
            numbers,
            [
                11_445_071_438_006_506_034,
                15_105_041_264_409_158_605,
                3_188_756_510_806_108_107
            ]
        );
    }

    #[test]
    fn a_schedule_is_written_and_read_as_json() {
        let schedule = Schedule::random(42, 60, Duration::from_mins(1), &targets());
        let text = serde_json::to_string(&schedule).unwrap();
        let again: Schedule = serde_json::from_str(&text).unwrap();
        assert_eq!(again, schedule);
    }
}
