use rstest::rstest;

use super::*;
use crate::testing::{device, machine, on, pod, shown as shown_zones};

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
        &settings(Some(Method::WithExclusiveResources), "single-numa-node"),
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
    let observation = observe_pods(&settings(Some(Method::All), "single-numa-node"), pods);
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
#[case::cores_of_unknown_size(&[], None, true, &[])]
#[case::single_cpus(&[], Some(2), true, &["cpuManagerPackedCores=2"])]
#[case::several_sockets_in_a_node(&[], Some(2), false, &[])]
#[case::option_for_reserved_cpus(&[("strict-cpu-reservation", "true")], Some(1), true, &["cpuManagerPackedCores=1"])]
#[case::option_that_spreads(&[("distribute-cpus-across-cores", "true")], Some(2), true, &[])]
#[case::option_that_is_off(&[("distribute-cpus-across-cores", "0")], Some(2), true, &["cpuManagerPackedCores=2"])]
#[case::whole_cores(&[("full-pcpus-only", "1")], Some(2), true, &["cpuManagerFullPCPUsOnly=2", "cpuManagerPackedCores=2"])]
#[case::whole_cores_by_cache(
    &[("full-pcpus-only", "true"), ("prefer-align-cpus-by-uncorecache", "true")], Some(2), true, &["cpuManagerFullPCPUsOnly=2"]
)]
fn what_is_known_of_cores_is_published(
    #[case] options: &[(&str, &str)],
    #[case] threads_per_core: Option<u16>,
    #[case] nodes_are_within_sockets: bool,
    #[case] expected: &[&str],
) {
    let machine = Machine {
        threads_per_core,
        nodes_are_within_sockets,
        ..machine()
    };
    let shown = managers_shown("static", options, &machine);
    let policies = ["cpuManagerPolicy=static", "memoryManagerPolicy=Static"];
    assert_eq!(shown, [&policies, expected].concat());
}

/// A scheduler with only part of the information would decide wrongly.
#[test]
fn nothing_of_managers_is_published_if_the_size_of_required_cores_is_unknown() {
    let shown = managers_shown("static", &[("full-pcpus-only", "true")], &machine());
    assert!(shown.is_empty(), "{shown:?}");
}

#[test]
fn cores_of_shared_cpus_are_not_published() {
    let machine = Machine {
        threads_per_core: Some(2),
        nodes_are_within_sockets: true,
        ..machine()
    };
    let shown = managers_shown("none", &[], &machine);
    assert_eq!(
        shown,
        ["cpuManagerPolicy=none", "memoryManagerPolicy=Static"]
    );
}

/// Returns what is published of the resource managers.
fn managers_shown(cpu: &str, options: &[(&str, &str)], machine: &Machine) -> Vec<String> {
    let mut settings = settings(None, "restricted");
    let options = options.iter();
    settings.topology_manager.managers = Some(ResourceManagers {
        cpu: cpu.to_owned(),
        cpu_options: options
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        memory: "Static".to_owned(),
    });
    let none = v1::AllocatableResourcesResponse::default();
    let observation = observe(&settings, machine, &none, pods());
    let attributes = observation.attributes[2..].iter();
    attributes
        .map(|attribute| format!("{}={}", attribute.name, attribute.value))
        .collect()
}

#[test]
fn without_fingerprint_only_the_kubelets_settings_are_published() {
    let observation = observe_pods(&settings(None, "single-numa-node"), pods());
    assert_eq!(observation.fingerprint, None);
    assert_eq!(
        shown(&observation.attributes),
        [
            ("topologyManagerScope", "container"),
            ("topologyManagerPolicy", "single-numa-node")
        ]
    );
}
