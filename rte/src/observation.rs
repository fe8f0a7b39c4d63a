//! Combines the result of one scan of the node: zones, attributes, fingerprint (rte.md 5, 6, 7). Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::attributes as names;
use api::nrt::{AttributeInfo, Zone};
use nrt::fingerprint::{self, Method};
use nrt::placement;
use podresources::v1;

use crate::config::ResourceManagers;
use crate::kubelet_config::TopologyManager;
use crate::locality;
use crate::monitor::{self, Filter, Problem, zone_name};
use crate::sysinfo::Machine;

/// The only policy that puts each container on one NUMA node, so only with it is there a placement to publish.
const SINGLE_NUMA_NODE: &str = "single-numa-node";

/// Inputs of an observation besides the node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is left out.
    pub filter: Filter,
    /// Which pods the fingerprint covers; `None`: no fingerprint.
    pub fingerprint: Option<Method>,
    /// Settings of the kubelet that are published.
    pub topology_manager: TopologyManager,
}

/// The result of one scan.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The zones, with the placement in their attributes.
    pub zones: Vec<Zone>,
    /// Attributes of the object, in the order in which they are published.
    pub attributes: Vec<AttributeInfo>,
    /// The fingerprint, if enabled.
    pub fingerprint: Option<Fingerprinted>,
    /// Parts of the answers that do not fit the machine.
    pub problems: BTreeSet<Problem>,
    /// Resources without a NUMA node, which no zone can show: how many are allocatable, and how many are held.
    pub unzoned: BTreeMap<String, (i64, i64)>,
    /// Why the placement is missing, if it should be published.
    pub placement_problem: Option<String>,
}

/// A fingerprint and the pods that it was computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprinted {
    /// The published form.
    pub text: String,
    /// Namespaces and names of the pods, in the order of the kubelet's list.
    pub pods: Vec<(String, String)>,
}

/// Computes an observation from the kubelet's answers.
pub fn observe(
    settings: &Settings,
    machine: &Machine,
    allocatable: &v1::AllocatableResourcesResponse,
    mut pods: Vec<v1::PodResources>,
) -> Observation {
    let filter = &settings.filter;
    filter.remove_shared_cpus(&mut pods);
    let hidden = filter.remove_hidden_pods(&mut pods);
    let accounted: Vec<&v1::PodResources> = if filter.exact {
        pods.iter().chain(&hidden).collect()
    } else {
        pods.iter().filter(|pod| filter.is_watched(pod)).collect()
    };
    let (mut zones, problems) = monitor::zones(machine, allocatable, &accounted, filter);
    let unzoned = monitor::unzoned(allocatable, &accounted);
    if filter.exact {
        pods.retain(|pod| filter.is_watched(pod));
    }
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
    let TopologyManager {
        policy,
        scope,
        max_numa_nodes,
        managers,
    } = &settings.topology_manager;
    attributes.push(attribute(names::TOPOLOGY_MANAGER_SCOPE, scope));
    attributes.push(attribute(names::TOPOLOGY_MANAGER_POLICY, policy));
    if let Some(most) = max_numa_nodes {
        let name = names::TOPOLOGY_MANAGER_MAX_NUMA_NODES;
        attributes.push(attribute(name, &most.to_string()));
    }
    if let Some(managers) = managers {
        attributes.extend(manager_attributes(managers, machine.threads_per_core));
    }
    Observation {
        zones,
        attributes,
        fingerprint,
        problems,
        unzoned,
        placement_problem,
    }
}

