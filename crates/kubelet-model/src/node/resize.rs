//! Changes of the resources of a pod that runs (kubelet-node.md 12.4).

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::Pod;
use topology::request::Qos;

use super::Node;
use crate::workload::{self, Amounts, ContainerKind, ContainerRequest, Workload};

/// What a kubelet says of the resources that a pod asks for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The pod has them.
    Allocated,
    /// This node will never give them; the message says why.
    Infeasible(String),
    /// There is no room for them now; the message says what is short. [`Node::retry_resizes`] tries again.
    Deferred(String),
}

impl Node {
    /// Gives an active pod the resources that its specification asks for, if that is possible; `None` for a pod that is not active. A
    /// critical pod may end others, as in [`Node::admit`].
    pub fn resize(&mut self, pod: &Pod) -> Result<Option<Resize>, workload::Error> {
        let wanted = Workload::new(pod)?;
        if !self.active.contains_key(&wanted.uid) {
            return Ok(None);
        }
        let place = self
            .deferred
            .iter()
            .position(|other| other.uid == wanted.uid);
        let outcome = self.decide(&wanted);
        match (&outcome, place) {
            // It has waited since it was first deferred, whatever it asks for now.
            (Resize::Deferred(_), Some(place)) => self.deferred[place] = wanted,
            (Resize::Deferred(_), None) => self.deferred.push(wanted),
            (_, Some(place)) => drop(self.deferred.remove(place)),
            (_, None) => {}
        }
        Ok(Some(outcome))
    }

    /// Decides again about every deferred resize: first those that ask for no more than their pods have, then by priority, then those of
    /// Guaranteed pods, then those that have waited longest. Returns the UIDs of the pods, about which [`Node::resize`] says the outcome.
    pub fn retry_resizes(&mut self) -> Vec<String> {
        let mut waiting = std::mem::take(&mut self.deferred);
        waiting.sort_by_key(|wanted| {
            let held = self.active.get(&wanted.uid);
            let grows = held.is_some_and(|held| grows(held, wanted));
            (
                grows,
                Reverse(wanted.priority().unwrap_or_default()),
                wanted.qos != Qos::Guaranteed,
            )
        });
        let uids = waiting.iter().map(|wanted| wanted.uid.clone()).collect();
        for wanted in waiting {
            if matches!(self.decide(&wanted), Resize::Deferred(_)) {
                self.deferred.push(wanted);
            }
        }
        uids
    }

    fn decide(&mut self, wanted: &Workload) -> Resize {
        let Some(held) = self.active.get(&wanted.uid) else {
            return Resize::Allocated;
        };
        if let Some(why) = self.never(held, wanted) {
            return Resize::Infeasible(why);
        }
        // The managers have nothing to decide: what they gave to the pod stays as it is. The pod itself takes no room.
        let held = self.active.remove(&wanted.uid);
        match self.predicates(wanted) {
            Ok(()) => {
                self.active.insert(wanted.uid.clone(), wanted.clone());
                Resize::Allocated
            }
            Err((_, text)) => {
                self.active
                    .extend(held.map(|held| (wanted.uid.clone(), held)));
                Resize::Deferred(text)
            }
        }
    }

    /// Returns why this node never gives the resources.
    fn never(&self, held: &Workload, wanted: &Workload) -> Option<String> {
        if held.qos == Qos::Guaranteed {
            let managers = [
                ("cpu", self.state.cpu.is_static(), "CPU", "static"),
                ("memory", self.state.memory.is_static(), "Memory", "Static"),
            ];
            for (resource, is_static, manager, policy) in managers {
                if is_static && is_changed(held, wanted, resource) {
                    return Some(format!(
                        "Resize is infeasible for Guaranteed Pods alongside {manager} Manager policy \"{policy}\""
                    ));
                }
            }
        }
        let (request, allocatable) = (wanted.node_request(), self.allocatable());
        ["memory", "cpu"].into_iter().find_map(|resource| {
            let requested = request.get(resource).copied().unwrap_or_default();
            let capacity = allocatable.get(resource).copied().unwrap_or_default();
            (requested > capacity).then(|| {
                format!("Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}")
            })
        })
    }
}

