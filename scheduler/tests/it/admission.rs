//! Checks the filters against the kubelet model on random states of nodes: the kubelet must admit what they accept.
//!
//! The scheduler gets every state the usual way: from the Node, from its pods, and from the NRT that the exporter makes of the kubelet's
//! answers. So the whole chain is checked, not only the filter.

use std::collections::{BTreeMap, BTreeSet};

use api::nrt::v1alpha2::NodeResourceTopology;
use cluster_spec::kubelet::{KubeletSettings, MemoryPolicy, TopologyPolicy, TopologyScope};
use fixtures::machines::Machine;
use judges::kubelet::configurations;
use judges::kubelet::corpus::Operation;
use judges::kubelet::random::operations;
use judges::kubelet::recipe::{ContainerRecipe, PodRecipe};
use k8s_openapi::api::core::v1::{Node as WireNode, Pod as WirePod};
use kubelet_model::node::{Node as Kubelet, Refusal};
use nrt::fingerprint::Method;
use rte::config::ResourceManagers;
use rte::hardware;
use rte::kubelet::configuration::TopologyManager;
use rte::scan::filter::Filter;
use rte::scan::observation::{Settings as ObservationSettings, observe};
use scheduler::framework::cycle::{Outcome, attempt};
use scheduler::framework::memo::Memo;
use scheduler::framework::profile::Profile;
use scheduler::numa::cache::Cache;
use scheduler::numa::settings::Settings;
use scheduler::state::cluster::Cluster;
use scheduler::state::node::Node;
use scheduler::state::pod::Pod;
use serde_json::json;

const NODE: &str = "node";
const NAMESPACE: &str = "default";
const SCHEDULER: &str = "topo-aware-scheduler";
/// Number of decisions to check.
const DECISIONS: usize = 10_000;

/// The exporter publishes once per this many decisions. In between, pods that no NRT shows have to be charged.
const LAG: usize = 3;

/// Reasons for which a pod may be rejected although its kubelet would admit it: room that a kubelet makes for a critical pod by ending
/// others (kubelet-node.md 4), fractional CPUs that are looked for in one zone (scheduler.md 9, point 11), pods that no NRT shows yet and whose
/// zone is not certain, and what init containers may hold or tie the rest of their pod to.
const CONSERVATIVE: [&str; 7] = [
    "Insufficient cpu",
    "Insufficient memory",
    "Too many pods",
    "cannot align container",
    "cannot align init container",
    "cannot align pod",
    "cannot align sidecar container",
];

/// The configuration as the operator ships it.
const CONFIGURATION: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: topo-aware-scheduler
  plugins:
    multiPoint:
      disabled: [{name: DynamicResources}]
      enabled: [{name: NodeResourceTopologyMatch}]
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {cacheResyncPeriodSeconds: 5}
";

/// A node with its kubelet, and what the API server knows of its pods.
struct TestNode {
    name: String,
    machine: Machine,
    settings: KubeletSettings,
    kubelet: Kubelet,
    pods: BTreeMap<String, WirePod>,
    /// What the exporter published last, which may be outdated.
    published: NodeResourceTopology,
    decisions: usize,
}

impl TestNode {
    fn new(name: String, machine: &Machine, settings: &KubeletSettings) -> Self {
        Self {
            name,
            machine: machine.clone(),
            settings: settings.clone(),
            kubelet: Kubelet::new(machine, settings).unwrap(),
            pods: BTreeMap::new(),
            published: NodeResourceTopology::default(),
            decisions: 0,
        }
    }

    fn node(&self) -> Node {
        let allocatable: BTreeMap<String, String> = self
            .kubelet
            .allocatable()
            .into_iter()
            .map(|(name, amount)| {
                let unit = if name == "cpu" { "m" } else { "" };
                (name, format!("{amount}{unit}"))
            })
            .collect();
        let wire: WireNode = serde_json::from_value(json!({
            "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}},
            "status": {"allocatable": allocatable},
        }))
        .unwrap();
        Node::read(wire).unwrap()
    }

