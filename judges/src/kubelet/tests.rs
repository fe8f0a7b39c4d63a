//! The check vectors (kubelet-node.md 15), invariants, and the replay of what real kubelets did.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cluster_spec::kubelet::{
    CpuPolicy, KubeletSettings, MemoryPolicy, TopologyPolicy, TopologyScope,
};
use fixtures::machines::{Machine, profile};
use kubelet_model::cpu::topology::{Cpus, Topology};
use kubelet_model::cpu::{Manager, Options, select};
use kubelet_model::node::{Node, StateFiles};
use kubelet_model::workload::Workload;
use proptest::prelude::*;
use rstest::rstest;
use topology::hint::Hint;
use topology::mask::{NumaMask, ZoneId};

use super::composition::Composition;
use super::corpus::{self, Operation};
use super::recipe::{ContainerRecipe, Kind, PodRecipe};
use super::{configurations, random, replay};

fn machine() -> Machine {
    profile::from_yaml(
        "{name: m, threadsPerCore: 2, zones: [{cores: 4, memory: 64Gi}, {cores: 4, memory: 64Gi}]}",
    )
    .unwrap()
}

fn manager(options: Options) -> Manager {
    Manager::new(Topology::new(&machine()), true, options, Cpus::from([0, 8]))
}

fn pod(uid: &str, cpus: &str) -> Workload {
    let limits = [("cpu", cpus), ("memory", "1Gi")];
    let recipe = PodRecipe {
        containers: vec![ContainerRecipe {
            kind: Kind::App,
            limits: limits
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into(),
            requests: None,
        }],
        ..PodRecipe::default()
    };
    let mut pod = recipe.pod("n", uid, "");
    pod.metadata.uid = Some(uid.to_owned());
    Workload::new(&pod).unwrap()
}

fn mask(zones: &[u64]) -> NumaMask {
    zones.iter().filter_map(|zone| ZoneId::new(*zone)).collect()
}

fn allocate(manager: &mut Manager, uid: &str, cpus: &str, zones: Option<&[u64]>) -> Vec<u32> {
    let pod = pod(uid, cpus);
    manager
        .allocate(&pod, &pod.containers[0], zones.map(mask))
        .unwrap();
    let taken = manager.exclusive(uid, "c0").unwrap();
    taken.iter().copied().collect()
}

#[rstest]
#[case::c1("4", Some(&[0][..]), &[1, 2, 9, 10])]
#[case::c2("3", Some(&[0][..]), &[1, 2, 9])]
#[case::c4("10", None, &[1, 4, 5, 6, 7, 9, 12, 13, 14, 15])]
fn vector_of_packed_selection(
    #[case] cpus: &str,
    #[case] zones: Option<&[u64]>,
    #[case] expected: &[u32],
) {
    let mut manager = manager(Options::default());
    assert_eq!(allocate(&mut manager, "p", cpus, zones), expected);
}

#[test]
fn vector_c3_fills_the_core_with_fewer_free_cpus() {
    let mut manager = manager(Options::default());
    allocate(&mut manager, "p", "3", Some(&[0]));
    assert_eq!(allocate(&mut manager, "q", "1", Some(&[0])), [10]);
}

#[test]
fn vector_c5_refuses_parts_of_cores() {
    let mut manager = manager(Options {
        full_cores: true,
        ..Options::default()
    });
    let pod = pod("p", "3");
    let error = manager
        .allocate(&pod, &pod.containers[0], Some(mask(&[0])))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    );
}

#[test]
fn vector_c6_reserves_the_first_core_by_number() {
    let topology = Topology::new(&machine());
    let taken = select::take(&topology, &Options::default(), &topology.all(), 2).unwrap();
    assert_eq!(taken, Cpus::from([0, 8]));
}