/// Returns whether a pod now asks for more CPU or memory than it has.
fn grows(held: &Workload, wanted: &Workload) -> bool {
    let (had, asks) = (held.node_request(), wanted.node_request());
    ["cpu", "memory"]
        .into_iter()
        .any(|resource| asks.get(resource) > had.get(resource))
}

/// Returns whether a container that can be resized asks for another amount of a resource.
fn is_changed(held: &Workload, wanted: &Workload, resource: &str) -> bool {
    let request = |container: &ContainerRequest| {
        let amounts: &Amounts = &container.requests;
        amounts.get(resource).copied()
    };
    let pairs = held.containers.iter().zip(&wanted.containers);
    pairs
        .filter(|(held, _)| held.kind != ContainerKind::Init)
        .any(|(held, wanted)| request(held) != request(wanted))
}

#[cfg(test)]
mod tests {
    use cluster_spec::kubelet::{CpuPolicy, KubeletSettings, MemoryPolicy};
    use fixtures::machines::{GIB, Machine};
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// A pod of one container: requests in whole CPUs and GiB. Limits are the same in a Guaranteed pod, and missing in another.
    fn pod(uid: &str, guaranteed: bool, cpu: i64, memory: i64) -> Pod {
        let amounts = json!({"cpu": cpu.to_string(), "memory": format!("{memory}Gi")});
        let limits = if guaranteed { &amounts } else { &json!({}) };
        serde_json::from_value(json!({
            "metadata": {"uid": uid, "name": uid, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": limits}}]},
        }))
        .unwrap()
    }

    fn node(cpu: CpuPolicy, memory: MemoryPolicy) -> Node {
        let settings = KubeletSettings {
            cpu_manager_policy: cpu,
            memory_manager_policy: memory,
            ..KubeletSettings::unmanaged()
        };
        Node::without_devices(&Machine::default_profile(), &settings).unwrap()
    }

    fn plain() -> Node {
        node(CpuPolicy::None, MemoryPolicy::None)
    }

    fn resized(node: &mut Node, pod: &Pod) -> Resize {
        node.resize(pod).unwrap().unwrap()
    }

    fn whole_cpus(node: &Node) -> i64 {
        node.allocatable()["cpu"] / 1000
    }

    #[rstest]
    #[case::cpus_beside_a_static_cpu_manager(CpuPolicy::Static, MemoryPolicy::None, true, (3, 2), Some("CPU Manager policy \"static\""))]
    #[case::memory_beside_a_static_cpu_manager(CpuPolicy::Static, MemoryPolicy::None, true, (2, 3), None)]
    #[case::memory_beside_a_static_memory_manager(CpuPolicy::None, MemoryPolicy::Static, true, (2, 3), Some("Memory Manager policy \"Static\""))]
    #[case::cpus_beside_a_static_memory_manager(CpuPolicy::None, MemoryPolicy::Static, true, (3, 2), None)]
    #[case::a_burstable_pod(CpuPolicy::Static, MemoryPolicy::Static, false, (3, 3), None)]
    fn static_managers_refuse_what_they_have_given(
        #[case] cpu: CpuPolicy,
        #[case] memory: MemoryPolicy,
        #[case] guaranteed: bool,
        #[case] (cpus, gibibytes): (i64, i64),
        #[case] expected: Option<&str>,
    ) {
        let mut node = node(cpu, memory);
        node.admit(&pod("a", guaranteed, 2, 2)).unwrap().unwrap();
        let outcome = resized(&mut node, &pod("a", guaranteed, cpus, gibibytes));
        let expected = expected.map_or(Resize::Allocated, |manager| {
            let text = "Resize is infeasible for Guaranteed Pods alongside";
            Resize::Infeasible(format!("{text} {manager}"))
        });
        assert_eq!(outcome, expected);
    }

    #[test]
    fn more_than_the_node_has_is_infeasible_and_memory_is_told_first() {
        let mut node = plain();
        node.admit(&pod("a", true, 1, 1)).unwrap().unwrap();
        let (cpu, memory) = (node.allocatable()["cpu"], node.allocatable()["memory"]);
        let outcome = resized(&mut node, &pod("a", true, 1000, 1));
        let text =
            format!("Node didn't have enough capacity: cpu, requested: 1000000, capacity: {cpu}");
        assert_eq!(outcome, Resize::Infeasible(text));
        let outcome = resized(&mut node, &pod("a", true, 1000, 9000));
        let requested = 9000 * GIB;
        let text = format!(
            "Node didn't have enough capacity: memory, requested: {requested}, capacity: {memory}"
        );
        assert_eq!(outcome, Resize::Infeasible(text));
    }

    #[test]
    fn a_resize_without_room_waits_until_another_pod_leaves() {
        let mut node = plain();
        let all = whole_cpus(&node);
        node.admit(&pod("a", true, 1, 1)).unwrap().unwrap();
        node.admit(&pod("b", true, all - 1, 1)).unwrap().unwrap();
        let wanted = pod("a", true, 2, 1);
        let outcome = resized(&mut node, &wanted);
        let text = format!(
            "Node didn't have enough resource: cpu, requested: 2000, used: {}, capacity: {}",
            (all - 1) * 1000,
            node.allocatable()["cpu"]
        );
        assert_eq!(outcome, Resize::Deferred(text));
        node.stopped("b");
        assert_eq!(node.retry_resizes(), ["a"]);
        assert_eq!(resized(&mut node, &wanted), Resize::Allocated);
        assert_eq!(node.retry_resizes(), [""; 0]);
        // The room is taken.
        assert!(node.admit(&pod("c", true, all - 1, 1)).unwrap().is_err());
        node.admit(&pod("d", true, all - 2, 1)).unwrap().unwrap();
    }

    #[test]
    fn what_a_pod_gives_back_is_free() {
        let mut node = plain();
        let all = whole_cpus(&node);
        node.admit(&pod("a", true, all, 1)).unwrap().unwrap();
        assert!(node.admit(&pod("b", true, 1, 1)).unwrap().is_err());
        assert_eq!(
            resized(&mut node, &pod("a", true, all - 1, 1)),
            Resize::Allocated
        );
        node.admit(&pod("b", true, 1, 1)).unwrap().unwrap();
    }

    #[rstest]
    #[case::the_one_with_priority(json!({"spec": {"priority": 5}}), true)]
    #[case::the_one_that_waited_longer(json!({}), false)]
    fn room_goes_first_to(#[case] extra: serde_json::Value, #[case] to_the_second: bool) {
        let mut node = plain();
        let all = whole_cpus(&node);
        node.admit(&pod("a", true, 1, 1)).unwrap().unwrap();
        node.admit(&pod("b", true, 1, 1)).unwrap().unwrap();
        node.admit(&pod("c", true, all - 2, 1)).unwrap().unwrap();
        let first = pod("a", true, all - 1, 1);
        let mut second = pod("b", true, all - 1, 1);
        if let Some(priority) = extra["spec"]["priority"].as_i64() {
            second.spec.as_mut().unwrap().priority = i32::try_from(priority).ok();
        }
        for wanted in [&first, &second] {
            assert!(matches!(resized(&mut node, wanted), Resize::Deferred(_)));
        }
        node.stopped("c");
        node.retry_resizes();
        let has_room = |node: &mut Node, wanted: &Pod| resized(node, wanted) == Resize::Allocated;
        assert_eq!(has_room(&mut node, &second), to_the_second);
        assert_eq!(has_room(&mut node, &first), !to_the_second);
    }

    #[test]
    fn a_restarted_kubelet_keeps_what_it_has_allocated() {
        let mut node = plain();
        let all = whole_cpus(&node);
        node.admit(&pod("a", true, 1, 1)).unwrap().unwrap();
        resized(&mut node, &pod("a", true, all, 1));
        assert!(node.restart().unwrap().is_empty());
        assert!(node.admit(&pod("b", true, 1, 1)).unwrap().is_err());
    }

    #[test]
    fn a_pod_that_has_ended_is_not_resized() {
        let mut node = plain();
        assert_eq!(node.resize(&pod("a", true, 1, 1)).unwrap(), None);
    }
}
