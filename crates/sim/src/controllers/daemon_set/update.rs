//! Replacement of the pods of an older template.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::tie::should_run_on;
use super::{Controller, HASH};
use crate::controllers::objects;

fn rolling(set: &DaemonSet) -> Option<&RollingUpdateDaemonSet> {
    set.spec
        .as_ref()?
        .update_strategy
        .as_ref()?
        .rolling_update
        .as_ref()
}

/// Returns whether pods are replaced only when somebody deletes them.
pub(super) fn on_delete(set: &DaemonSet) -> bool {
    set.spec
        .as_ref()
        .and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref())
        == Some("OnDelete")
}

fn surge(set: &DaemonSet, total: i32) -> i32 {
    rolling(set)
        .and_then(|rolling| rolling.max_surge.as_ref())
        .filter(|_| !on_delete(set))
        .map_or(0, |surge| objects::scaled(surge, total, true))
}

/// Returns whether a new pod may run on a node beside the old pod that it replaces.
pub(super) fn surges(set: &DaemonSet) -> bool {
    surge(set, 1) > 0
}

fn unavailable(set: &DaemonSet, total: i32) -> i32 {
    rolling(set)
        .and_then(|rolling| rolling.max_unavailable.as_ref())
        .map_or(1, |limit: &IntOrString| objects::scaled(limit, total, true))
}

/// Returns the generation of the template, which the API server keeps in an annotation.
pub(super) fn template_generation(set: &DaemonSet) -> Option<i64> {
    let annotations = set.metadata.annotations.as_ref()?;
    annotations
        .get("deprecated.daemonset.template.generation")?
        .parse()
        .ok()
}

/// Returns whether a pod has the current template.
pub(super) fn is_updated(set: &DaemonSet, pod: &Pod, hash: &str) -> bool {
    let labels = objects::labels(pod);
    let generation = template_generation(set).map(|generation| generation.to_string());
    generation.is_some() && labels.get("pod-template-generation") == generation.as_ref()
        || !hash.is_empty() && labels.get(HASH).is_some_and(|label| label == hash)
}

pub(super) fn min_ready(set: &DaemonSet) -> i32 {
    set.spec
        .as_ref()
        .and_then(|spec| spec.min_ready_seconds)
        .unwrap_or(0)
}

/// Returns the superfluous ones of several running pods on a node: all but one new and one old pod, and that old pod too once it is not
/// ready or the new one is available.
pub(super) fn superfluous(set: &DaemonSet, running: &[Arc<Pod>], hash: &str) -> Vec<Arc<Pod>> {
    let (new, old): (Vec<_>, Vec<_>) = running.iter().partition(|pod| {
        objects::labels(&***pod)
            .get(HASH)
            .is_some_and(|label| label == hash)
    });
    let mut surplus: Vec<Arc<Pod>> = new
        .iter()
        .skip(1)
        .chain(old.iter().skip(1))
        .map(|pod| Arc::clone(pod))
        .collect();
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!objects::ready(old) || objects::available(new, min_ready(set)).is_ok())
    {
        surplus.push(Arc::clone(old));
    }
    surplus
}

type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// Returns the new and the old pod of a node, or `None` if there is more than one of either.
fn pair(pods: &[Arc<Pod>], updated: impl Fn(&Pod) -> bool) -> Option<Pair<'_>> {
    let (mut new, mut old) = (None, None);
    for pod in pods {
        let place = if updated(pod) { &mut new } else { &mut old };
        if place.replace(pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

impl Controller {
    /// Takes one step of a rolling update.
    pub(super) async fn roll(
        &self,
        set: &DaemonSet,
        nodes: &[Arc<Node>],
        hash: &str,
    ) -> Result<(), kube::Error> {
        let by_node = self.by_node(set).await?;
        let total = nodes
            .iter()
            .filter(|node| should_run_on(set, node).0)
            .count() as i32;
        let most_surge = surge(set, total);
        let most_unavailable = unavailable(set, total);
        let available = |pod: &Pod| objects::available(pod, min_ready(set)).is_ok();
        let pairs = || {
            nodes.iter().filter_map(|node| {
                let pods = by_node.get(objects::name(&**node))?;
                Some((node, pair(pods, |pod| is_updated(set, pod, hash))))
            })
        };
        let missing = nodes
            .iter()
            .filter(|node| {
                should_run_on(set, node).0 && !by_node.contains_key(objects::name(&***node))
            })
            .count();
        let mut now = Vec::new();
        let mut candidates = Vec::new();
        if !surges(set) {
            let mut down = missing;
            for (_, pair) in pairs() {
                match pair {
                    Some((Some(new), None)) => down += usize::from(!available(new)),
                    Some((None, Some(old))) if available(old) => candidates.push(Arc::clone(old)),
                    Some((None, Some(old))) => {
                        down += 1;
                        now.push(Arc::clone(old));
                    }
                    _ => down += 1,
                }
            }
            let rest = (most_unavailable.max(0) as usize).saturating_sub(down);
            now.extend(candidates.into_iter().take(rest));
            now.retain(|pod| !objects::deleting(&**pod));
            return self.sync(set, Vec::new(), now, hash).await;
        }
        let mut extra = Vec::new();
        let mut nodes_now = Vec::new();
        let mut surging = 0;
        for (node, pair) in pairs() {
            match pair {
                None => surging += 1,
                Some((None, Some(old))) => {
                    let name = objects::name(&**node).to_owned();
                    if available(old) {
                        extra.push(name);
                    } else if should_run_on(set, node).0 {
                        nodes_now.push(name);
                    } else {
                        now.push(Arc::clone(old));
                    }
                }
                Some((Some(new), Some(old))) => {
                    if available(new) {
                        now.push(Arc::clone(old));
                    } else {
                        surging += 1;
                    }
                }
                Some(_) => {}
            }
        }
        let rest = (most_surge.max(0) as usize).saturating_sub(surging);
        nodes_now.extend(extra.into_iter().take(rest));
        now.retain(|pod| !objects::deleting(&**pod));
        self.sync(set, nodes_now, now, hash).await
    }
}
