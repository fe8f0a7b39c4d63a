//! Preemption: finds the pods of lower priority that have to go to make room for a pod (scheduler.md 7.8).

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::filter::{Filter, Rejection};
use super::ledger::Ledger;
use super::pod::Task;
use crate::controllers::{objects, selectors};

/// A node and the victims on it.
pub(super) struct Plan {
    pub(super) node: String,
    pub(super) victims: Vec<Task>,
}

/// The result of the search.
pub(super) enum Outcome {
    /// Preemption makes room.
    Found(Plan),
    /// Preemption does not help; the text is appended to the message of the pod.
    None(String),
}

const NOT_HELPFUL: Cow<'static, str> = Cow::Borrowed("Preemption is not helpful for scheduling");
const NO_VICTIMS: Cow<'static, str> = Cow::Borrowed("No preemption victims found for incoming pod");

/// Finds the node where preemption costs the least.
pub(super) fn find(
    ledger: &mut Ledger,
    task: &Task,
    refused: &[(String, Rejection)],
    budgets: &[Arc<PodDisruptionBudget>],
) -> Outcome {
    if task.spec().preemption_policy.as_deref() == Some("Never") {
        return Outcome::None("not eligible due to preemptionPolicy=Never.".to_owned());
    }
    if let Some((_, state)) = task.nominated().and_then(|node| ledger.get(node)) {
        let leaving = ledger
            .on(state)
            .any(|other| other.priority < task.priority && objects::deleting(&*other.pod));
        if leaving {
            return Outcome::None(
                "not eligible due to a terminating pod on the nominated node.".to_owned(),
            );
        }
    }
    let mut reasons = Vec::new();
    let mut best: Option<(Cost, Plan)> = None;
    for (name, rejection) in refused {
        if !rejection.resolvable {
            reasons.push(NOT_HELPFUL);
            continue;
        }
        match victims(ledger, task, name, budgets) {
            Ok((victims, violations)) => {
                let cost = Cost::of(&victims, violations);
                if best.as_ref().is_none_or(|(held, _)| cost.less(held)) {
                    let node = name.clone();
                    best = Some((cost, Plan { node, victims }));
                }
            }
            Err(why) => reasons.extend(why),
        }
    }
    match best {
        Some((_, plan)) => Outcome::Found(plan),
        None => Outcome::None(super::report::histogram(refused.len(), reasons.iter())),
    }
}

type Failed = Vec<Cow<'static, str>>;

/// Returns the victims on one node, and how many of them violate a disruption budget.
fn victims(
    ledger: &mut Ledger,
    task: &Task,
    name: &str,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<(Vec<Task>, usize), Failed> {
    let lower: Vec<Task> = {
        let Some((_, state)) = ledger.get(name) else {
            return Err(vec![NOT_HELPFUL]);
        };
        ledger
            .on(state)
            .filter(|other| other.priority < task.priority)
            .cloned()
            .collect()
    };
    if lower.is_empty() {
        return Err(vec![NO_VICTIMS]);
    }
    for other in &lower {
        ledger.take(&other.key);
    }
    let answer = match fits(ledger, task, name) {
        Ok(()) => Ok(reprieve(ledger, task, name, &lower, budgets)),
        Err(rejection) => Err(rejection.reasons),
    };
    for other in &lower {
        ledger.take(&other.key);
        ledger.put(name, other.clone());
    }
    answer
}

/// Puts back every victim that can stay: first those whose eviction violates a budget, and among these the highest priority first.
fn reprieve(
    ledger: &mut Ledger,
    task: &Task,
    name: &str,
    lower: &[Task],
    budgets: &[Arc<PodDisruptionBudget>],
) -> (Vec<Task>, usize) {
    let mut ordered: Vec<&Task> = lower.iter().collect();
    ordered.sort_by_key(|other| (std::cmp::Reverse(other.priority), started(other)));
    let mut allowed: Vec<i32> = budgets
        .iter()
        .map(|budget| {
            budget
                .status
                .as_ref()
                .map_or(0, |status| status.disruptions_allowed)
        })
        .collect();
    let (breaking, harmless): (Vec<&Task>, Vec<&Task>) = ordered.into_iter().partition(|other| {
        let mut breaks = false;
        for (budget, left) in budgets.iter().zip(&mut allowed) {
            if covers(budget, other) {
                *left -= 1;
                breaks |= *left < 0;
            }
        }
        breaks
    });
    let mut violations = 0;
    let mut victims = Vec::new();
    for (other, violates) in breaking
        .into_iter()
        .map(|other| (other, true))
        .chain(harmless.into_iter().map(|other| (other, false)))
    {
        ledger.put(name, other.clone());
        if fits(ledger, task, name).is_err() {
            ledger.take(&other.key);
            victims.push(other.clone());
            violations += usize::from(violates);
        }
    }
    victims.sort_by_key(|other| (std::cmp::Reverse(other.priority), started(other)));
    (victims, violations)
}

fn covers(budget: &PodDisruptionBudget, task: &Task) -> bool {
    objects::namespace(budget) == task.key.namespace
        && budget
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.as_ref())
            .is_some_and(|selector| {
                !selectors::is_empty(selector)
                    && selectors::selects(selector, objects::labels(&*task.pod))
            })
}

fn fits(ledger: &Ledger, task: &Task, name: &str) -> Result<(), Rejection> {
    let filter = Filter::new(ledger, task);
    let found: Option<(&Arc<Node>, _)> = ledger.get(name);
    match found {
        Some((node, state)) => filter.check(ledger, node, state),
        None => Err(Rejection::unresolvable("node(s) are gone")),
    }
}

fn started(task: &Task) -> Timestamp {
    task.pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref())
        .map_or(Timestamp::MAX, |time| time.0)
}

/// The cost of a plan.
struct Cost {
    violations: usize,
    highest: i32,
    sum: i64,
    count: usize,
    /// Earliest start among the victims of the highest priority.
    since: Timestamp,
}

impl Cost {
    fn of(victims: &[Task], violations: usize) -> Self {
        let highest = victims
            .iter()
            .map(|task| task.priority)
            .max()
            .unwrap_or(i32::MIN);
        Self {
            violations,
            highest,
            sum: victims
                .iter()
                .map(|task| i64::from(task.priority) + (1 << 31))
                .sum(),
            count: victims.len(),
            since: victims
                .iter()
                .filter(|task| task.priority == highest)
                .map(started)
                .min()
                .unwrap_or(Timestamp::MAX),
        }
    }

    fn less(&self, other: &Self) -> bool {
        let rank = |cost: &Self| (cost.violations, cost.highest, cost.sum, cost.count);
        // The later the victims were started, the less work is lost.
        (rank(self), std::cmp::Reverse(self.since)) < (rank(other), std::cmp::Reverse(other.since))
    }
}
