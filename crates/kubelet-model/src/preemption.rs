//! How a kubelet makes room for a critical pod: which pods end for it.
//!
//! The final status of such a pod has phase `Failed` with [`REASON`] and [`MESSAGE`]. If its containers ran and all of them exited with 0,
//! the kubelet drops both, and the phase is `Succeeded`.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use topology::request::Qos;

use super::predicates::Obstacle;
use super::workload::Workload;

/// Reason in the status of a pod that ends for another.
pub const REASON: &str = "Preempting";
/// Message of that status.
pub const MESSAGE: &str = "Preempted in order to admit critical pod";

/// The missing amount of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    resource: String,
    amount: i64,
}

/// Even all pods together do not hold the missing amounts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {0}"
)]
pub struct Impossible(String);

/// Returns the UIDs of the pods that end for a critical one, in the order in which they end: few, and of the lowest QoS class that
/// suffices.
///
/// Among pods that free the same and ask for the same, the kubelet's choice is unspecified. Here those of `preferred` end first, then the
/// later ones.
pub fn victims<'a>(
    preemptor: &Workload,
    active: impl Iterator<Item = &'a Workload>,
    obstacles: &[Obstacle],
    preferred: &BTreeSet<String>,
) -> Result<Vec<String>, Impossible> {
    let needs: Vec<Need> = obstacles
        .iter()
        .filter_map(|obstacle| match obstacle {
            Obstacle::Short {
                resource,
                requested,
                used,
                capacity,
            } => Some(Need {
                resource: resource.clone(),
                amount: requested - (capacity - used),
            }),
            Obstacle::Failed { .. } => None,
        })
        .collect();
    let mut classes: [Vec<&Workload>; 3] = Default::default();
    for pod in active.filter(|pod| can_preempt(preemptor, pod)) {
        let class = match pod.qos {
            Qos::BestEffort => 0,
            Qos::Burstable => 1,
            Qos::Guaranteed => 2,
        };
        classes[class].push(pod);
    }
    let [best_effort, burstable, guaranteed] = classes;
    let all = [&best_effort[..], &burstable, &guaranteed];
    let left = without(&needs, all.into_iter().flatten());
    if !left.is_empty() {
        return Err(Impossible(show(&left)));
    }
    let lower = best_effort.iter().chain(&burstable);
    let third = choose_victims(guaranteed, without(&needs, lower), preferred)?;
    let second = choose_victims(
        burstable,
        without(&needs, best_effort.iter().chain(third.iter())),
        preferred,
    )?;
    let first = choose_victims(
        best_effort,
        without(&needs, second.iter().chain(third.iter())),
        preferred,
    )?;
    let ends = first.into_iter().chain(second).chain(third);
    Ok(ends.map(|pod| pod.uid.clone()).collect())
}

fn can_preempt(preemptor: &Workload, pod: &Workload) -> bool {
    if preemptor.is_critical() && !pod.is_critical() {
        return true;
    }
    preemptor
        .priority()
        .zip(pod.priority())
        .is_some_and(|(ours, theirs)| ours > theirs)
}

/// Returns what the kubelet counts as a pod's request here: overhead counts only together with another amount.
fn request(pod: &Workload, resource: &str) -> i64 {
    if resource == "pods" {
        return 1;
    }
    let total = pod.node_request().get(resource).copied();
    let overhead = pod.overhead.get(resource).copied().unwrap_or_default();
    let total = total.unwrap_or_default();
    if total == overhead { 0 } else { total }
}

fn without<'a>(needs: &[Need], pods: impl Iterator<Item = &'a &'a Workload>) -> Vec<Need> {
    let mut left = needs.to_vec();
    for pod in pods {
        for need in &mut left {
            need.amount -= request(pod, &need.resource);
        }
    }
    left.retain(|need| need.amount > 0);
    left
}

