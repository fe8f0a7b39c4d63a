use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::{
    Node as WireNode, PersistentVolume, PersistentVolumeClaim, Pod as WirePod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::api_tasks::bind;
use crate::engine::message::{Binding, Placement, VolumesWritten};
use crate::framework::queue::Backoff;
use crate::numa::settings::Settings;
use crate::state::pod::PodKey;
use crate::state::storage;
use crate::testing::mk_key;
use crate::watch::follow::Change;
use crate::watch::kinds::Watched;

/// Builds the state of a scheduler with all default plugins that has listed everything but what volumes depend on.
fn mk_core() -> Core {
    let mut core = mk_unsynced();
    let kinds = kinds::all().into_iter();
    for kind in kinds.filter(|kind| kind.need() != Need::Volumes) {
        assert_eq!(told(&list(&mut core, kind, &[])), [""; 0]);
    }
    core
}

fn mk_unsynced() -> Core {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": "topo",
            "plugins": {"multiPoint": {"enabled": [{"name": scheduler_config::args::PLUGIN}]}},
        }],
    });
    let config = scheduler_config::parse(&config.to_string()).expect("valid");
    let profiles: Vec<Profile> = config.profiles.iter().map(Profile::new).collect();
    let args = config.profiles[0].topology_match.as_ref().expect("enabled");
    let needs = Needs::of(&profiles);
    Core::new(
        profiles,
        Cache::new(Settings::new(args, ["topo".to_owned()].into())),
        Queue::new(Backoff {
            initial: Duration::from_secs(1),
            maximum: Duration::from_secs(10),
        }),
        Metrics::new(&mut Registry::default()),
        needs,
    )
}

fn changed(
    core: &mut Core,
    kind: Kind,
    change: Change<(PodKey, kinds::Object), PodKey>,
) -> Vec<Effect> {
    core.take(Notice::Changed(kind, Box::new(change)).into())
}

fn apply<K: Watched>(core: &mut Core, object: Value) -> Vec<Effect> {
    let wire: K = serde_json::from_value(object).expect("object");
    let read = wire.read(|_, _| {}).expect("named");
    changed(core, K::KIND, Change::Apply(read))
}

fn list(core: &mut Core, kind: Kind, keys: &[PodKey]) -> Vec<Effect> {
    changed(core, kind, Change::Synced(keys.iter().cloned().collect()))
}

fn apply_node(core: &mut Core, name: &str, cpus: u32) {
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpus.to_string(), "memory": "8Gi", "pods": "110"}},
    });
    assert_eq!(told(&apply::<WireNode>(core, node)), [""; 0]);
}

fn mk_pod(name: &str, cpus: u32) -> Value {
    let amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {
            "schedulerName": "topo",
            "containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    })
}

/// Says in words what has to be done.
fn told(effects: &[Effect]) -> Vec<String> {
    let words = |effect: &Effect| match effect {
        Effect::WatchVolumes => "watch volumes".to_owned(),
        Effect::WriteVolumes(waiting, _) => {
            format!("write volumes of {}", waiting.placement.pod.key)
        }
        Effect::Bind(placement) => format!("bind {} to {}", placement.pod.key, placement.node),
        Effect::Evict(eviction) => {
            let victims = eviction.victims.iter().map(|victim| victim.key.to_string());
            let victims: Vec<String> = victims.collect();
            format!("evict {} for {}", victims.join(" "), eviction.pod.key)
        }
        Effect::Report(report) => match &**report {
            Report::Event { kind, .. } => match kind {
                EventKind::Scheduled { node } => format!("event: scheduled to {node}"),
                EventKind::Failed { message } => format!("event: {message}"),
                EventKind::Preempted { node, .. } => format!("event: preempted on {node}"),
            },
            Report::Status { .. } => "status".to_owned(),
        },
    };
    effects.iter().map(words).collect()
}

/// Returns the placement of the only effect, which binds a pod.
#[track_caller]
fn placement(effects: Vec<Effect>) -> Placement {
    match effects.into_iter().next() {
        Some(Effect::Bind(placement)) => *placement,
        other => panic!("{other:?}"),
    }
}

fn bound(core: &mut Core, placement: Placement, error: Option<bind::Error>) -> Vec<Effect> {
    let binding = Binding {
        placement,
        result: error.map_or(Ok(()), Err),
    };
    core.take(Message::Bound(Box::new(binding)))
}

#[test]
fn everything_is_known_once_each_kind_but_those_of_volumes_is_listed() {
    let mut core = mk_unsynced();
    let mut kinds = kinds::all();
    kinds.retain(|kind| kind.need() != Need::Volumes);
    for kind in kinds {
        assert!(!core.is_synced(), "before {kind:?}");
        assert_eq!(told(&list(&mut core, kind, &[])), [""; 0]);
    }
    assert!(core.is_synced());
}

#[test]
fn a_pod_is_bound_and_users_are_told_once_it_is() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    assert_eq!(told(&apply::<WirePod>(&mut core, mk_pod("p", 1))), [""; 0]);
    let effects = core.attempt_next();
    assert_eq!(told(&effects), ["bind ns/p to a"]);
    assert_eq!(told(&core.attempt_next()), [""; 0]);
    let effects = bound(&mut core, placement(effects), None);
    assert_eq!(told(&effects), ["event: scheduled to a"]);
    assert!(!core.has_ready_pod());
}