#[rstest]
#[case::h1("4", false, vec![(vec![0], true), (vec![1], true), (vec![0, 1], false)])]
#[case::h2("7", false, vec![(vec![1], true), (vec![0, 1], false)])]
#[case::h3("8", true, vec![(vec![0, 1], false)])]
#[case::h4("9", false, vec![(vec![0, 1], true)])]
fn vector_of_cpu_hints(
    #[case] cpus: &str,
    #[case] is_used: bool,
    #[case] expected: Vec<(Vec<u64>, bool)>,
) {
    let mut manager = manager(Options::default());
    if is_used {
        allocate(&mut manager, "used", "1", Some(&[1]));
    }
    let pod = pod("p", cpus);
    let expected: Vec<Hint> = expected
        .iter()
        .map(|(zones, preferred)| Hint::of(mask(zones), *preferred))
        .collect();
    assert_eq!(
        manager.hints(&pod, &pod.containers[0]),
        BTreeMap::from([("cpu".to_owned(), Some(expected))])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_cpu_is_given_twice_and_release_restores(seed: u64, kubelet in 0..76_usize) {
        let all = configurations::all().unwrap();
        let all: Vec<_> = all
            .iter()
            .flat_map(|(machine, list)| list.iter().map(move |(_, settings)| (machine, settings)))
            .collect();
        prop_assert_eq!(all.len(), 76);
        let (machine, settings) = all[kubelet];
        let mut node = Node::new(machine, settings).unwrap();
        let before = (node.cpu_state(), node.memory_state());
        for operation in random::operations(seed, machine, settings, "p") {
            match operation {
                Operation::Create { name, pod } => {
                    let mut object = pod.pod("n", &name, "");
                    object.metadata.uid = Some(name);
                    drop(node.admit(&object).unwrap());
                }
                Operation::Delete { name } => node.stopped(&name),
                Operation::Restart { .. } => {
                    if node.restart().is_ok() {
                        node.register_devices(machine);
                    }
                }
                Operation::Drain => {
                    let uids: Vec<String> = node.active().map(str::to_owned).collect();
                    for uid in uids {
                        node.stopped(&uid);
                    }
                }
            }
            let mut given = Cpus::new();
            for pod in node.list().pod_resources {
                for container in pod.containers {
                    for cpu in container.cpu_ids {
                        prop_assert!(given.insert(u32::try_from(cpu).unwrap()), "CPU {cpu} given twice");
                    }
                }
            }
        }
        // Stale entries go with the next admission; a pod without requests would leave no entry of its own.
        node.release();
        prop_assert_eq!(before, (node.cpu_state(), node.memory_state()));
    }
}

#[test]
fn kubelet_without_shared_cpus_does_not_come_back() {
    let settings = KubeletSettings {
        cpu_manager_policy_options: [("strict-cpu-reservation".to_owned(), "true".to_owned())]
            .into(),
        topology_manager_policy: TopologyPolicy::None,
        ..KubeletSettings::default()
    };
    let mut node = Node::new(&machine(), &settings).unwrap();
    let mut all = pod("p", "12").pod;
    node.admit(&all).unwrap().unwrap();
    assert_eq!(
        node.restart().unwrap_err().to_string(),
        "start cpu manager error: default cpuset cannot be empty"
    );
    node.stopped("p");
    all.metadata.uid = Some("q".to_owned());
    all.spec.as_mut().unwrap().containers[0].resources = None;
    node.admit(&all).unwrap().unwrap();
    assert_eq!(node.restart(), Ok(BTreeMap::new()));
    assert_eq!(node.active().collect::<Vec<_>>(), ["q"]);
}

#[test]
fn kubelet_of_the_default_settings_starts_on_the_default_machine() {
    let node = Node::new(&Machine::default_profile(), &KubeletSettings::default()).unwrap();
    assert_eq!(node.allocatable()["cpu"], 44_000);
    assert_eq!(node.capacity()["cpu"], 48_000);
}

/// Replays every file of the corpus: same admissions, reasons, messages, CPU sets, memory blocks, devices, podresources answers and state
/// files. The corpus must also be large and varied enough.
#[test]
fn model_does_what_real_kubelets_did() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/kubelet");
    let paths: Vec<_> = fs_err::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let bytes: u64 = paths
        .iter()
        .map(|path| fs_err::metadata(path).unwrap().len())
        .sum();
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Composition::default(), Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (configuration, recorded) = corpus::read(path).unwrap();
                    let found = replay::replay(&configuration, &recorded).unwrap();
                    let mut total = total.lock().unwrap();
                    total.0.add(&configuration, &recorded);
                    let named = found
                        .into_iter()
                        .map(|difference| format!("{}: {difference}", path.display()));
                    total.1.extend(named);
                }
            });
        }
    });
    let (corpus, differences) = total.into_inner().unwrap();
    assert!(
        differences.is_empty(),
        "{} differences in {} sequences, the first:\n{}",
        differences.len(),
        corpus.sequences,
        differences[0]
    );
    assert!(bytes < 20 << 20, "{bytes} bytes");
    is_large_and_varied(&corpus);
}

