//! The resources that the node's pods request and get exclusively: exclusive CPUs, pinned memory, devices (kubelet-node.md 6.2, 7.2, 8.2). The API
//! server provides the specs; for a pod without a known spec nothing is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use parking_lot::Mutex;
use podresources::v1;
use serde::Deserialize;
use serde::de::IgnoredAny;
use topology::resource::ResourceName;

/// Namespace and name of a pod.
pub(crate) type Key = (String, String);

/// The demands of the node's pods. Clones share the data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demands(Arc<Mutex<BTreeMap<Key, Demand>>>);

impl Demands {
    /// Reads or changes all demands under one lock.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<Key, Demand>) -> T) -> T {
        act(&mut self.0.lock())
    }
}

/// The exclusive resources that one pod requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Uid of the pod; distinguishes pods with the same name.
    pub(crate) uid: String,
    /// Containers that request exclusive resources.
    containers: Vec<Container>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Container {
    name: String,
    cpus: bool,
    memory: bool,
    devices: Vec<String>,
}

/// The kinds of resources that a kubelet assigns exclusively. They depend on its policies and device plugins.
#[derive(Debug, Default)]
pub(crate) struct Offer<'a> {
    cpus: bool,
    memory: bool,
    devices: BTreeSet<&'a str>,
}

impl<'a> Offer<'a> {
    /// Derives the offer from the kubelet's answer: without a static policy the kubelet reports nothing as allocatable.
    pub(crate) fn of(allocatable: &'a v1::AllocatableResourcesResponse) -> Self {
        let names = allocatable.devices.iter();
        Self {
            cpus: !allocatable.cpu_ids.is_empty(),
            memory: !allocatable.memory.is_empty(),
            devices: names.map(|item| item.resource_name.as_str()).collect(),
        }
    }
}

impl Demand {
    /// Returns whether each container holds some of every kind that it requests and this kubelet offers. Counting is not needed, because
    /// the kubelet assigns all resources of one kind to a container at once.
    pub(crate) fn is_met(&self, pod: &v1::PodResources, offer: &Offer<'_>) -> bool {
        self.containers.iter().all(|requested| {
            let listed = pod.containers.iter().find(|one| one.name == requested.name);
            let Some(assigned) = listed else { return false };
            let has = |device: &String| {
                !offer.devices.contains(device.as_str())
                    || assigned
                        .devices
                        .iter()
                        .any(|item| item.resource_name == *device)
            };
            (!requested.cpus || !offer.cpus || !assigned.cpu_ids.is_empty())
                && (!requested.memory || !offer.memory || !assigned.memory.is_empty())
                && requested.devices.iter().all(has)
        })
    }
}