#[test]
fn a_failed_binding_gives_back_the_node_and_the_pod_waits() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    drop(apply::<WirePod>(&mut core, mk_pod("p", 4)));
    let placement = placement(core.attempt_next());
    let error = bind::Error::Timeout {
        pod: mk_key("ns", "p"),
        node: "a".to_owned(),
    };
    assert_eq!(
        told(&bound(&mut core, placement, Some(error))),
        ["event: binding pod ns/p to node a took too long", "status"]
    );
    assert!(!core.has_ready_pod());
    assert!(core.next_due(true).is_some());
    assert_eq!(core.next_due(false), None);
    drop(apply::<WirePod>(&mut core, mk_pod("q", 4)));
    assert_eq!(told(&core.attempt_next()), ["bind ns/q to a"]);
}

#[test]
fn a_pod_that_got_the_name_of_one_that_is_being_bound_keeps_its_place_in_the_queue() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    drop(apply::<WirePod>(&mut core, mk_pod("p", 1)));
    let placement = placement(core.attempt_next());
    let mut namesake = mk_pod("p", 1);
    namesake["metadata"]["uid"] = json!("uid-of-the-next");
    drop(apply::<WirePod>(&mut core, namesake));
    drop(bound(&mut core, placement, None));
    assert_eq!(told(&core.attempt_next()), ["bind ns/p to a"]);
}

#[test]
fn evictions_for_a_pod_that_is_gone_do_not_put_its_namesake_to_sleep() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    drop(apply::<WirePod>(&mut core, mk_pod("p", 1)));
    let placement = placement(core.attempt_next());
    let preemption = Preemption {
        pod: mk_key("ns", "p"),
        uid: "uid-of-the-one-before".to_owned(),
        rejected_by: Plugin::NodeResourcesFit.into(),
    };
    drop(core.take(Message::Preempted(Box::new(preemption))));
    assert!(!core.has_ready_pod(), "it is being bound");
    drop(bound(&mut core, placement, None));
    assert!(!core.has_ready_pod());
}

/// Publishes two zones of 4 CPUs each for node `a`.
fn apply_topology(core: &mut Core) {
    let amounts = |name: &str, amount: &str| json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount});
    let zone = |name: &str| json!({"name": name, "type": "Node", "resources": [amounts("cpu", "4"), amounts("memory", "4Gi")]});
    let topology = json!({
        "metadata": {"name": "a"},
        "topologyPolicies": [],
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": [zone("node-0"), zone("node-1")],
    });
    drop(apply::<NodeResourceTopology>(core, topology));
}

#[test]
fn a_pod_that_another_scheduler_placed_elsewhere_meanwhile_holds_nothing_of_our_node() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 8);
    apply_topology(&mut core);
    drop(apply::<WirePod>(&mut core, mk_pod("p", 4)));
    let placement = placement(core.attempt_next());
    // the watch is faster than the answer to the binding
    let mut elsewhere = mk_pod("p", 4);
    elsewhere["spec"]["nodeName"] = json!("b");
    drop(apply::<WirePod>(&mut core, elsewhere));
    let status = kube::core::Status::failure("pod p is already assigned", "Conflict");
    let error = bind::Error::Refused {
        pod: mk_key("ns", "p"),
        node: "a".to_owned(),
        source: Box::new(kube::Error::Api(Box::new(status.with_code(409)))),
    };
    drop(bound(&mut core, placement, Some(error)));
    drop(apply::<WirePod>(&mut core, mk_pod("q", 4)));
    assert_eq!(told(&core.attempt_next()), ["bind ns/q to a"]);
}

#[test]
fn a_pod_without_a_node_is_told_why_and_tried_when_one_is_added() {
    let mut core = mk_core();
    drop(apply::<WirePod>(&mut core, mk_pod("p", 1)));
    assert_eq!(
        told(&core.attempt_next()),
        ["event: no nodes available to schedule pods", "status"]
    );
    assert!(!core.has_ready_pod());
    apply_node(&mut core, "a", 4);
    assert!(core.has_ready_pod());
    assert_eq!(told(&core.attempt_next()), ["bind ns/p to a"]);
}

#[test]
fn a_pod_gets_the_place_of_those_that_are_evicted_for_it() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    let mut low = mk_pod("low", 4);
    low["spec"]["nodeName"] = json!("a");
    low["status"]["phase"] = json!("Running");
    drop(apply::<WirePod>(&mut core, low));
    let mut high = mk_pod("high", 4);
    high["spec"]["priority"] = json!(100);
    drop(apply::<WirePod>(&mut core, high));
    let effects = core.attempt_next();
    assert_eq!(
        told(&effects),
        [
            "event: 0/1 nodes are available: 1 Insufficient cpu.",
            "status",
            "evict ns/low for ns/high",
        ]
    );
    // it is out of the queue until the evictions are attempted, so the end of a victim does not wake it
    drop(changed(
        &mut core,
        Kind::Pod,
        Change::Delete(mk_key("ns", "low")),
    ));
    assert!(!core.has_ready_pod());
    let preemption = Preemption {
        pod: mk_key("ns", "high"),
        uid: "uid-high".to_owned(),
        rejected_by: Plugin::NodeResourcesFit.into(),
    };
    assert_eq!(
        told(&core.take(Message::Preempted(Box::new(preemption)))),
        [""; 0]
    );
    assert_eq!(told(&core.attempt_next()), ["bind ns/high to a"]);
}