fn is_large_and_varied(corpus: &Composition) {
    let share = |count: usize| count * 100 / corpus.sequences;
    assert!(corpus.sequences >= 2000, "{corpus:#?}");
    assert_eq!(corpus.long, corpus.sequences, "pods of a sequence");
    assert!(share(corpus.with_refusal) >= 30, "{corpus:#?}");
    assert!(share(corpus.with_deletion) >= 20, "{corpus:#?}");
    assert!(corpus.configurations.len() >= 40, "{corpus:#?}");
    let has = |set: &BTreeSet<String>, names: &[&str]| {
        for name in names {
            assert!(set.contains(*name), "{name} is not in {set:?}");
        }
    };
    assert!(
        [1, 2, 4].iter().all(|zones| corpus.zones.contains(zones)),
        "{:?}",
        corpus.zones
    );
    assert!(
        [1, 2]
            .iter()
            .all(|threads| corpus.threads.contains(threads)),
        "{:?}",
        corpus.threads
    );
    has(
        &corpus.settings,
        &[
            "topology None",
            "BestEffort Container",
            "BestEffort Pod",
            "Restricted Container",
            "Restricted Pod",
            "SingleNumaNode Container",
            "SingleNumaNode Pod",
            "prefer-closest-numa-nodes",
            "full-pcpus-only",
            "strict-cpu-reservation",
            "distribute-cpus-across-numa",
            "distribute-cpus-across-cores",
            "align-by-socket",
            "prefer-align-cpus-by-uncorecache",
            "cpu none",
            "memory none",
        ],
    );
    has(
        &corpus.resources,
        &[
            "cpu",
            "memory",
            "hugepages-2Mi",
            "hugepages-1Gi",
            "example.com/deviceA",
        ],
    );
    assert_eq!(corpus.kinds, BTreeSet::from(["app", "init", "sidecar"]));
    has(
        &corpus.reasons,
        &[
            "TopologyAffinityError",
            "UnexpectedAdmissionError",
            "SMTAlignmentError",
            "OutOfcpu",
            "OutOfmemory",
            "NodeAffinity",
        ],
    );
}

/// Returns a node of the machine with one pod that has CPUs 1, 2, 9 and 10.
fn occupied() -> Node {
    let mut node = Node::new(&machine(), &with_reserved(&[0, 8])).unwrap();
    node.admit(&pod("p", "4").pod).unwrap().unwrap();
    node
}

fn with_reserved(cpus: &[u32]) -> KubeletSettings {
    KubeletSettings {
        reserved_cpus: Some(cpus.to_vec()),
        ..KubeletSettings::default()
    }
}

const BOTH: StateFiles = StateFiles {
    cpu: true,
    memory: true,
};

#[test]
fn kubelet_with_another_scope_keeps_what_pods_have() {
    let mut node = occupied();
    let before = (node.cpu_state(), node.memory_state());
    let settings = KubeletSettings {
        topology_manager_scope: TopologyScope::Pod,
        ..with_reserved(&[0, 8])
    };
    let refused = node.reconfigure(&machine(), &settings, BOTH).unwrap();
    assert_eq!(refused.len(), 0);
    assert_eq!((node.cpu_state(), node.memory_state()), before);
    assert_eq!(node.active().collect::<Vec<_>>(), ["p"]);
}

