//! The objects on which an explanation is based: those of a live cluster, or saved ones.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node as WireNode, PersistentVolume, PersistentVolumeClaim, Pod as WirePod,
    ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt as _};
use nrt::decode::decode;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::cache::Cache;
use crate::state::cluster::{Budget, Cluster, GroupKind, Node, labelled};
use crate::state::pod::{Pod, PodKey};
use crate::state::storage::{self, Object, Stored};

/// Maximum number of objects in a page of a list.
const PAGE: u32 = 500;

/// The objects of a cluster at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Their origin, in words.
    pub origin: String,
    /// What was left out, and why.
    pub notes: Vec<String>,
    nodes: Vec<WireNode>,
    topologies: Vec<NodeResourceTopology>,
    pods: Vec<WirePod>,
    namespaces: Vec<Namespace>,
    budgets: Vec<PodDisruptionBudget>,
    services: Vec<Service>,
    replication_controllers: Vec<ReplicationController>,
    replica_sets: Vec<ReplicaSet>,
    stateful_sets: Vec<StatefulSet>,
    /// Objects that volumes depend on.
    storage: Vec<(PodKey, Object)>,
}

impl Snapshot {
    /// Returns a pod.
    pub fn pod(&self, key: &PodKey) -> Option<WirePod> {
        self.pods
            .iter()
            .find(|pod| {
                pod.name_any() == key.name
                    && pod.namespace().as_deref() == Some(key.namespace.as_str())
            })
            .cloned()
    }

    /// Returns the state of a scheduler for which this pod is still to be placed. What the pod already holds counts as taken in the zones,
    /// because zones are as the kubelet reports them.
    pub fn without(&self, key: &PodKey, mut cache: Cache) -> (Cluster, Cache) {
        let mut cluster = Cluster::new();
        for namespace in &self.namespaces {
            cluster.apply_namespace(namespace.name_any(), namespace.labels().clone());
        }
        for node in &self.nodes {
            if let Some(node) = Node::read(node.clone()) {
                cluster.apply_node(node);
            }
        }
        for pod in self.pods.iter().filter_map(|pod| Pod::read(pod.clone())) {
            if let Some(node) = &pod.node {
                cache.apply_pod(node, &pod);
            }
            if &pod.key != key {
                cluster.apply_pod(pod);
            }
        }
        for budget in &self.budgets {
            if let Some((key, budget)) = Budget::read(budget.clone()) {
                cluster.apply_budget(key, budget);
            }
        }
        self.apply_groups(&mut cluster);
        for (key, object) in self.storage.iter().cloned() {
            cluster.storage_mut().apply(key, object);
        }
        for nrt in &self.topologies {
            let (topology, _) = decode(nrt);
            cache.apply_nrt(&nrt.name_any(), topology);
        }
        (cluster, cache)
    }

    fn apply_groups(&self, cluster: &mut Cluster) {
        let mut apply = |kind, metadata: &ObjectMeta, selector: Option<LabelSelector>| {
            if let (Some(key), Some(selector)) = (PodKey::of(metadata), selector) {
                cluster.apply_group(kind, key, selector);
            }
        };
        for service in &self.services {
            let labels = service.spec.as_ref().and_then(|spec| spec.selector.clone());
            apply(GroupKind::Service, service.meta(), labels.map(labelled));
        }
        for controller in &self.replication_controllers {
            let labels = controller
                .spec
                .as_ref()
                .and_then(|spec| spec.selector.clone());
            apply(
                GroupKind::ReplicationController,
                controller.meta(),
                labels.map(labelled),
            );
        }
        for set in &self.replica_sets {
            let selector = set.spec.as_ref().map(|spec| spec.selector.clone());
            apply(GroupKind::ReplicaSet, set.meta(), selector);
        }
        for set in &self.stateful_sets {
            let selector = set.spec.as_ref().map(|spec| spec.selector.clone());
            apply(GroupKind::StatefulSet, set.meta(), selector);
        }
    }

