//! Compares our filters and scores with those of a real kube-scheduler: on the same snapshot they must give the same verdict for the same
//! reasons, and the same scores. The corpus comes from `cargo xtask record scheduler`.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use rstest::rstest;
use scheduler::framework::extension_points::{Attempt, Filters, scores};
use scheduler::framework::profile::Profile;
use scheduler::numa::cache::Cache;
use scheduler::numa::settings::Settings;
use scheduler::plugins::node_info::NodeInfo;
use scheduler::plugins::plugin::Plugin;
use scheduler::state::cluster::{Cluster, labelled};
use scheduler::state::group_kind::GroupKind;
use scheduler::state::node::Node;
use scheduler::state::pod::{Pod, PodKey};
use scheduler::state::storage::{self, Object, Stored};
use scheduler_config::args::NodeResourceTopologyMatchArgs;
use serde::Deserialize;
use serde_json::{Value, json};

/// Minimum number of cases that the corpus must have.
const CASES: usize = 200;

/// A line of the corpus of verdicts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    case: String,
    namespaces: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    #[serde(default)]
    storage: Vec<Value>,
    pod: Value,
    node: String,
    pinned_by: String,
    reasons: Vec<String>,
}

impl Recorded {
    /// Returns why our filters rule out the node.
    fn our_reasons(&self, plugin: &str) -> Vec<String> {
        let mut cluster = cluster(&self.namespaces, &self.nodes, &self.pods);
        for object in &self.storage {
            let (key, object) = stored(object.clone());
            cluster.storage_mut().apply(key, object);
        }
        let args = NodeResourceTopologyMatchArgs::default();
        let cache = Cache::new(Settings::new(&args, [].into()));
        let pod = read(&self.pod);
        let plugins = [&self.pinned_by, plugin].map(|name| Plugin::from_name(name).unwrap());
        let filters = Filters::from(&plugins[..]);
        let info = NodeInfo::named(&self.node, &cluster, &cache).unwrap();
        match Attempt::new(&filters, &cluster, &pod).examine(&info) {
            Ok(()) => Vec::new(),
            Err(rejection) => {
                let reasons = rejection.reasons.into_iter();
                reasons.map(std::borrow::Cow::into_owned).collect()
            }
        }
    }
}

/// A line of the corpus of scores.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scored {
    case: String,
    plugin: String,
    args: Value,
    cluster_nodes: usize,
    namespaces: Vec<Value>,
    groups: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    pod: Value,
    scores: BTreeMap<String, i64>,
}

impl Scored {
    fn cluster(&self) -> Cluster {
        let mut cluster = cluster(&self.namespaces, &self.nodes, &self.pods);
        for number in self.nodes.len()..self.cluster_nodes {
            cluster.apply_node(Node {
                name: format!("of-others-{number}"),
                ..Node::default()
            });
        }
        for group in &self.groups {
            let selector = &group["spec"]["selector"];
            let labels = |labels: &Value| labelled(serde_json::from_value(labels.clone()).unwrap());
            let (kind, selector) = match group["kind"].as_str().unwrap() {
                "Service" => (GroupKind::Service, labels(selector)),
                "ReplicationController" => (GroupKind::ReplicationController, labels(selector)),
                "ReplicaSet" => (GroupKind::ReplicaSet, labels(&selector["matchLabels"])),
                other => {
                    assert_eq!(other, "StatefulSet");
                    (GroupKind::StatefulSet, labels(&selector["matchLabels"]))
                }
            };
            let key = PodKey {
                namespace: group["metadata"]["namespace"].as_str().unwrap().to_owned(),
                name: group["metadata"]["name"].as_str().unwrap().to_owned(),
            };
            cluster.apply_group(kind, key, selector);
        }
        cluster
    }

    /// Returns the scores of our plugin for the nodes that kube-scheduler scored.
    fn our_scores(&self) -> BTreeMap<String, i64> {
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"pluginConfig": [{"name": self.plugin, "args": self.args}]}],
        });
        let config = scheduler_config::parse(&config.to_string()).unwrap();
        let profile = Profile::new(&config.profiles[0]);
        let plugins = profile.scores.iter().map(|weighted| &weighted.plugin);
        let mut plugins = plugins.filter(|plugin| plugin.name() == self.plugin);
        let cluster = self.cluster();
        let args = NodeResourceTopologyMatchArgs::default();
        let cache = Cache::new(Settings::new(&args, [].into()));
        let nodes: Vec<_> = NodeInfo::all(&cluster, &cache)
            .filter(|info| self.scores.contains_key(&info.node.name))
            .collect();
        let scores = scores(plugins.next().unwrap(), &read(&self.pod), &nodes, &cluster);
        let names = nodes.iter().map(|info| info.node.name.clone());
        names.zip(scores).collect()
    }
}