fn attribute(name: &str, value: &str) -> AttributeInfo {
    AttributeInfo {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

/// Returns the attributes of the CPU and memory managers. Returns none if containers get whole cores and the core size is unknown, because
/// a scheduler with only part of the information would decide wrongly.
fn manager_attributes(managers: &ResourceManagers, threads: Option<u16>) -> Vec<AttributeInfo> {
    let mut attributes = vec![
        attribute(names::CPU_MANAGER_POLICY, &managers.cpu),
        attribute(names::MEMORY_MANAGER_POLICY, &managers.memory),
    ];
    if managers.full_cores {
        let Some(threads) = threads else {
            return Vec::new();
        };
        let name = names::CPU_MANAGER_FULL_PCPUS_ONLY;
        attributes.push(attribute(name, &threads.to_string()));
    }
    attributes
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
    use crate::monitor::tests::{device, machine, on, pod, shown as shown_zones};

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

    /// The example of rte.md 6.3 for the methods.
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
                max_numa_nodes: None,
                managers: None,
            },
        }
    }

    fn observe_pods(settings: &Settings, pods: Vec<v1::PodResources>) -> Observation {
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
        let observation = observe_pods(&settings(Some(method), "restricted"), pods());
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
        let observation = observe_pods(
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
        let observation = observe_pods(&settings(Some(Method::All), SINGLE_NUMA_NODE), pods);
        assert_eq!(observation.attributes.len(), 4);
        assert_eq!(
            observation.placement_problem.as_deref(),
            Some("cannot find the NUMA node for CPU 99")
        );
    }

    /// Flaws 24 and 25: resources of excluded pods, or of pods in other namespaces, are not available to other pods.
    #[rstest]
    #[case::original(false, "", &["node-0: cpu 4/4/4"], 0)]
    #[case::exact(true, "", &["node-0: cpu 4/4/2"], 0)]
    #[case::original_of_a_namespace(false, "other", &["node-0: cpu 4/4/4"], 1)]
    #[case::exact_of_a_namespace(true, "other", &["node-0: cpu 4/4/1"], 0)]
    #[case::exact_of_its_namespace(true, "default", &["node-0: cpu 4/4/1"], 1)]
    fn hidden_pods_are_accounted_for_when_exactness_is_asked_for(
        #[case] exact: bool,
        #[case] namespace: &str,
        #[case] expected: &[&str],
        #[case] in_fingerprint: usize,
    ) {
        let mut settings = settings(Some(Method::WithExclusiveResources), "restricted");
        settings.filter.exact = exact;
        namespace.clone_into(&mut settings.filter.namespace);
        let errors = settings.filter.hide_pods(&[crate::config::PodPattern {
            namespace_pattern: "*".to_owned(),
            name_pattern: "hidden".to_owned(),
        }]);
        assert!(errors.is_empty());
        let allocatable = v1::AllocatableResourcesResponse {
            cpu_ids: vec![0, 1, 2, 3],
            ..Default::default()
        };
        let mut pods = vec![pod("hidden", container("c", &[0, 1], vec![]))];
        if !namespace.is_empty() {
            pods.push(pod("seen", container("c", &[2], vec![])));
        }
        let observation = observe(&settings, &machine(), &allocatable, pods);
        assert_eq!(&shown_zones(&observation.zones)[..1], expected);
        assert_eq!(observation.fingerprint.unwrap().pods.len(), in_fingerprint);
    }

    /// Flaw 29: upstream does not publish this number.
    #[test]
    fn number_of_numa_nodes_is_published_when_it_is_known() {
        let mut settings = settings(None, "restricted");
        settings.topology_manager.max_numa_nodes = Some(16);
        let observation = observe_pods(&settings, pods());
        assert_eq!(
            shown(&observation.attributes)[2],
            ("topologyManagerMaxNUMANodes", "16")
        );
    }

    #[rstest]
    #[case::single_cpus(false, None, &["cpuManagerPolicy=static", "memoryManagerPolicy=Static"])]
    #[case::whole_cores(true, Some(2), &["cpuManagerPolicy=static", "memoryManagerPolicy=Static", "cpuManagerFullPCPUsOnly=2"])]
    #[case::cores_of_unknown_size(true, None, &[])]
    fn managers_are_published_as_far_as_all_is_known(
        #[case] full_cores: bool,
        #[case] threads_per_core: Option<u16>,
        #[case] expected: &[&str],
    ) {
        let mut settings = settings(None, "restricted");
        settings.topology_manager.managers = Some(ResourceManagers {
            cpu: "static".to_owned(),
            full_cores,
            memory: "Static".to_owned(),
        });
        let machine = Machine {
            threads_per_core,
            ..machine()
        };
        let none = v1::AllocatableResourcesResponse::default();
        let observation = observe(&settings, &machine, &none, pods());
        let attributes = observation.attributes[2..].iter();
        let shown: Vec<String> = attributes
            .map(|attribute| format!("{}={}", attribute.name, attribute.value))
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn without_fingerprint_only_the_kubelets_settings_are_published() {
        let observation = observe_pods(&settings(None, SINGLE_NUMA_NODE), pods());
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
