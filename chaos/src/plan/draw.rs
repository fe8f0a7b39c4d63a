//! Draws the parts of a plan.

use api::names;
use cluster_faults::{Disturbance, Fault, Process, Rule, SeededRandom, Selector, Step, Targets};
use suite::targets::{STACK, requests};
use testbed::lane::Lane;

use super::{ANYWHERE, Action, Edited, Job, Quality, Tampered, Turn, WORKERS};

/// Pods that are created per minute. Together they want about three quarters of the CPUs.
const PODS_PER_MINUTE: u64 = 72;
/// Bursts per minute: pods that are created at the same moment for one node. The first one comes at once, on nodes that are empty.
const BURSTS_PER_MINUTE: u64 = 6;
/// CPUs of each pod of a burst. Three of them fit a node of the default machine, and only one fits a zone: who does not charge the first two
/// to their zones has the kubelet refuse the third.
pub(super) const BURST_CPUS: u64 = 14;
/// Other changes per minute: of nodes, Deployments, custom resources and objects of the operator.
const CHANGES_PER_MINUTE: u64 = 15;
/// Deployments that exist at the same time.
const DEPLOYMENTS: u64 = 3;
/// How long before a burst answers to bindings are lost, and for how long, in milliseconds.
const BINDINGS_BEFORE: u64 = 100;
const BINDINGS_LOST: u64 = 1_500;
/// How long the pods of some bursts wait for their node, which is cordoned, in milliseconds.
const HELD: u64 = 1_500;
/// How long the scheduler hears nothing of pods after that, in milliseconds. Who finds no room at its second attempt has its third after a
/// backoff of two seconds, and that is the one that goes wrong when the pods before it were given up.
const FROZEN: u64 = 4_000;

/// A burst during which the scheduler does not hear that its bindings were carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    /// When its pods can be placed first, in milliseconds from the start.
    after_milliseconds: u64,
    /// Whether they have waited for their node until then. The scheduler knows them, so it places them even when its watch of pods stands
    /// still, and hears nothing of its own bindings.
    held: bool,
}

/// Draws what somebody changes, sorted by time, and the bursts with lost answers. `length` is in milliseconds.
pub(super) fn churn(random: &mut SeededRandom, length: u64) -> (Vec<Turn>, Vec<Unanswered>) {
    let count = |per_minute: u64| (per_minute * length).div_ceil(60_000);
    let mut churn = Vec::new();
    let mut unanswered = Vec::new();
    for number in 0..count(PODS_PER_MINUTE) {
        let after_milliseconds = random.in_range(0, length);
        let job = job(random, number);
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
    let mut next = count(PODS_PER_MINUTE);
    for number in 0..count(BURSTS_PER_MINUTE) {
        let after_milliseconds = if number == 0 {
            0
        } else {
            random.in_range(0, length)
        };
        let node = node(random);
        // every second one is unanswered, but not the first
        let held = number % 4 == 1;
        for job in burst(random, &node, held, next) {
            next = job.number + 1;
            churn.push(Turn {
                after_milliseconds,
                what: Action::Create { job },
            });
        }
        if number % 2 == 0 {
            continue;
        }
        if held {
            let turns = [(0, true), (HELD, false)];
            churn.extend(turns.map(|(later, cordoned)| Turn {
                after_milliseconds: after_milliseconds + later,
                what: Action::Cordon {
                    node: node.clone(),
                    cordoned,
                },
            }));
        }
        unanswered.push(Unanswered {
            after_milliseconds: after_milliseconds + if held { HELD } else { 0 },
            held,
        });
    }
    for _ in 0..count(CHANGES_PER_MINUTE) {
        let after_milliseconds = random.in_range(0, length);
        let what = change(random);
        churn.push(Turn {
            after_milliseconds,
            what,
        });
    }
    churn.retain(|turn| turn.after_milliseconds <= length);
    // a node is cordoned before the pods of the same moment come
    let is_creation = |turn: &Turn| matches!(turn.what, Action::Create { .. });
    churn.sort_by_key(|turn| (turn.after_milliseconds, is_creation(turn)));
    (churn, unanswered)
}

/// Draws faults during bursts: the scheduler does not hear that its bindings were carried out. Requests that are struck at random are hardly
/// ever these.
pub(super) fn lost_bindings(random: &mut SeededRandom, bursts: &[Unanswered]) -> Vec<Step> {
    let steps = bursts.iter().flat_map(|burst| {
        let binding = Selector {
            subresource: Some("binding".to_owned()),
            ..Selector::resource("", "pods")
        };
        let faults = [Fault::LoseAnswer, Fault::TimeOutAfterCommit];
        let fault = random.choose(&faults).cloned().unwrap_or(Fault::LoseAnswer);
        let lost = Rule::new(binding.user(STACK), fault).probability(0.5, random.draw());
        let pods = Selector::resource("", "pods").verbs(&["list", "watch"]);
        let frozen = burst
            .held
            .then(|| (Rule::new(pods.user(STACK), Fault::Freeze), FROZEN));
        let rules = std::iter::once((lost, BINDINGS_LOST)).chain(frozen);
        rules.map(|(rule, lasting_milliseconds)| Step {
            after_milliseconds: burst.after_milliseconds.saturating_sub(BINDINGS_BEFORE),
            lasting_milliseconds,
            what: Disturbance::Api { rule },
        })
    });
    steps.collect()
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
        node: None,
    }
}

/// Returns three or four pods for one node, numbered from `first` on. Those of a `held` burst run for longer than the scheduler hears nothing
/// of them.
fn burst(random: &mut SeededRandom, node: &str, held: bool, first: u64) -> Vec<Job> {
    let count = random.in_range(3, 4);
    let shortest = if held { FROZEN } else { 1_000 };
    let mut job = |number| Job {
        number,
        quality: Quality::Guaranteed,
        cpus: BURST_CPUS,
        containers: 1,
        lifetime_milliseconds: shortest + random.in_range(0, 3_000),
        urgent: false,
        node: Some(node.to_owned()),
    };
    (first..first + count).map(&mut job).collect()
}

fn node(random: &mut SeededRandom) -> String {
    let node = random.choose(&WORKERS).copied();
    node.unwrap_or(WORKERS[0]).to_owned()
}

fn change(random: &mut SeededRandom) -> Action {
    let level = |random: &mut SeededRandom| {
        let levels = ["Normal", "Debug", "Trace"];
        let level = random.choose(&levels).copied();
        level.unwrap_or("Normal").to_owned()
    };
    match random.in_range(0, 13) {
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
            let with = random.choose(&Tampered::ALL).copied();
            Action::Tamper {
                with: with.unwrap_or(Tampered::DaemonSet),
            }
        }
    }
}

/// Returns what may go wrong: requests of the stack, of the controllers and of the kubelets, but not those of the run itself.
pub(super) fn targets(lane: Lane) -> Targets {
    let mut requests = requests();
    if lane != Lane::Embedded {
        // a real API server has no rules
        requests.resources.clear();
    }
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
        leases: [names::OPERATOR_LEASE, names::SCHEDULER_LEASE]
            .map(|lease| (names::NAMESPACE.to_owned(), lease.to_owned()))
            .to_vec(),
        processes,
        nodes: WORKERS.map(str::to_owned).to_vec(),
        node_losses: true,
        outages: true,
        ..requests
    }
}