fn cluster(namespaces: &[Value], nodes: &[Value], pods: &[Value]) -> Cluster {
    let mut cluster = Cluster::new();
    for namespace in namespaces {
        let name = namespace["metadata"]["name"].as_str().unwrap().to_owned();
        let labels = serde_json::from_value(namespace["metadata"]["labels"].clone()).unwrap();
        cluster.apply_namespace(name, labels);
    }
    for node in nodes {
        cluster.apply_node(Node::read(serde_json::from_value(node.clone()).unwrap()).unwrap());
    }
    for pod in pods {
        cluster.apply_pod(read(pod));
    }
    cluster
}

fn stored(object: Value) -> (PodKey, Object) {
    fn read<K: Stored>(object: Value) -> (PodKey, Object) {
        storage::read::<K>(serde_json::from_value(object).unwrap()).unwrap()
    }
    match object["kind"].as_str().unwrap() {
        "PersistentVolume" => read::<PersistentVolume>(object),
        "PersistentVolumeClaim" => read::<PersistentVolumeClaim>(object),
        "StorageClass" => read::<StorageClass>(object),
        "CSINode" => read::<CSINode>(object),
        "CSIDriver" => read::<CSIDriver>(object),
        "CSIStorageCapacity" => read::<CSIStorageCapacity>(object),
        other => {
            assert_eq!(other, "VolumeAttachment");
            read::<VolumeAttachment>(object)
        }
    }
}

fn read(pod: &Value) -> Pod {
    Pod::read(serde_json::from_value(pod.clone()).unwrap()).unwrap()
}

#[rstest]
#[case("NodeUnschedulable")]
#[case("TaintToleration")]
#[case("NodeAffinity")]
#[case("NodePorts")]
#[case("NodeResourcesFit")]
#[case("PodTopologySpread")]
#[case("InterPodAffinity")]
#[case("VolumeRestrictions")]
#[case("NodeVolumeLimits")]
#[case("VolumeBinding")]
#[case("VolumeZone")]
fn a_filter_judges_as_kube_scheduler_does(#[case] plugin: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/{plugin}.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    let mut different = Vec::new();
    let mut cases = 0;
    for line in text.lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        let (mut ours, mut theirs) = (recorded.our_reasons(plugin), recorded.reasons.clone());
        ours.sort();
        theirs.sort();
        if ours != theirs {
            different.push(format!(
                "{}: {ours:?}, kube-scheduler {theirs:?}",
                recorded.case
            ));
        }
        cases += 1;
    }
    assert!(cases >= CASES, "only {cases} cases are recorded");
    assert!(
        different.is_empty(),
        "{} of {cases}:\n{}",
        different.len(),
        different.join("\n")
    );
}

#[rstest]
#[case("TaintToleration")]
#[case("NodeAffinity")]
#[case("NodeResourcesFit")]
#[case("NodeResourcesFit-most")]
#[case("NodeResourcesFit-ratio")]
#[case("NodeResourcesBalancedAllocation")]
#[case("NodeResourcesBalancedAllocation-three")]
#[case("PodTopologySpread")]
#[case("PodTopologySpread-system")]
#[case("PodTopologySpread-list")]
#[case("InterPodAffinity")]
#[case("InterPodAffinity-ignoring")]
#[case("ImageLocality")]
fn a_score_is_that_of_kube_scheduler(#[case] name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("corpus/score-{name}.jsonl"));
    let text = fs::read_to_string(path).unwrap();
    let mut different = Vec::new();
    let (mut cases, mut with_preference) = (0, 0);
    for line in text.lines() {
        let recorded: Scored = serde_json::from_str(line).unwrap();
        let ours = recorded.our_scores();
        if ours != recorded.scores {
            different.push(format!(
                "{}: {ours:?}, kube-scheduler {:?}",
                recorded.case, recorded.scores
            ));
        }
        cases += 1;
        let mut scores = recorded.scores.values();
        let first = scores.next();
        with_preference += usize::from(scores.any(|score| Some(score) != first));
    }
    assert!(cases >= CASES, "only {cases} cases are recorded");
    assert!(
        with_preference >= CASES / 4,
        "only {with_preference} cases prefer a node"
    );
    assert!(
        different.is_empty(),
        "{} of {cases}:\n{}",
        different.len(),
        different.join("\n")
    );
}
