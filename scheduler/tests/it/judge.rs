//! The kubelet model as the judge of the filters, on random states of nodes: what they pass it must admit.
//!
//! Every state is told to the scheduler the usual way: by the Node, by its pods, and by the NRT that the exporter makes of what the kubelet
//! answers. So the whole chain is judged, not only the filter.

use std::collections::{BTreeMap, BTreeSet};

use api::nrt::v1alpha2::NodeResourceTopology;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::{Node as WireNode, Pod as WirePod};
use nrt::fingerprint::Method;
use rte::config::ResourceManagers;
use rte::kubelet_config::TopologyManager;
use rte::monitor::Filter;
use rte::observation::{Settings as Observing, observe};
use rte::sysinfo;
use scheduler::cache::{Cache, Settings};
use scheduler::cluster::{Cluster, Node};
use scheduler::cycle::{Outcome, attempt};
use scheduler::memo::Memo;
use scheduler::pod::Pod;
use scheduler::profile::Profile;
use serde_json::json;
use testbed::kubelet::configurations;
use testbed::kubelet::corpus::{Operation, Refusal};
use testbed::kubelet::node::Node as Kubelet;
use testbed::kubelet::random::operations;
use testbed::kubelet::recipe::{ContainerRecipe, PodRecipe};
use testbed::local::KubeletSettings;
use testbed::local::kubelet::{MemoryPolicy, TopologyPolicy, TopologyScope};

const NODE: &str = "node";
const NAMESPACE: &str = "default";
const SCHEDULER: &str = "topo-aware-scheduler";
/// How many decisions are judged.
const DECISIONS: usize = 10_000;

/// The exporter publishes once for so many of them: in between pods have to be charged that no NRT shows.
const LAG: usize = 3;

/// Why a pod may be rejected that its kubelet would admit: room that a kubelet makes for a critical pod by ending others
/// (kubelet-node.md 4), parts of CPUs that are looked for in one zone (scheduler.md 9, point 11), pods that no NRT shows yet and whose zone is not
/// certain, and what init containers may hold or tie the rest of their pod to.
const CAREFUL: [&str; 7] = [
    "Insufficient cpu",
    "Insufficient memory",
    "Too many pods",
    "cannot align container",
    "cannot align init container",
    "cannot align pod",
    "cannot align sidecar container",
];

/// As the operator ships it.
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

/// One node with its kubelet, and what the API server knows of its pods.
struct Place {
    name: String,
    machine: Machine,
    settings: KubeletSettings,
    kubelet: Kubelet,
    pods: BTreeMap<String, WirePod>,
    /// What the exporter published last; it lags behind.
    published: NodeResourceTopology,
    asked: usize,
}

