//! Decides which nodes fit a pod, and why the others do not (scheduler.md 7.3, 7.4).

mod inter_pod_affinity;
mod spread;

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::ledger::{Ledger, NodeState};
use super::pod::Task;
use crate::controllers::objects;
use crate::controllers::placement::{self, NO_EXECUTE, NO_SCHEDULE};
use crate::default_scheduler::filter::inter_pod_affinity::InterPodAffinity;
use crate::default_scheduler::filter::spread::Spread;

/// Why a node does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reasons: Vec<Cow<'static, str>>,
    /// Whether the removal of pods from the node could resolve it.
    pub(super) resolvable: bool,
    /// Whether it depends on the properties of other pods.
    pub(super) depends_on_other_pods: bool,
}

impl Rejection {
    /// Returns a rejection that preemption cannot resolve.
    pub(super) fn unresolvable(reason: &'static str) -> Self {
        Self {
            reasons: vec![reason.into()],
            resolvable: false,
            depends_on_other_pods: false,
        }
    }

    /// Returns a rejection because of the pods on the node.
    pub(super) fn resolvable(reason: &'static str) -> Self {
        Self {
            resolvable: true,
            ..Self::unresolvable(reason)
        }
    }

    /// Marks the rejection as dependent on the properties of other pods.
    pub(super) fn depends_on_other_pods(mut self) -> Self {
        self.depends_on_other_pods = true;
        self
    }
}

/// What is computed once per pod for all nodes.
pub(super) struct Filter<'a> {
    task: &'a Task,
    inter_pod_affinity: InterPodAffinity,
    spread: Spread,
}

impl<'a> Filter<'a> {
    pub(super) fn new(ledger: &Ledger, task: &'a Task) -> Self {
        Self {
            task,
            inter_pod_affinity: InterPodAffinity::new(ledger, task),
            spread: Spread::new(ledger, task),
        }
    }

    /// Checks whether the pod fits a node; returns the first rejection.
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
            return Err(Rejection::unresolvable(
                "node(s) didn't match Pod's node affinity/selector",
            ));
        }
        ports(task, ledger, state)?;
        room(task, ledger, node, state)?;
        self.spread.check(node)?;
        self.inter_pod_affinity.check(node)
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
        return Err(Rejection::unresolvable("node(s) were unschedulable"));
    }
    Ok(())
}

fn named(task: &Task, node: &Node) -> Result<(), Rejection> {
    let name = task.spec().node_name.as_deref().unwrap_or_default();
    if !name.is_empty() && name != objects::name(node) {
        return Err(Rejection::unresolvable(
            "node(s) didn't match the requested node name",
        ));
    }
    Ok(())
}

/// Rejects nodes with untolerated taints that keep new pods away.
pub(super) fn tainted(task: &Task, node: &Node) -> Result<(), Rejection> {
    let untolerated = [NO_SCHEDULE, NO_EXECUTE]
        .into_iter()
        .flat_map(|effect| placement::taints(node, effect))
        .any(|taint| !placement::tolerated(task.tolerations(), taint));
    if untolerated {
        return Err(Rejection::unresolvable("node(s) had untolerated taint(s)"));
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
        return Err(Rejection::resolvable(
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    Ok(())
}

/// Returns whether the fit of a node depends on this resource.
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
    // CPU, memory and ephemeral storage are checked before all others.
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
        depends_on_other_pods: false,
    })
}
