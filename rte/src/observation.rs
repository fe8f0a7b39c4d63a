//! Everything that one look at the node says: zones, attributes, fingerprint (rte.md 5 to 7). Pure.

use std::collections::BTreeSet;

use api::attributes as names;
use api::nrt::{AttributeInfo, Zone};
use nrt::fingerprint::{self, Method};
use nrt::placement;
use podresources::v1;

use crate::kubelet_config::TopologyManager;
use crate::locality;
use crate::monitor::{self, Filter, Problem, zone_name};
use crate::sysinfo::Machine;

/// The policy with which the kubelet puts each container on one NUMA node: only then is there a placement to tell.
const SINGLE_NUMA_NODE: &str = "single-numa-node";

/// What an observation depends on, beside the node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is left out.
    pub filter: Filter,
    /// Which pods the fingerprint covers; none: no fingerprint.
    pub fingerprint: Option<Method>,
    /// What is published about the kubelet.
    pub topology_manager: TopologyManager,
}

/// One look at the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The zones, with the placement in their attributes.
    pub zones: Vec<Zone>,
    /// Attributes of the object, in the order in which they are published.
    pub attributes: Vec<AttributeInfo>,
    /// The fingerprint, if there is to be one.
    pub fingerprint: Option<Fingerprinted>,
    /// What does not fit.
    pub problems: BTreeSet<Problem>,
    /// Why there is no placement although there should be.
    pub placement_problem: Option<String>,
}

/// A fingerprint and what it was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprinted {
    /// The fingerprint as published.
    pub text: String,
    /// Namespaces and names of the pods, in the order in which the kubelet listed them.
    pub pods: Vec<(String, String)>,
}

/// Puts together what the kubelet answered.
pub fn observe(
    settings: &Settings,
    machine: &Machine,
    allocatable: &v1::AllocatableResourcesResponse,
    mut pods: Vec<v1::PodResources>,
) -> Observation {
    settings.filter.apply(&mut pods);
    let (mut zones, problems) = monitor::zones(machine, allocatable, &pods, &settings.filter);
    let mut attributes = Vec::new();
    let mut placement_problem = None;
    let fingerprint = settings.fingerprint.map(|method| {
        let fingerprint = compute(method, &pods);
        attributes.push(attribute(names::POD_FINGERPRINT, &fingerprint.text));
        attributes.push(attribute(names::POD_FINGERPRINT_METHOD, method.as_str()));
        if settings.topology_manager.policy == SINGLE_NUMA_NODE {
            match place(machine, &pods) {
                Ok(encoded) => {
                    attributes.push(attribute(names::NUMA_PLACEMENT_METADATA, &encoded.metadata));
                    add_vectors(&mut zones, &encoded);
                }
                Err(problem) => placement_problem = Some(problem),
            }
        }
        fingerprint
    });
    let TopologyManager { policy, scope } = &settings.topology_manager;
    attributes.push(attribute(names::TOPOLOGY_MANAGER_SCOPE, scope));
    attributes.push(attribute(names::TOPOLOGY_MANAGER_POLICY, policy));
    Observation {
        zones,
        attributes,
        fingerprint,
        problems,
        placement_problem,
    }
}