    fn check(mut self) -> anyhow::Result<Self> {
        if self.nodes.is_empty() {
            anyhow::bail!("there is no node among {}", self.origin);
        }
        if self.topologies.is_empty() {
            self.notes.push(format!(
                "there is no NodeResourceTopology among {}: no node's zones are known",
                self.origin
            ));
        }
        for nrt in &self.topologies {
            let (_, problems) = decode(nrt);
            let problems = problems
                .iter()
                .map(|problem| format!("NodeResourceTopology {}: {problem}", nrt.name_any()));
            self.notes.extend(problems);
        }
        Ok(self)
    }
}

/// Reads all objects of a live cluster.
pub async fn live(kubeconfig: Option<&Path>) -> anyhow::Result<Snapshot> {
    let client = match kubeconfig {
        Some(path) => daemon::client::client(Some(path))
            .await
            .context("cannot reach the API server")?,
        // same lookup as kubectl
        None => Client::try_default()
            .await
            .context("cannot reach the API server")?,
    };
    let mut notes = Vec::new();
    Snapshot {
        origin: "the cluster's objects".to_owned(),
        nodes: all(&client).await?,
        topologies: all(&client).await?,
        pods: all(&client).await?,
        namespaces: all(&client).await?,
        budgets: if_allowed(&client, &mut notes).await,
        services: if_allowed(&client, &mut notes).await,
        replication_controllers: if_allowed(&client, &mut notes).await,
        replica_sets: if_allowed(&client, &mut notes).await,
        stateful_sets: if_allowed(&client, &mut notes).await,
        storage: [
            stored::<PersistentVolume>(&client, &mut notes).await,
            stored::<PersistentVolumeClaim>(&client, &mut notes).await,
            stored::<StorageClass>(&client, &mut notes).await,
            stored::<CSINode>(&client, &mut notes).await,
            stored::<CSIDriver>(&client, &mut notes).await,
            stored::<CSIStorageCapacity>(&client, &mut notes).await,
            stored::<VolumeAttachment>(&client, &mut notes).await,
        ]
        .concat(),
        notes,
    }
    .check()
}

/// Lists objects that refine the explanation. Without the right to list them, the result is empty and a note says so.
async fn if_allowed<K>(client: &Client, notes: &mut Vec<String>) -> Vec<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    all(client).await.unwrap_or_else(|error| {
        notes.push(format!(
            "{error:#}: the explanation assumes that there are none"
        ));
        Vec::new()
    })
}

/// Like [`if_allowed`], for objects that volumes depend on.
async fn stored<K: Stored>(client: &Client, notes: &mut Vec<String>) -> Vec<(PodKey, Object)> {
    let objects = if_allowed::<K>(client, notes).await;
    objects.into_iter().filter_map(storage::read).collect()
}

async fn all<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let list = api
            .list(&params)
            .await
            .with_context(|| format!("cannot list {}", K::plural(&())))?;
        objects.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(objects),
        }
    }
}

/// Reads all objects from the files of a directory: `*.yaml`, `*.yml` and `*.json`, each with objects or lists of objects.
pub fn saved(directory: &Path) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot {
        origin: format!("the objects saved in {}", directory.display()),
        ..Snapshot::default()
    };
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read directory {}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot read directory {}", directory.display()))?
            .path();
        let wanted = ["yaml", "yml", "json"];
        if path
            .extension()
            .is_some_and(|extension| wanted.iter().any(|wanted| extension == *wanted))
        {
            files.push(path);
        }
    }
    files.sort();
    let mut others: BTreeMap<String, usize> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        for document in serde_yaml::Deserializer::from_str(&text) {
            let value = Value::deserialize(document)
                .with_context(|| format!("{} is neither YAML nor JSON", file.display()))?;
            for object in objects(value) {
                let kind = object["kind"].as_str().unwrap_or_default().to_owned();
                snapshot
                    .add(&kind, object, &mut others)
                    .with_context(|| format!("{} holds an invalid {kind}", file.display()))?;
            }
        }
    }
    for (kind, count) in others {
        let kind = if kind.is_empty() {
            "objects without kind".to_owned()
        } else {
            kind
        };
        snapshot.notes.push(format!("{count} {kind} ignored"));
    }
    snapshot.check()
}