    /// Returns the exporter's object.
    fn topology(&mut self) -> NodeResourceTopology {
        let machine = sysfs(&self.machine);
        let scope = match self.settings.topology_manager_scope {
            TopologyScope::Container => "container",
            TopologyScope::Pod => "pod",
        };
        let settings = ObservationSettings {
            filter: Filter::default(),
            fingerprint: Some(Method::WithExclusiveResources),
            topology_manager: TopologyManager {
                policy: "single-numa-node".to_owned(),
                scope: scope.to_owned(),
                max_numa_nodes: None,
                managers: Some(ResourceManagers {
                    cpu: "static".to_owned(),
                    cpu_options: self.settings.cpu_manager_policy_options.clone(),
                    memory: match self.settings.memory_manager_policy {
                        MemoryPolicy::Static => "Static".to_owned(),
                        MemoryPolicy::None => "None".to_owned(),
                    },
                }),
            },
        };
        let allocatable = self.kubelet.allocatable_resources();
        let pods = self.kubelet.list().pod_resources;
        let observation = observe(&settings, &machine, &allocatable, pods);
        let mut topology = NodeResourceTopology::default();
        topology.metadata.name = Some(NODE.to_owned());
        topology.zones = observation.zones;
        topology.attributes = observation.attributes;
        topology
    }

    /// Returns the scheduler's decision on a pod for this node.
    fn decide(&mut self, profile: &Profile, settings: &Settings, pod: &WirePod) -> Outcome {
        if self.decisions.is_multiple_of(LAG) {
            self.published = self.topology();
            self.pods.retain(|_, pod| !is_over(pod));
        }
        self.decisions += 1;
        let mut cluster = Cluster::new();
        let mut cache = Cache::new(settings.clone());
        cluster.apply_node(self.node());
        for wire in self.pods.values() {
            let pod = Pod::read(wire.clone()).unwrap();
            cache.apply_pod(NODE, &pod);
            cluster.apply_pod(pod);
        }
        let (topology, problems) = nrt::decode::decode(&self.published);
        assert_eq!(problems, []);
        cache.apply_nrt(NODE, topology);
        attempt(
            profile,
            (&mut cluster, &mut cache),
            &mut Memo::default(),
            &Pod::read(pod.clone()).unwrap(),
            0,
        )
        .outcome
    }

    /// Lets the kubelet admit or refuse the pod.
    fn admit(&mut self, name: &str, recipe: &PodRecipe, pod: &WirePod) -> Result<(), Refusal> {
        let verdict = self.kubelet.admit(pod).unwrap();
        for gone in self.kubelet.take_preempted() {
            self.pods.remove(&gone);
        }
        if verdict.is_ok() {
            let mut pod = pod.clone();
            pod.spec.as_mut().unwrap().node_name = Some(NODE.to_owned());
            let phase = if recipe.runs {
                self.kubelet.all_started(name);
                "Running"
            } else {
                "Pending"
            };
            pod.status.get_or_insert_default().phase = Some(phase.to_owned());
            self.pods.insert(name.to_owned(), pod);
        }
        verdict
    }

    /// Ends the pod. As with a job, the API server keeps it until the exporter publishes again.
    fn stop(&mut self, name: &str) {
        self.kubelet.stopped(name);
        if let Some(pod) = self.pods.get_mut(name) {
            pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        }
    }

    /// Restarts the kubelet, which may refuse pods that it finds. Afterwards a pod without requests is admitted and ends.
    fn restart(&mut self, probe: &str) {
        // A kubelet that has given all CPUs away does not start again (`NoSharedCpus`): its node is set up anew.
        let Ok(gone) = self.kubelet.restart() else {
            *self = Self::new(self.name.clone(), &self.machine, &self.settings);
            return;
        };
        for gone in gone.keys() {
            self.pods.remove(gone);
        }
        self.kubelet.register_devices(&self.machine);
        let recipe = PodRecipe {
            containers: vec![ContainerRecipe::default()],
            ..PodRecipe::default()
        };
        let pod = object(probe, &recipe);
        drop(self.admit(probe, &recipe, &pod));
        self.stop(probe);
    }
}

fn is_over(pod: &WirePod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Succeeded")
}

/// Returns what the exporter reads from the sysfs of such a machine.
fn sysfs(machine: &Machine) -> hardware::Machine {
    let count = machine.zones().len();
    let node = |zone: usize| {
        let wanted = &machine.zones()[zone];
        let pages = [
            (2 << 20, wanted.hugepages_2mi),
            (1 << 30, wanted.hugepages_1gi),
        ];
        hardware::NumaNode {
            cpus: machine.zone_cpus(zone).into_iter().collect(),
            memory: wanted.memory,
            hugepages: pages.map(|(size, count)| (size, size * count)).into(),
            distances: (0..count)
                .map(|to| (to as u32, i64::from(machine.distances()[zone][to])))
                .collect(),
        }
    };
    hardware::Machine {
        nodes: (0..count).map(|zone| (zone as u32, node(zone))).collect(),
        threads_per_core: u16::try_from(machine.threads_per_core()).ok(),
        nodes_are_within_sockets: true,
    }
}

