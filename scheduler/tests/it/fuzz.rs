//! Everything that a cluster's users and kubelets may put before the scheduler: no order of such objects stops it.

use std::time::Duration;

use ::fuzz::{Result, Unstructured, object};
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use prometheus_client::registry::Registry;
use scheduler::engine::core::Core;
use scheduler::engine::message::Message;
use scheduler::framework::profile::Profile;
use scheduler::framework::queue::{Backoff, Queue};
use scheduler::metrics::Metrics;
use scheduler::numa::cache::Cache;
use scheduler::numa::settings::Settings;
use scheduler::state::pod::PodKey;
use scheduler::watch::follow::{Change, Notice};
use scheduler::watch::kinds::{self, Need, Needs, Watched};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Largest number of objects that the scheduler is told of, and of attempts between two of them.
const STEPS: u32 = 24;
const ATTEMPTS: u32 = 3;

#[test]
fn no_object_of_a_cluster_stops_the_scheduler() {
    let seeds = [
        (
            node as fn() -> Value,
            apply::<Node> as fn(&mut Core, &Value, &mut Unstructured<'_>) -> Result<()>,
        ),
        (topology, apply::<NodeResourceTopology>),
        (pod, apply::<Pod>),
        (waiting_pod, apply::<Pod>),
        (budget, apply::<PodDisruptionBudget>),
    ];
    ::fuzz::run(file!(), |input| {
        let mut core = core();
        for _ in 0..input.int_in_range(1..=STEPS)? {
            let (seed, apply) = input.choose(&seeds)?;
            apply(&mut core, &seed(), input)?;
            for _ in 0..input.int_in_range(0..=ATTEMPTS)? {
                drop(core.attempt_next());
                drop(core.expire(Instant::now()));
            }
            core.publish_sizes();
        }
        Ok(())
    });
}

/// Tells the scheduler of a changed object, or that it is gone.
fn apply<K: Watched>(core: &mut Core, seed: &Value, input: &mut Unstructured<'_>) -> Result<()> {
    let names = ["a", "b", "c"];
    let mut seed = seed.clone();
    seed["metadata"]["name"] = json!(input.choose(&names)?);
    let gone = input.ratio(1, 8)?;
    let Some(wire) = object::<K>(&seed, input)? else {
        return Ok(());
    };
    let Some((key, read)) = wire.read(|_, _| {}) else {
        return Ok(());
    };
    let change = if gone {
        Change::Delete(key)
    } else {
        Change::Apply((key, read))
    };
    drop(core.take(Message::Watched(Notice::Changed(K::KIND, Box::new(change)))));
    Ok(())
}

/// Builds a scheduler that has listed an empty cluster.
fn core() -> Core {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "topo", "plugins": {"multiPoint": {"enabled": [{"name": scheduler_config::args::PLUGIN}]}}}],
    });
    let config = scheduler_config::parse(&config.to_string()).expect("valid");
    let profiles: Vec<Profile> = config.profiles.iter().map(Profile::new).collect();
    let needs = Needs::of(&profiles);
    let mut core = Core::new(
        profiles,
        Cache::new(Settings::of_profiles(&config).expect("one profile")),
        Queue::new(Backoff {
            initial: Duration::ZERO,
            maximum: Duration::ZERO,
        }),
        Metrics::new(&mut Registry::default()),
        needs,
    );
    for kind in kinds::all() {
        if kind.need() != Need::Volumes {
            let listed = Change::Synced(std::iter::empty::<PodKey>().collect());
            drop(core.take(Message::Watched(Notice::Changed(kind, Box::new(listed)))));
        }
    }
    core
}

fn node() -> Value {
    json!({
        "metadata": {"name": "a", "labels": {"kubernetes.io/hostname": "a", "zone": "z"}, "resourceVersion": "7"},
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "unschedulable": false},
        "status": {
            "allocatable": {"cpu": "16", "memory": "32Gi", "pods": "110", "hugepages-1Gi": "4Gi", "vendor.example/device": "4"},
            "images": [{"names": ["i:1"], "sizeBytes": 1000}],
        },
    })
}

fn topology() -> Value {
    let zone = |name: &str, other: &str| {
        json!({
            "name": name, "type": "Node",
            "costs": [{"name": name, "value": 10}, {"name": other, "value": 20}],
            "attributes": [{"name": "topology.node.k8s.io/numa-placement-vector", "value": "!"}],
            "resources": [
                {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "6"},
                {"name": "memory", "capacity": "16Gi", "allocatable": "16Gi", "available": "12Gi"},
                {"name": "vendor.example/device", "capacity": "2", "allocatable": "2", "available": "2"},
            ],
        })
    };
    json!({
        "metadata": {"name": "a", "resourceVersion": "9"},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "pod"},
            {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v0010123456789abcdef"},
            {"name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources"},
        ],
        "zones": [zone("node-0", "node-1"), zone("node-1", "node-0")],
    })
}

fn pod() -> Value {
    let mut pod = waiting_pod();
    pod["spec"]["nodeName"] = json!("a");
    pod["status"]["phase"] = json!("Running");
    pod
}

fn waiting_pod() -> Value {
    let amounts = json!({"cpu": "2", "memory": "1Gi", "vendor.example/device": "1"});
    let resources = json!({"requests": amounts, "limits": amounts});
    let term = json!({"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"});
    json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "11", "labels": {"app": "x"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedulerName": "topo", "priority": 5, "preemptionPolicy": "PreemptLowerPriority",
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": resources}],
            "containers": [{"name": "app", "image": "i:1", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}], "resources": resources}],
            "overhead": {"cpu": "100m"},
            "resources": resources,
            "nodeSelector": {"zone": "z"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["1"]}]}}],
                },
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            },
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1, "labelSelector": {"matchLabels": {"app": "x"}}}],
            "schedulingGates": [],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed", "nominatedNodeName": "b", "startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
    })
}

fn budget() -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "disruptedPods": {"a": "2026-01-01T00:00:00Z"}},
    })
}