#[rstest]
#[case::cpu_policy(
    KubeletSettings { cpu_manager_policy: CpuPolicy::None, ..with_reserved(&[0, 8]) },
    "start cpu manager error: could not restore state from checkpoint: configured policy \"none\" differs from state checkpoint policy \"static\", please drain this node and delete the CPU manager checkpoint file \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet"
)]
#[case::memory_policy(
    KubeletSettings { memory_manager_policy: MemoryPolicy::None, ..with_reserved(&[0, 8]) },
    "start memory manager error: could not restore state from checkpoint: [memorymanager] configured policy \"None\" differs from state checkpoint policy \"Static\", please drain this node and delete the memory manager checkpoint file \"/var/lib/kubelet/memory_manager_state\" before restarting Kubelet"
)]
#[case::reserved_cpus(
    with_reserved(&[1, 9]),
    "start cpu manager error: not all reserved cpus: \"1,9\" are present in defaultCpuSet: \"0,3-8,11-15\""
)]
#[case::strictly_reserved_cpus(
    KubeletSettings {
        cpu_manager_policy_options: [("strict-cpu-reservation".to_owned(), "true".to_owned())].into(),
        ..with_reserved(&[0, 8])
    },
    "start cpu manager error: some of strictly reserved cpus: \"0,8\" are present in defaultCpuSet: \"0,3-8,11-15\""
)]
#[case::reserved_memory(
    KubeletSettings { reserved_memory_per_zone: 2 << 30, ..with_reserved(&[0, 8]) },
    "start memory manager error: [memorymanager] the expected machine state is different from the real one"
)]
fn kubelet_does_not_start_with_state_that_does_not_fit(
    #[case] settings: KubeletSettings,
    #[case] expected: &str,
) {
    let mut node = occupied();
    let before = node.cpu_state();
    let error = node.reconfigure(&machine(), &settings, BOTH).unwrap_err();
    let error = format!("{:#}", anyhow::Error::new(error));
    assert_eq!(error, expected);
    assert_eq!(node.cpu_state(), before, "nothing has changed");
    // Without the files the kubelet starts and places its pods anew.
    let refused = node.reconfigure(&machine(), &settings, StateFiles::default());
    assert_eq!(refused.unwrap().len(), 0);
}

#[test]
fn pod_that_fits_no_longer_is_refused_by_a_kubelet_that_starts_anew() {
    let mut node = occupied();
    let settings = with_reserved(&[0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14]);
    let refused = node.reconfigure(&machine(), &settings, StateFiles::default());
    let refused = refused.unwrap();
    assert_eq!(refused["p"].reason, "TopologyAffinityError");
    assert_eq!(node.active().count(), 0);
}

/// While a kubelet starts, no plugin has registered yet: containers that run keep their devices, others are refused (device manager of
/// Kubernetes 1.35, `devicesToAllocate`).
#[rstest]
#[case::running(true, None)]
#[case::not_started(
    false,
    Some(
        "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/d, which is unexpected"
    )
)]
fn devices_of_running_containers_outlast_a_restart(
    #[case] runs: bool,
    #[case] expected: Option<&str>,
) {
    let machine = profile::from_yaml(
        "{name: m, threadsPerCore: 2, zones: [{cores: 4, memory: 64Gi}], devices: {example.com/d: [2]}}",
    )
    .unwrap();
    let mut node = Node::new(&machine, &with_reserved(&[0, 4])).unwrap();
    let recipe = PodRecipe {
        containers: vec![ContainerRecipe {
            limits: [("example.com/d".to_owned(), "1".to_owned())].into(),
            ..ContainerRecipe::default()
        }],
        runs,
        ..PodRecipe::default()
    };
    let mut pod = recipe.pod("n", "p", "");
    pod.metadata.uid = Some("p".to_owned());
    node.admit(&pod).unwrap().unwrap();
    if runs {
        node.all_started("p");
    }
    let refused = node.restart().unwrap();
    let message = refused.get("p").map(|refusal| refusal.message.as_str());
    assert_eq!(message, expected);
    node.register_devices(&machine);
    let held = node.list().pod_resources;
    assert_eq!(held.len(), usize::from(runs));
}
