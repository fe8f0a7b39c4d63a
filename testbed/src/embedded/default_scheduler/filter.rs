//! Which nodes a pod may be on, and why not (scheduler.md 7.3, 7.4).

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::ledger::{Ledger, NodeState};
use super::neighbours::Neighbours;
use super::pod::Task;
use super::spread::Spread;
use crate::embedded::controllers::objects;
use crate::embedded::controllers::placement::{self, NO_EXECUTE, NO_SCHEDULE};

/// Why a node is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reasons: Vec<Cow<'static, str>>,
    /// Whether it may change when pods of the node go.
    pub(super) resolvable: bool,
    /// Whether it hangs on what other pods are like.
    pub(super) social: bool,
}

impl Rejection {
    /// A refusal that only another node or pod can change.
    pub(super) fn fixed(reason: &'static str) -> Self {
        Self {
            reasons: vec![reason.into()],
            resolvable: false,
            social: false,
        }
    }

    /// A refusal because of the pods that are there.
    pub(super) fn crowded(reason: &'static str) -> Self {
        Self {
            resolvable: true,
            ..Self::fixed(reason)
        }
    }

    /// The same refusal, because of what other pods are like.
    pub(super) fn social(mut self) -> Self {
        self.social = true;
        self
    }
}

/// What about a pod is worked out once for all nodes.
pub(super) struct Filter<'a> {
    task: &'a Task,
    neighbours: Neighbours,
    spread: Spread,
}

impl<'a> Filter<'a> {
    pub(super) fn new(ledger: &Ledger, task: &'a Task) -> Self {
        Self {
            task,
            neighbours: Neighbours::new(ledger, task),
            spread: Spread::new(ledger, task),
        }
    }

    /// Whether the pod may be on a node. The first that refuses decides.
    pub(super) fn check(
        &self,
        ledger: &Ledger,
        node: &Node,
        state: &NodeState,
    ) -> Result<(), Rejection> {
        let task = self.task;
        cordoned(task, node)?;
        named(task, node)?;
        tainted(task, node)?;
        if !placement::selected(task.spec(), node) {
            return Err(Rejection::fixed(
                "node(s) didn't match Pod's node affinity/selector",
            ));
        }
        ports(task, ledger, state)?;
        room(task, ledger, node, state)?;
        self.spread.check(node)?;
        self.neighbours.check(node)
    }
}

fn cordoned(task: &Task, node: &Node) -> Result<(), Rejection> {
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: NO_SCHEDULE.to_owned(),
        ..Taint::default()
    };
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    if cordoned && !placement::tolerated(task.tolerations(), &taint) {
        return Err(Rejection::fixed("node(s) were unschedulable"));
    }
    Ok(())
}

fn named(task: &Task, node: &Node) -> Result<(), Rejection> {
    let name = task.spec().node_name.as_deref().unwrap_or_default();
    if !name.is_empty() && name != objects::name(node) {
        return Err(Rejection::fixed(
            "node(s) didn't match the requested node name",
        ));
    }
    Ok(())
}

/// Taints that keep new pods away.
pub(super) fn tainted(task: &Task, node: &Node) -> Result<(), Rejection> {
    let untolerated = [NO_SCHEDULE, NO_EXECUTE]
        .into_iter()
        .flat_map(|effect| placement::taints(node, effect))
        .any(|taint| !placement::tolerated(task.tolerations(), taint));
    if untolerated {
        return Err(Rejection::fixed("node(s) had untolerated taint(s)"));
    }
    Ok(())
}

fn ports(task: &Task, ledger: &Ledger, state: &NodeState) -> Result<(), Rejection> {
    if task.ports.is_empty() {
        return Ok(());
    }
    let taken = ledger
        .on(state)
        .flat_map(|other| &other.ports)
        .any(|taken| task.ports.iter().any(|wanted| wanted.clashes(taken)));
    if taken {
        return Err(Rejection::crowded(
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    Ok(())
}

/// Resources that a node as a whole accounts for.
fn counts(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains('/')
}

fn room(task: &Task, ledger: &Ledger, node: &Node, state: &NodeState) -> Result<(), Rejection> {
    let amount = |of: &super::pod::Amounts, name: &str| of.get(name).copied().unwrap_or(0);
    let (reserved, promised) = ledger.reserved(objects::name(node), task);
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut resolvable = true;
    if (state.pods.len() + promised) as i64 >= amount(&state.allocatable, "pods") {
        reasons.push("Too many pods".into());
    }
    let mut wanted: Vec<(&String, &i64)> = task
        .requests
        .iter()
        .filter(|(name, wanted)| **wanted > 0 && counts(name))
        .collect();
    // CPU, memory and storage are looked at before all others
    let place = |name: &str| match name {
        "cpu" => 0,
        "memory" => 1,
        "ephemeral-storage" => 2,
        _ => 3,
    };
    wanted.sort_by_key(|(name, _)| (place(name), (*name).clone()));
    for (name, wanted) in wanted {
        let total = amount(&state.allocatable, name);
        let used = amount(&state.used, name) + amount(&reserved, name);
        if *wanted > total - used {
            reasons.push(format!("Insufficient {name}").into());
            resolvable &= *wanted <= total;
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(Rejection {
        reasons,
        resolvable,
        social: false,
    })
}
