//! One attempt: a node for a pod, or why there is none.

use std::borrow::Cow;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::filter::{Filter, Rejection};
use super::pod::Task;
use super::preempt::{self, Outcome, Plan};
use super::{State, report, score};
use crate::controllers::mirror::Mirror;
use crate::controllers::objects;

/// The result of a scheduling attempt.
pub(super) enum Attempt {
    Placed(String),
    Refused {
        message: String,
        depends_on_other_pods: bool,
        plan: Option<Plan>,
    },
}

/// Finds a node for a pod and reserves it in the account, or explains why no node fits.
pub(super) fn place(
    state: &mut State,
    task: Task,
    budgets: &Mirror<PodDisruptionBudget>,
) -> Attempt {
    let filter = Filter::new(&state.ledger, &task);
    let only = task.only_node();
    let mut refused: Vec<(String, Rejection)> = Vec::new();
    let mut fitting = Vec::new();
    let mut all: Vec<_> = state.ledger.nodes().collect();
    if all.is_empty() {
        return Attempt::Refused {
            message: "no nodes available to schedule pods".to_owned(),
            depends_on_other_pods: false,
            plan: None,
        };
    }
    let start = state.turn % all.len();
    all.rotate_left(start);
    let count = all.len();
    for (node, on) in all {
        let name = objects::name(&**node);
        let verdict = match &only {
            Some(only) if !only.iter().any(|wanted| wanted == name) => Err(
                Rejection::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            ),
            _ => filter.check(&state.ledger, node, on),
        };
        match verdict {
            Ok(()) => fitting.push((node, on)),
            Err(rejection) => refused.push((name.to_owned(), rejection)),
        }
    }
    if let Some(best) = score::best(&task, &fitting) {
        let node = objects::name(&**fitting[best].0).to_owned();
        state.turn = (start + 1) % count;
        state.ledger.assume(&node, task);
        return Attempt::Placed(node);
    }
    let reasons: Vec<Cow<'static, str>> = refused
        .iter()
        .flat_map(|(_, rejection)| rejection.reasons.iter().cloned())
        .collect();
    let mut message = report::histogram(count, reasons.iter());
    let depends_on_other_pods = refused
        .iter()
        .any(|(_, rejection)| rejection.depends_on_other_pods);
    let plan = match preempt::find(&mut state.ledger, &task, &refused, &budgets.all()) {
        Outcome::Found(plan) => {
            state.ledger.nominate(&plan.node, task);
            Some(plan)
        }
        Outcome::None(why) => {
            message.push_str(" preemption: ");
            message.push_str(&why);
            None
        }
    };
    Attempt::Refused {
        message,
        depends_on_other_pods,
        plan,
    }
}
