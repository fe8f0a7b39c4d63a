//! Finds pods that the kubelet already lists although it may not have given them all their resources yet. Pure.
//!
//! A kubelet lists a pod as soon as it begins to admit it. It then assigns devices, CPUs and memory, one container after the other. A
//! fingerprint that includes such a pod claims that the pod is accounted for although only a part or nothing of it is. A scheduler that
//! believes the fingerprint gives the rest to another pod. So a new pod, or one whose resources changed, counts as arrived only when it
//! holds what its spec requests. If the spec is unknown, the pod counts as arrived after a time without changes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use podresources::v1;
use tokio::time::Instant;

use super::demand::{Demands, Key, Offer};

/// How long a pod with an unknown spec must hold the same resources. The kubelet assigns them within milliseconds.
pub(crate) const QUIET_TIME: Duration = Duration::from_millis(60);
/// Maximum wait for the resources that a spec requests. Device plugins may be slow, but the wait must end even if the kubelet assigns less
/// than expected.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(2);

/// The pods of the last list.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(BTreeMap<Key, Arrival>);

#[derive(Debug)]
struct Arrival {
    /// Since when the pod holds the same resources.
    since: Instant,
    /// Hash of the resources that it holds.
    holdings: u64,
    /// Uid of the pod, if known; distinguishes pods with the same name.
    uid: Option<String>,
}

impl Arrivals {
    /// Records an answer of the kubelet. Returns one of the pods that have not arrived, among those for which `covers` is true.
    pub(crate) fn record(
        &mut self,
        pods: &[v1::PodResources],
        allocatable: &v1::AllocatableResourcesResponse,
        demands: &Demands,
        covers: impl Fn(&v1::PodResources) -> bool,
        now: Instant,
    ) -> Option<Key> {
        let offer = Offer::of(allocatable);
        let mut before = std::mem::take(&mut self.0);
        let mut missing = None;
        demands.with(|demands| {
            for pod in pods {
                let key = (pod.namespace.clone(), pod.name.clone());
                let demand = demands.get(&key);
                let fresh = Arrival {
                    since: now,
                    holdings: holdings(pod),
                    uid: demand.map(|demand| demand.uid.clone()),
                };
                let arrival = match before.remove(&key) {
                    Some(old) => old.or(fresh),
                    None => fresh,
                };
                let age = now - arrival.since;
                let has_arrived = match demand {
                    Some(demand) => demand.is_met(pod, &offer) || age >= MAX_WAIT,
                    None => age >= QUIET_TIME,
                };
                if !has_arrived && missing.is_none() && covers(pod) {
                    missing = Some(key.clone());
                }
                self.0.insert(key, arrival);
            }
        });
        missing
    }
}

impl Arrival {
    /// Returns this arrival if it is still the same pod with the same resources, otherwise the fresh one.
    fn or(mut self, fresh: Self) -> Self {
        let is_other = matches!((&self.uid, &fresh.uid), (Some(old), Some(new)) if old != new);
        if is_other || self.holdings != fresh.holdings {
            return Self {
                uid: fresh.uid.or(self.uid),
                ..fresh
            };
        }
        if fresh.uid.is_some() {
            self.uid = fresh.uid;
        }
        self
    }
}