impl Snapshot {
    fn add(
        &mut self,
        kind: &str,
        object: Value,
        others: &mut BTreeMap<String, usize>,
    ) -> Result<(), serde_json::Error> {
        match kind {
            "Node" => self.nodes.push(serde_json::from_value(object)?),
            "Pod" => self.pods.push(serde_json::from_value(object)?),
            "Namespace" => self.namespaces.push(serde_json::from_value(object)?),
            "PodDisruptionBudget" => self.budgets.push(serde_json::from_value(object)?),
            "Service" => self.services.push(serde_json::from_value(object)?),
            "ReplicationController" => {
                self.replication_controllers
                    .push(serde_json::from_value(object)?);
            }
            "ReplicaSet" => self.replica_sets.push(serde_json::from_value(object)?),
            "StatefulSet" => self.stateful_sets.push(serde_json::from_value(object)?),
            "PersistentVolume" => self.store::<PersistentVolume>(object)?,
            "PersistentVolumeClaim" => self.store::<PersistentVolumeClaim>(object)?,
            "StorageClass" => self.store::<StorageClass>(object)?,
            "CSINode" => self.store::<CSINode>(object)?,
            "CSIDriver" => self.store::<CSIDriver>(object)?,
            "CSIStorageCapacity" => self.store::<CSIStorageCapacity>(object)?,
            "VolumeAttachment" => self.store::<VolumeAttachment>(object)?,
            "NodeResourceTopology" => self.topologies.push(serde_json::from_value(object)?),
            other => *others.entry(other.to_owned()).or_default() += 1,
        }
        Ok(())
    }

    fn store<K: Stored>(&mut self, object: Value) -> Result<(), serde_json::Error> {
        let object: K = serde_json::from_value(object)?;
        self.storage.extend(storage::read(object));
        Ok(())
    }
}

/// Returns the object, or the objects of a list. Objects in a list of one kind may omit their kind.
fn objects(value: Value) -> Vec<Value> {
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    let (Some(of), Value::Object(mut fields)) = (kind.strip_suffix("List"), value.clone()) else {
        return if value.is_null() {
            Vec::new()
        } else {
            vec![value]
        };
    };
    let Some(Value::Array(items)) = fields.remove("items") else {
        return Vec::new();
    };
    items
        .into_iter()
        .map(|mut item| {
            if item["kind"].is_null() && item.is_object() {
                item["kind"] = Value::from(of);
            }
            item
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write(files: &[(&str, Value)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("temporary directory");
        for (name, value) in files {
            std::fs::write(directory.path().join(name), value.to_string()).expect("file");
        }
        directory
    }

    #[test]
    fn lists_and_single_objects_are_read_and_the_rest_is_counted() {
        let directory = write(&[
            (
                "a.json",
                json!({"kind": "List", "items": [
                    {"kind": "Node", "metadata": {"name": "n"}},
                    {"kind": "ConfigMap", "metadata": {"name": "c"}},
                ]}),
            ),
            (
                "b.yaml",
                json!({"kind": "PodList", "items": [{"metadata": {"name": "p", "namespace": "ns"}}]}),
            ),
            ("c.txt", json!("ignored")),
        ]);
        let snapshot = saved(directory.path()).expect("readable");
        assert_eq!((snapshot.nodes.len(), snapshot.pods.len()), (1, 1));
        assert!(snapshot.notes.contains(&"1 ConfigMap ignored".to_owned()));
        assert_eq!(snapshot.notes.len(), 2, "{:?}", snapshot.notes);
    }

    #[test]
    fn an_invalid_object_is_named_with_its_file() {
        let directory = write(&[("n.json", json!({"kind": "Node", "spec": 3}))]);
        let error = saved(directory.path()).expect_err("invalid");
        assert!(
            format!("{error:#}").contains("n.json holds an invalid Node"),
            "{error:#}"
        );
    }
}