/// Returns the pod as the API server would have it; its UID equals its name.
fn object(name: &str, recipe: &PodRecipe) -> WirePod {
    let mut pod = recipe.pod(NAMESPACE, name, "");
    pod.metadata.uid = Some(name.to_owned());
    let spec = pod.spec.as_mut().unwrap();
    spec.scheduler_name = Some(SCHEDULER.to_owned());
    spec.node_name = None;
    pod
}

/// Returns every node with policy single-numa-node among the machines and settings with which the model is verified.
fn test_nodes() -> Vec<TestNode> {
    let machines = configurations::all().unwrap().into_iter();
    machines
        .flat_map(|(machine, list)| {
            let strict = list.into_iter().filter(|(_, settings)| {
                settings.topology_manager_policy == TopologyPolicy::SingleNumaNode
            });
            strict
                .map(|(name, settings)| TestNode::new(name, &machine, &settings))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Counts of the decisions and of the kubelet's answers.
#[derive(Default)]
struct Tally {
    decisions: usize,
    passed: usize,
    /// Rejected although the kubelet would have admitted the pod, by reason.
    missed: BTreeMap<String, usize>,
    /// Accepted although the kubelet refuses the pod.
    refused: Vec<String>,
}

impl Tally {
    fn count(
        &mut self,
        test_node: &TestNode,
        pod: &PodRecipe,
        outcome: Outcome,
        verdict: Result<(), Refusal>,
    ) {
        self.decisions += 1;
        match (outcome, verdict) {
            (Outcome::Placed { .. }, Ok(())) => self.passed += 1,
            (Outcome::Rejected(_) | Outcome::Preempting { .. }, Err(_)) => {}
            (Outcome::Rejected(verdict) | Outcome::Preempting { verdict, .. }, Ok(())) => {
                let reasons = verdict.nodes[0].1.reasons.join(", ");
                *self.missed.entry(reasons).or_default() += 1;
            }
            (Outcome::Placed { .. }, Err(refusal)) => {
                let (name, cpus) = (&test_node.name, test_node.kubelet.cpu_state());
                let refused = format!("{name}: {}: {pod:?}; CPUs {cpus}", refusal.message);
                self.refused.push(refused);
            }
        }
    }
}

#[test]
fn what_the_filters_pass_the_kubelet_admits() {
    let config = scheduler_config::parse(CONFIGURATION).unwrap();
    let profile = Profile::new(&config.profiles[0]);
    let args = config.profiles[0].topology_match.as_ref().unwrap();
    let settings = Settings::new(args, BTreeSet::from([SCHEDULER.to_owned()]));
    let mut test_nodes = test_nodes();
    let mut tally = Tally::default();
    for seed in 0.. {
        if tally.decisions >= DECISIONS {
            break;
        }
        for test_node in &mut test_nodes {
            let prefix = format!("s{seed}");
            for operation in operations(seed, &test_node.machine, &test_node.settings, &prefix) {
                match operation {
                    Operation::Create { name, pod } => {
                        let object = object(&name, &pod);
                        let outcome = test_node.decide(&profile, &settings, &object);
                        let verdict = test_node.admit(&name, &pod, &object);
                        tally.count(test_node, &pod, outcome, verdict);
                    }
                    Operation::Delete { name } => test_node.stop(&name),
                    Operation::Restart { probe } => test_node.restart(&probe),
                    Operation::Drain => {
                        let all: Vec<String> = test_node.pods.keys().cloned().collect();
                        for name in &all {
                            test_node.stop(name);
                        }
                    }
                }
            }
        }
    }
    println!(
        "{} decisions, {} passed, rejected though the kubelet would have admitted: {:?}",
        tally.decisions, tally.passed, tally.missed
    );
    assert!(tally.refused.is_empty(), "{:#?}", tally.refused);
    // a filter that accepts nothing would never be contradicted
    assert!(tally.passed > tally.decisions / 3);
    let missed: usize = tally.missed.values().sum();
    assert!(
        missed < tally.decisions / 10,
        "too conservative: {:?}",
        tally.missed
    );
    for reason in tally.missed.keys().flat_map(|reasons| reasons.split(", ")) {
        assert!(CONSERVATIVE.contains(&reason), "{reason}");
    }
}