impl Place {
    fn new(name: String, machine: &Machine, settings: &KubeletSettings) -> Self {
        Self {
            name,
            machine: machine.clone(),
            settings: settings.clone(),
            kubelet: Kubelet::new(machine, settings).unwrap(),
            pods: BTreeMap::new(),
            published: NodeResourceTopology::default(),
            asked: 0,
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

    /// The exporter's object.
    fn topology(&mut self) -> NodeResourceTopology {
        let machine = sysfs(&self.machine);
        let scope = match self.settings.topology_manager_scope {
            TopologyScope::Container => "container",
            TopologyScope::Pod => "pod",
        };
        let observing = Observing {
            filter: Filter::default(),
            fingerprint: Some(Method::WithExclusiveResources),
            topology_manager: TopologyManager {
                policy: "single-numa-node".to_owned(),
                scope: scope.to_owned(),
                max_numa_nodes: None,
                managers: Some(ResourceManagers {
                    cpu: "static".to_owned(),
                    full_cores: self
                        .settings
                        .cpu_manager_policy_options
                        .contains_key("full-pcpus-only"),
                    memory: match self.settings.memory_manager_policy {
                        MemoryPolicy::Static => "Static".to_owned(),
                        MemoryPolicy::None => "None".to_owned(),
                    },
                }),
            },
        };
        let allocatable = self.kubelet.allocatable_resources();
        let pods = self.kubelet.list().pod_resources;
        let observation = observe(&observing, &machine, &allocatable, pods);
        let mut topology = NodeResourceTopology::default();
        topology.metadata.name = Some(NODE.to_owned());
        topology.zones = observation.zones;
        topology.attributes = observation.attributes;
        topology
    }

    /// What the scheduler says of a pod for this node.
    fn ask(&mut self, profile: &Profile, settings: &Settings, pod: &WirePod) -> Outcome {
        if self.asked.is_multiple_of(LAG) {
            self.published = self.topology();
            self.pods.retain(|_, pod| !is_over(pod));
        }
        self.asked += 1;
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

    /// The kubelet gets the pod.
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

    /// The pod ends; the API server has it until the exporter publishes again, as it has that of a job.
    fn stop(&mut self, name: &str) {
        self.kubelet.stopped(name);
        if let Some(pod) = self.pods.get_mut(name) {
            pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
        }
    }

    /// The kubelet starts again and may refuse what it finds; a pod without wishes comes and goes.
    fn restart(&mut self, probe: &str) {
        for gone in self.kubelet.restart().unwrap().keys() {
            self.pods.remove(gone);
        }
        self.kubelet.announce(&self.machine);
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

/// What the exporter reads from the sysfs of such a machine.
fn sysfs(machine: &Machine) -> sysinfo::Machine {
    let count = machine.zones().len();
    let node = |zone: usize| {
        let wanted = &machine.zones()[zone];
        let pages = [
            (2 << 20, wanted.hugepages_2mi),
            (1 << 30, wanted.hugepages_1gi),
        ];
        sysinfo::NumaNode {
            cpus: machine.zone_cpus(zone).into_iter().collect(),
            memory: wanted.memory,
            hugepages: pages.map(|(size, count)| (size, size * count)).into(),
            distances: (0..count)
                .map(|to| (to as u32, i64::from(machine.distances()[zone][to])))
                .collect(),
        }
    };
    sysinfo::Machine {
        nodes: (0..count).map(|zone| (zone as u32, node(zone))).collect(),
        threads_per_core: u16::try_from(machine.threads_per_core()).ok(),
    }
}

/// The pod as the API server would have it; its name is its UID too.
fn object(name: &str, recipe: &PodRecipe) -> WirePod {
    let mut pod = recipe.pod(NAMESPACE, name, "");
    pod.metadata.uid = Some(name.to_owned());
    let spec = pod.spec.as_mut().unwrap();
    spec.scheduler_name = Some(SCHEDULER.to_owned());
    spec.node_name = None;
    pod
}

/// Every node that gives its pods one NUMA node or refuses them, of the machines and settings that the model is proven on.
fn places() -> Vec<Place> {
    let machines = configurations::all().unwrap().into_iter();
    machines
        .flat_map(|(machine, list)| {
            let strict = list.into_iter().filter(|(_, settings)| {
                settings.topology_manager_policy == TopologyPolicy::SingleNumaNode
            });
            strict
                .map(|(name, settings)| Place::new(name, &machine, &settings))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// What was decided, and how the kubelet saw it.
#[derive(Default)]
struct Tally {
    judged: usize,
    passed: usize,
    /// Rejected although the kubelet would have admitted the pod, by reason.
    missed: BTreeMap<String, usize>,
    /// Passed although the kubelet refuses the pod.
    refused: Vec<String>,
}

impl Tally {
    fn count(
        &mut self,
        place: &Place,
        pod: &PodRecipe,
        outcome: Outcome,
        verdict: Result<(), Refusal>,
    ) {
        self.judged += 1;
        match (outcome, verdict) {
            (Outcome::Placed { .. }, Ok(())) => self.passed += 1,
            (Outcome::Rejected(_) | Outcome::Preempting { .. }, Err(_)) => {}
            (Outcome::Rejected(verdict) | Outcome::Preempting { verdict, .. }, Ok(())) => {
                let reasons = verdict.nodes[0].1.reasons.join(", ");
                *self.missed.entry(reasons).or_default() += 1;
            }
            (Outcome::Placed { .. }, Err(refusal)) => {
                let (name, cpus) = (&place.name, place.kubelet.cpu_state());
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
    let mut places = places();
    let mut tally = Tally::default();
    for seed in 0.. {
        if tally.judged >= DECISIONS {
            break;
        }
        for place in &mut places {
            let prefix = format!("s{seed}");
            for operation in operations(seed, &place.machine, &place.settings, &prefix) {
                match operation {
                    Operation::Create { name, pod } => {
                        let object = object(&name, &pod);
                        let outcome = place.ask(&profile, &settings, &object);
                        let verdict = place.admit(&name, &pod, &object);
                        tally.count(place, &pod, outcome, verdict);
                    }
                    Operation::Delete { name } => place.stop(&name),
                    Operation::Restart { probe } => place.restart(&probe),
                    Operation::Drain => {
                        let all: Vec<String> = place.pods.keys().cloned().collect();
                        for name in &all {
                            place.stop(name);
                        }
                    }
                }
            }
        }
    }
    println!(
        "{} judged, {} passed, rejected though the kubelet would have admitted: {:?}",
        tally.judged, tally.passed, tally.missed
    );
    assert!(tally.refused.is_empty(), "{:#?}", tally.refused);
    // a filter that passes nothing would never be refused
    assert!(tally.passed > tally.judged / 3);
    let missed: usize = tally.missed.values().sum();
    assert!(
        missed < tally.judged / 10,
        "too careful: {:?}",
        tally.missed
    );
    for reason in tally.missed.keys().flat_map(|reasons| reasons.split(", ")) {
        assert!(CAREFUL.contains(&reason), "{reason}");
    }
}