fn mk_pod_with_claim(name: &str) -> Value {
    let mut pod = mk_pod(name, 1);
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    pod
}

#[test]
fn volumes_are_watched_from_the_first_pod_that_needs_them() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    assert_eq!(
        told(&apply::<WirePod>(&mut core, mk_pod("other", 1))),
        [""; 0]
    );
    let effects = apply::<WirePod>(&mut core, mk_pod_with_claim("p"));
    assert_eq!(told(&effects), ["watch volumes"]);
    assert_eq!(
        told(&apply::<WirePod>(&mut core, mk_pod_with_claim("q"))),
        [""; 0]
    );
    assert_eq!(told(&core.attempt_next()), ["bind ns/other to a"]);
    // users are not told that pods wait for the first lists
    assert_eq!(told(&core.attempt_next()), [""; 0]);
    assert_eq!(told(&core.attempt_next()), [""; 0]);
    assert!(!core.has_ready_pod());
    for kind in storage::Kind::ALL {
        drop(core.take(Notice::Refused(Kind::Storage(kind)).into()));
    }
    let effects = told(&core.attempt_next());
    assert!(
        effects[0].contains("volumes cannot be checked: persistentvolumes"),
        "{effects:?}"
    );
}

/// Applies the only volume of the cluster, owned by the claim of that uid, and its claim, bound or not.
fn apply_storage(core: &mut Core, owner: Option<&str>) {
    let mut volume = json!({
        "metadata": {"name": "v", "uid": "uid-v", "resourceVersion": if owner.is_some() { "5" } else { "4" }},
        "spec": {"storageClassName": "local", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Available"},
    });
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c", "resourceVersion": "4"},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    if let Some(uid) = owner {
        volume["spec"]["claimRef"] = json!({"namespace": "ns", "name": "c", "uid": uid});
        volume["status"]["phase"] = json!("Bound");
        claim["spec"]["volumeName"] = json!("v");
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    }
    drop(apply::<PersistentVolume>(core, volume));
    drop(apply::<PersistentVolumeClaim>(core, claim));
}

/// Builds a state in which the volumes of pod `p` are written, and waits for others to bind them.
fn mk_waiting() -> Core {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    for kind in storage::Kind::ALL {
        drop(list(&mut core, Kind::Storage(kind), &[]));
    }
    let class = json!({
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    drop(apply::<StorageClass>(&mut core, class));
    apply_storage(&mut core, None);
    drop(apply::<WirePod>(&mut core, mk_pod_with_claim("p")));
    let mut effects = core.attempt_next();
    assert_eq!(told(&effects), ["write volumes of ns/p"]);
    let Some(Effect::WriteVolumes(waiting, Some(_))) = effects.pop() else {
        panic!("the volume and the claim are known");
    };
    let written = VolumesWritten {
        waiting: *waiting,
        result: Ok(vec![5]),
    };
    let effects = core.take(Message::VolumesWritten(Box::new(written)));
    assert_eq!(told(&effects), [""; 0]);
    assert_eq!(told(&core.expire(Instant::now())), [""; 0]);
    core
}

#[test]
fn a_pod_is_bound_once_its_volumes_are() {
    let mut core = mk_waiting();
    apply_storage(&mut core, Some("uid-c"));
    assert_eq!(told(&core.expire(Instant::now())), ["bind ns/p to a"]);
}

#[test]
fn a_pod_whose_volumes_are_not_bound_in_time_waits_again() {
    let mut core = mk_waiting();
    let deadline = core.next_due(false).expect("the wait ends");
    assert_eq!(
        told(&core.expire(deadline)),
        ["event: binding volumes: not bound within 600 s", "status"]
    );
    assert_eq!(core.next_due(false), None);
}

#[test]
fn what_a_new_list_does_not_have_is_gone() {
    let mut core = mk_core();
    apply_node(&mut core, "a", 4);
    apply_node(&mut core, "b", 4);
    for name in ["p", "q"] {
        drop(apply::<WirePod>(&mut core, mk_pod(name, 1)));
    }
    assert_eq!(core.counts(), (2, 2));
    drop(list(&mut core, Kind::Node, &[PodKey::unscoped("b")]));
    drop(list(&mut core, Kind::Pod, &[mk_key("ns", "q")]));
    assert_eq!(core.counts(), (1, 1));
    assert_eq!(told(&core.attempt_next()), ["bind ns/q to b"]);
    assert!(!core.has_ready_pod());
}