/// Hashes the resources that a pod holds.
fn holdings(pod: &v1::PodResources) -> u64 {
    let mut hasher = DefaultHasher::new();
    let nodes = |topology: &Option<v1::TopologyInfo>| -> Vec<i64> {
        let nodes = topology.iter().flat_map(|topology| &topology.nodes);
        nodes.map(|node| node.id).collect()
    };
    for container in &pod.containers {
        container.name.hash(&mut hasher);
        container.cpu_ids.hash(&mut hasher);
        for block in &container.memory {
            (&block.memory_type, block.size, nodes(&block.topology)).hash(&mut hasher);
        }
        for item in &container.devices {
            (&item.resource_name, &item.device_ids, nodes(&item.topology)).hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubelet::demand::WatchedPod;
    use crate::testing::pod;

    /// A kubelet with CPUs to assign, and a clock.
    struct Scene {
        arrivals: Arrivals,
        demands: Demands,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self {
                arrivals: Arrivals::default(),
                demands: Demands::default(),
                now: Instant::now(),
            }
        }

        /// Adds pod `p` to the API server, requesting this many CPUs.
        fn ask(&self, uid: &str, cpus: &str) {
            let object = json!({
                "metadata": {"namespace": "default", "name": "p", "uid": uid},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpus}}}]},
                "status": {"qosClass": "Guaranteed"},
            });
            let seen: WatchedPod = serde_json::from_value(object).unwrap();
            self.demands
                .with(|demands| demands.insert(seen.key(), seen.demand()));
        }

        /// Lists `p` with these CPUs after this many milliseconds. Returns whether it has arrived.
        fn after(&mut self, milliseconds: u64, cpus: &[i64]) -> bool {
            self.now += Duration::from_millis(milliseconds);
            let container = v1::ContainerResources {
                name: "c".to_owned(),
                cpu_ids: cpus.to_vec(),
                ..Default::default()
            };
            self.list(&[pod("p", container)], |_| true)
        }

        fn list(
            &mut self,
            pods: &[v1::PodResources],
            covers: impl Fn(&v1::PodResources) -> bool,
        ) -> bool {
            let allocatable = v1::AllocatableResourcesResponse {
                cpu_ids: vec![0, 1, 2, 3],
                ..Default::default()
            };
            self.arrivals
                .record(pods, &allocatable, &self.demands, covers, self.now)
                .is_none()
        }
    }

    #[test]
    fn pod_arrives_with_what_it_asks_for() {
        let mut scene = Scene::new();
        scene.ask("u", "2");
        assert!(!scene.after(0, &[]));
        assert!(!scene.after(1000, &[]), "however long that takes");
        assert!(scene.after(1, &[2, 3]));
    }

    #[test]
    fn pod_that_asks_for_nothing_arrives_at_once() {
        let mut scene = Scene::new();
        scene.ask("u", "500m");
        assert!(scene.after(0, &[]));
    }

    #[test]
    fn pod_that_never_gets_it_is_not_waited_for_for_ever() {
        let mut scene = Scene::new();
        scene.ask("u", "2");
        assert!(!scene.after(0, &[]));
        assert!(scene.after(2000, &[]));
        assert!(scene.after(1, &[]), "nor once more");
    }

    #[test]
    fn pod_that_nobody_knows_arrives_when_nothing_changes() {
        let mut scene = Scene::new();
        assert!(!scene.after(0, &[]));
        assert!(!scene.after(59, &[2]), "it has just changed");
        assert!(!scene.after(59, &[2]));
        assert!(scene.after(1, &[2]));
        assert!(!scene.after(1000, &[2, 3]), "a change much later");
        assert!(scene.after(60, &[2, 3]));
    }

    #[test]
    fn pod_that_came_anew_under_the_same_name_has_to_arrive_anew() {
        let mut scene = Scene::new();
        scene.ask("u", "500m");
        assert!(scene.after(0, &[]));
        scene.ask("v", "2");
        assert!(!scene.after(5000, &[]));
        assert!(scene.after(1, &[2, 3]));
        assert!(scene.list(&[], |_| true));
        scene.ask("w", "1");
        assert!(!scene.after(5000, &[]));
    }

    #[test]
    fn pod_that_becomes_known_later_keeps_its_time() {
        let mut scene = Scene::new();
        assert!(!scene.after(0, &[]));
        scene.ask("u", "2");
        assert!(!scene.after(1000, &[]));
        assert!(scene.after(1000, &[]));
    }

    #[test]
    fn only_pods_of_the_fingerprint_are_waited_for() {
        let mut scene = Scene::new();
        let nothing = pod("p", v1::ContainerResources::default());
        assert!(scene.list(std::slice::from_ref(&nothing), |_| false));
        assert!(!scene.list(&[nothing], |_| true));
    }
}