fn attribute(name: &str, value: &str) -> AttributeInfo {
    AttributeInfo {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

fn compute(method: Method, pods: &[v1::PodResources]) -> Fingerprinted {
    let covered: Vec<_> = pods
        .iter()
        .filter(|pod| method == Method::All || locality::is_exclusive(pod))
        .map(|pod| (pod.namespace.clone(), pod.name.clone()))
        .collect();
    let names = covered
        .iter()
        .map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    Fingerprinted {
        text: fingerprint::compute(names).to_string(),
        pods: covered,
    }
}

fn place(machine: &Machine, pods: &[v1::PodResources]) -> Result<placement::Encoded, String> {
    let containers = locality::placed(machine, pods).map_err(|error| error.to_string())?;
    placement::encode(containers, machine.nodes.len()).map_err(|error| error.to_string())
}

fn add_vectors(zones: &mut [Zone], encoded: &placement::Encoded) {
    for (&node, vector) in &encoded.vectors {
        let zone = zones
            .iter_mut()
            .find(|zone| u32::try_from(node).is_ok_and(|id| zone.name == zone_name(id)));
        if let Some(zone) = zone {
            zone.attributes
                .push(attribute(names::NUMA_PLACEMENT_VECTOR, vector));
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::monitor::tests::{device, machine, on, pod};

    fn container(
        name: &str,
        cpus: &[i64],
        devices: Vec<v1::ContainerDevices>,
    ) -> v1::ContainerResources {
        v1::ContainerResources {
            name: name.to_owned(),
            cpu_ids: cpus.to_vec(),
            devices,
            ..Default::default()
        }
    }

    fn in_namespace(namespace: &str, mut pod: v1::PodResources) -> v1::PodResources {
        namespace.clone_into(&mut pod.namespace);
        pod
    }

    /// The method example of rte.md 6.3.
    fn pods() -> Vec<v1::PodResources> {
        vec![
            pod("pod-1", container("c", &[2, 3], vec![])),
            in_namespace(
                "kube-system",
                pod(
                    "coredns-0",
                    container("c", &[], vec![device("d", on(&[0]))]),
                ),
            ),
            in_namespace(
                "monitoring",
                pod("node-exporter", container("c", &[], vec![])),
            ),
            in_namespace(
                "ns",
                pod("dev-nonuma", container("c", &[], vec![device("e", None)])),
            ),
        ]
    }

    fn settings(fingerprint: Option<Method>, policy: &str) -> Settings {
        Settings {
            filter: Filter::default(),
            fingerprint,
            topology_manager: TopologyManager {
                policy: policy.to_owned(),
                scope: "container".to_owned(),
            },
        }
    }

    fn look(settings: &Settings, pods: Vec<v1::PodResources>) -> Observation {
        observe(
            settings,
            &machine(),
            &v1::AllocatableResourcesResponse::default(),
            pods,
        )
    }

    fn shown(attributes: &[AttributeInfo]) -> Vec<(&str, &str)> {
        attributes
            .iter()
            .map(|a| (a.name.as_str(), a.value.as_str()))
            .collect()
    }

    #[rstest]
    #[case::all(Method::All, "pfp0v001cd567b7c7abc032a", 4)]
    #[case::exclusive(Method::WithExclusiveResources, "pfp0v001eab251937a99874d", 2)]
    fn fingerprint_covers_the_pods_of_its_method(
        #[case] method: Method,
        #[case] expected: &str,
        #[case] covered: usize,
    ) {
        let observation = look(&settings(Some(method), "restricted"), pods());
        let fingerprint = observation.fingerprint.unwrap();
        assert_eq!(
            (fingerprint.text.as_str(), fingerprint.pods.len()),
            (expected, covered)
        );
        assert_eq!(
            shown(&observation.attributes),
            [
                ("nodeTopologyPodsFingerprint", expected),
                ("nodeTopologyPodsFingerprintMethod", method.as_str()),
                ("topologyManagerScope", "container"),
                ("topologyManagerPolicy", "restricted"),
            ]
        );
    }

    #[test]
    fn placement_is_told_under_single_numa_node() {
        let pods = vec![
            pod("pod-1", container("c0", &[0], vec![])),
            pod("pod-2", container("c0", &[4], vec![])),
        ];
        let observation = look(
            &settings(Some(Method::WithExclusiveResources), SINGLE_NUMA_NODE),
            pods,
        );
        let shown_attributes = shown(&observation.attributes);
        let metadata = (
            "topology.node.k8s.io/numaplacement-metadata",
            "npv0v001::ve=leb89::cc=2::nn=2::bn=0",
        );
        assert_eq!(shown_attributes[2], metadata);
        assert!(observation.zones[0].attributes.is_empty());
        assert_eq!(
            shown(&observation.zones[1].attributes),
            [("topology.node.k8s.io/numaplacement-vector", "#")]
        );
    }

    #[test]
    fn placement_that_cannot_be_told_is_left_out_and_explained() {
        let pods = vec![pod("pod-1", container("c0", &[99], vec![]))];
        let observation = look(&settings(Some(Method::All), SINGLE_NUMA_NODE), pods);
        assert_eq!(observation.attributes.len(), 4);
        assert_eq!(
            observation.placement_problem.as_deref(),
            Some("cannot find the NUMA node for CPU 99")
        );
    }

    #[test]
    fn without_fingerprint_only_the_kubelets_settings_are_published() {
        let observation = look(&settings(None, SINGLE_NUMA_NODE), pods());
        assert_eq!(observation.fingerprint, None);
        assert_eq!(
            shown(&observation.attributes),
            [
                ("topologyManagerScope", "container"),
                ("topologyManagerPolicy", SINGLE_NUMA_NODE)
            ]
        );
    }
}
