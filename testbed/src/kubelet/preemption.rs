//! The room that a kubelet makes for a critical pod: which pods end for it.

use topology::request::Qos;

use super::predicates::Obstacle;
use super::workload::Workload;

/// Reason of the status of a pod that ends for another.
pub const REASON: &str = "Preempting";
/// Message of that status.
pub const MESSAGE: &str = "Preempted in order to admit critical pod";

/// How much of a resource is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Need {
    resource: String,
    amount: i64,
}

/// Not even all pods together hold what is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {0}"
)]
pub struct Impossible(String);

/// The pods that end for a critical one, in their order, by UID: few, and of the lowest class that will do.
///
/// Among pods that free the same and ask for the same, the kubelet's choice is unspecified; here the later one ends.
pub fn victims<'a>(
    preemptor: &Workload,
    active: impl Iterator<Item = &'a Workload>,
    obstacles: &[Obstacle],
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
    for pod in active.filter(|pod| yields(preemptor, pod)) {
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
    let third = nearest(guaranteed, without(&needs, lower))?;
    let second = nearest(
        burstable,
        without(&needs, best_effort.iter().chain(third.iter())),
    )?;
    let first = nearest(
        best_effort,
        without(&needs, second.iter().chain(third.iter())),
    )?;
    let ends = first.into_iter().chain(second).chain(third);
    Ok(ends.map(|pod| pod.uid.clone()).collect())
}

fn yields(preemptor: &Workload, pod: &Workload) -> bool {
    if preemptor.is_critical() && !pod.is_critical() {
        return true;
    }
    preemptor
        .priority()
        .zip(pod.priority())
        .is_some_and(|(ours, theirs)| ours > theirs)
}

/// What the kubelet takes for a pod's request here: overhead counts only with something to add it to.
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

/// Pods until nothing is missing: each time the one that leaves least missing, of equals the smaller.
fn nearest(mut pods: Vec<&Workload>, mut needs: Vec<Need>) -> Result<Vec<&Workload>, Impossible> {
    let mut chosen = Vec::new();
    while !needs.is_empty() {
        let mut best: Option<(f64, usize)> = None;
        for (index, pod) in pods.iter().enumerate() {
            let distance = distance(&needs, pod);
            let better = best.is_none_or(|(shortest, held)| {
                distance < shortest
                    || (distance.total_cmp(&shortest).is_eq() && !is_larger(pod, pods[held]))
            });
            if better {
                best = Some((distance, index));
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

fn distance(needs: &[Need], pod: &Workload) -> f64 {
    needs
        .iter()
        .map(|need| {
            let left = (need.amount - request(pod, &need.resource)).max(0);
            (left as f64 / need.amount as f64).powi(2)
        })
        .sum()
}

fn is_larger(one: &Workload, other: &Workload) -> bool {
    let size = |pod: &Workload| (request(pod, "memory"), request(pod, "cpu"));
    size(one) > size(other)
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
        let ends = |cpu| victims(&critical, pods.iter(), &missing(cpu)).unwrap();
        assert_eq!(ends(2000), ["large"]);
        assert_eq!(ends(1000), ["small"]);
        assert_eq!(ends(4000), ["large", "small"]);
        assert_eq!(ends(5000), ["guaranteed"]);
    }

    #[test]
    fn critical_pods_do_not_end_for_each_other() {
        let critical = pod("critical", "8", false, 2_000_000_000);
        let other = pod("other", "8", false, 2_000_000_000);
        let error = victims(&critical, [other].iter(), &missing(500)).unwrap_err();
        assert!(
            error.to_string().ends_with("[(res: cpu, q: 500), ]"),
            "{error}"
        );
    }
}