/// The parts of a pod that determine its demand. Metadata-only watches provide just the name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchedPod {
    metadata: WatchedMetadata,
    spec: WatchedSpec,
    status: WatchedStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WatchedMetadata {
    namespace: String,
    name: String,
    uid: String,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WatchedSpec {
    containers: Vec<WatchedContainer>,
    init_containers: Vec<WatchedContainer>,
    resources: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WatchedContainer {
    name: String,
    restart_policy: Option<String>,
    resources: WatchedResources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WatchedResources {
    requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WatchedStatus {
    phase: String,
    qos_class: String,
}

impl WatchedPod {
    /// Returns namespace and name.
    pub(crate) fn key(&self) -> Key {
        (self.metadata.namespace.clone(), self.metadata.name.clone())
    }

    /// Returns the demand. It is empty for a finished or terminating pod, whose remaining resources do not matter.
    pub(crate) fn demand(self) -> Demand {
        let is_finished = matches!(self.status.phase.as_str(), "Succeeded" | "Failed");
        if is_finished || self.metadata.deletion_timestamp.is_some() {
            return Demand {
                uid: self.metadata.uid,
                containers: Vec::new(),
            };
        }
        // resources of the whole pod are not exclusive to any of its containers
        let is_pinned = self.status.qos_class == "Guaranteed" && self.spec.resources.is_none();
        // other init containers have ended before the pod runs, and are not listed
        let mut containers = self.spec.init_containers;
        containers.retain(|container| container.restart_policy.as_deref() == Some("Always"));
        containers.extend(self.spec.containers);
        let containers = containers
            .into_iter()
            .filter_map(|container| container.exclusive_requests(is_pinned))
            .collect();
        Demand {
            uid: self.metadata.uid,
            containers,
        }
    }
}

impl WatchedContainer {
    fn exclusive_requests(self, is_pinned: bool) -> Option<Container> {
        let mut requested = Container {
            name: self.name,
            cpus: false,
            memory: false,
            devices: Vec::new(),
        };
        for (resource, quantity) in self.resources.requests {
            let milli = api::quantity::milli(&quantity).unwrap_or(0);
            if milli <= 0 {
                continue;
            }
            let name = ResourceName::from(resource.as_str());
            if name.is_cpu() {
                requested.cpus |= is_pinned && milli % 1000 == 0;
            } else if name.is_memory_like() {
                requested.memory |= is_pinned;
            } else if resource.contains('/') {
                requested.devices.push(resource);
            }
        }
        (requested.cpus || requested.memory || !requested.devices.is_empty()).then_some(requested)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{device, memory, on, pod};

    fn seen(containers: &Value, further: &Value) -> Demand {
        let mut object = json!({
            "metadata": {"namespace": "default", "name": "p", "uid": "u"},
            "spec": {"containers": containers},
            "status": {"qosClass": "Guaranteed", "phase": "Pending"},
        });
        json_patch::merge(&mut object, further);
        serde_json::from_value::<WatchedPod>(object)
            .unwrap()
            .demand()
    }

    fn requests(requests: &Value) -> Value {
        json!([{"name": "c", "resources": {"requests": requests}}])
    }

    fn offer() -> v1::AllocatableResourcesResponse {
        v1::AllocatableResourcesResponse {
            cpu_ids: vec![1],
            memory: vec![memory("memory", 1, &[0])],
            devices: vec![device("d", on(&[0]))],
        }
    }

    fn holding(
        cpus: &[i64],
        memory: Vec<v1::ContainerMemory>,
        devices: Vec<v1::ContainerDevices>,
    ) -> v1::PodResources {
        let container = v1::ContainerResources {
            name: "c".to_owned(),
            cpu_ids: cpus.to_vec(),
            memory,
            devices,
            ..Default::default()
        };
        pod("p", container)
    }

    #[rstest]
    #[case::whole_cpus(json!({"cpu": "2"}), json!({}), false)]
    #[case::part_of_a_cpu(json!({"cpu": "1500m"}), json!({}), true)]
    #[case::memory(json!({"memory": "1Gi"}), json!({}), false)]
    #[case::hugepages(json!({"hugepages-2Mi": "4Mi"}), json!({}), false)]
    #[case::burstable(json!({"cpu": "2", "memory": "1Gi"}), json!({"status": {"qosClass": "Burstable"}}), true)]
    #[case::device_of_a_burstable_pod(json!({"ex.com/dev": "1"}), json!({"status": {"qosClass": "Burstable"}}), false)]
    #[case::device_that_nobody_offers(json!({"ex.com/other": "1"}), json!({}), true)]
    #[case::no_device(json!({"ex.com/dev": "0"}), json!({}), true)]
    #[case::of_the_whole_pod(json!({"cpu": "2"}), json!({"spec": {"resources": {"limits": {"cpu": "2"}}}}), true)]
    #[case::pod_that_is_over(json!({"cpu": "2"}), json!({"status": {"phase": "Succeeded"}}), true)]
    #[case::pod_that_goes(json!({"cpu": "2"}), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true)]
    fn pod_that_holds_nothing_has_what_it_asks_for_or_not(
        #[case] asks: Value,
        #[case] further: Value,
        #[case] met: bool,
    ) {
        let demand = seen(&requests(&asks), &further);
        let (offer, nothing) = (offer(), holding(&[], vec![], vec![]));
        assert_eq!(demand.is_met(&nothing, &Offer::of(&offer)), met);
        assert_eq!(demand.uid, "u");
    }

    #[test]
    fn pod_has_what_it_asks_for_when_it_has_all_kinds() {
        let asks = json!({"cpu": "2", "memory": "1Gi", "ex.com/dev": "1"});
        let demand = seen(&requests(&asks), &json!({}));
        let block = || vec![memory("memory", 1, &[0])];
        let item = || vec![device("d", on(&[0]))];
        let offer = offer();
        for (held, met) in [
            (holding(&[2, 3], block(), item()), true),
            (holding(&[], block(), item()), false),
            (holding(&[2, 3], vec![], item()), false),
            (holding(&[2, 3], block(), vec![]), false),
        ] {
            assert_eq!(demand.is_met(&held, &Offer::of(&offer)), met, "{held:?}");
        }
    }

    #[test]
    fn nothing_is_expected_of_a_kubelet_without_static_policies() {
        let asks = json!({"cpu": "2", "memory": "1Gi", "ex.com/dev": "1"});
        let demand = seen(&requests(&asks), &json!({}));
        assert!(demand.is_met(&holding(&[], vec![], vec![]), &Offer::default()));
    }

    #[test]
    fn each_container_that_stays_has_to_have_its_part() {
        let cpu = json!({"requests": {"cpu": "1"}});
        let containers = json!([{"name": "c", "resources": cpu}, {"name": "d", "resources": cpu}]);
        let demand = seen(&containers, &json!({}));
        let offer = offer();
        let mut held = holding(&[2], vec![], vec![]);
        assert!(
            !demand.is_met(&held, &Offer::of(&offer)),
            "nothing is listed of d"
        );
        let mut other = held.containers[0].clone();
        other.name = "d".to_owned();
        held.containers.push(other);
        assert!(demand.is_met(&held, &Offer::of(&offer)));

        let init = json!({"spec": {"initContainers": [{"name": "i", "resources": cpu}]}});
        assert!(seen(&containers, &init).is_met(&held, &Offer::of(&offer)));
        let sidecar = json!({"spec": {"initContainers": [{"name": "i", "restartPolicy": "Always", "resources": cpu}]}});
        assert!(!seen(&containers, &sidecar).is_met(&held, &Offer::of(&offer)));
    }
}