/// Chooses pods until nothing is missing: each time the pod that leaves the least missing, and among equals the smaller one.
fn choose_victims<'a>(
    mut pods: Vec<&'a Workload>,
    mut needs: Vec<Need>,
    preferred: &BTreeSet<String>,
) -> Result<Vec<&'a Workload>, Impossible> {
    let mut chosen = Vec::new();
    while !needs.is_empty() {
        let mut best: Option<(f64, usize)> = None;
        for (index, pod) in pods.iter().enumerate() {
            let remaining = remaining_need(&needs, pod);
            let better = best.is_none_or(|(least, held)| {
                let less = remaining.total_cmp(&least);
                let smaller = size(pod).cmp(&size(pods[held]));
                let (ours, theirs) = (&pod.uid, &pods[held].uid);
                let is_preferred = preferred.contains(ours) || !preferred.contains(theirs);
                match less.then(smaller) {
                    Ordering::Less => true,
                    Ordering::Equal => is_preferred,
                    Ordering::Greater => false,
                }
            });
            if better {
                best = Some((remaining, index));
            }
        }
        let Some((_, index)) = best else {
            return Err(Impossible(show(&needs)));
        };
        let pod = pods.swap_remove(index);
        needs = without(&needs, [&pod].into_iter());
        chosen.push(pod);
    }
    Ok(chosen)
}

fn remaining_need(needs: &[Need], pod: &Workload) -> f64 {
    needs
        .iter()
        .map(|need| {
            let left = (need.amount - request(pod, &need.resource)).max(0);
            (left as f64 / need.amount as f64).powi(2)
        })
        .sum()
}

fn size(pod: &Workload) -> (i64, i64) {
    (request(pod, "memory"), request(pod, "cpu"))
}

fn show(needs: &[Need]) -> String {
    let needs: Vec<String> = needs
        .iter()
        .map(|need| format!("(res: {}, q: {}), ", need.resource, need.amount))
        .collect();
    format!("[{}]", needs.concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, cpu: &str, limited: bool, priority: i32) -> Workload {
        let amounts = json!({ "cpu": cpu, "memory": "1Gi" });
        let mut resources = json!({ "requests": amounts });
        if limited {
            resources["limits"] = amounts;
        }
        let container = json!({ "name": "c", "resources": resources });
        let pod = json!({
            "metadata": { "name": uid, "uid": uid },
            "spec": { "priority": priority, "containers": [container] },
        });
        Workload::new(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn missing(cpu: i64) -> Vec<Obstacle> {
        vec![Obstacle::Short {
            resource: "cpu".to_owned(),
            requested: cpu,
            used: 0,
            capacity: 0,
        }]
    }

    #[test]
    fn guaranteed_pods_end_only_for_what_others_cannot_free() {
        let critical = pod("critical", "8", false, 2_000_000_000);
        let pods = [
            pod("guaranteed", "8", true, 0),
            pod("small", "1", false, 0),
            pod("large", "3", false, 0),
        ];
        let ends = |cpu| victims(&critical, pods.iter(), &missing(cpu), &BTreeSet::new()).unwrap();
        assert_eq!(ends(2000), ["large"]);
        assert_eq!(ends(1000), ["small"]);
        assert_eq!(ends(4000), ["large", "small"]);
        assert_eq!(ends(5000), ["guaranteed"]);
    }

    #[test]
    fn favoured_pods_end_only_before_their_equals() {
        let critical = pod("critical", "8", false, 2_000_000_000);
        let pods = ["a", "b"].map(|uid| pod(uid, "2", false, 0));
        let small = pod("small", "1", false, 0);
        let ends = |preferred: &str, cpu| {
            let preferred = BTreeSet::from([preferred.to_owned()]);
            let pods = pods.iter().chain([&small]);
            victims(&critical, pods, &missing(cpu), &preferred).unwrap()
        };
        assert_eq!(ends("a", 2000), ["a"]);
        assert_eq!(ends("b", 2000), ["b"]);
        assert_eq!(ends("a", 1000), ["small"]);
    }

    #[test]
    fn critical_pods_do_not_end_for_each_other() {
        let critical = pod("critical", "8", false, 2_000_000_000);
        let other = pod("other", "8", false, 2_000_000_000);
        let error = victims(&critical, [other].iter(), &missing(500), &BTreeSet::new());
        let error = error.unwrap_err();
        assert!(
            error.to_string().ends_with("[(res: cpu, q: 500), ]"),
            "{error}"
        );
    }
}
