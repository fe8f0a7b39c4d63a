//! The objects on which an explanation is based: those of a live cluster, or saved ones.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use futures::future::BoxFuture;
use kube::Client;
use kube::api::{Api, ListParams};
use serde::Deserialize as _;
use serde_json::Value;

use crate::numa::cache::Cache;
use crate::state::cluster::Cluster;
use crate::state::pod::{Pod, PodKey};
use crate::watch::kinds::{self, Kind, Need, Object, Visitor, Watched};

/// Maximum number of objects in a page of a list.
const PAGE: u32 = 500;

/// The objects of a cluster at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Their origin, in words.
    pub origin: String,
    /// What was left out, and why.
    pub notes: Vec<String>,
    /// Parts of objects that are not used because they are invalid.
    problems: Vec<String>,
    /// Number of objects by kind.
    counts: BTreeMap<Kind, usize>,
    objects: Vec<(PodKey, Object)>,
}

impl Snapshot {
    fn add<K: Watched>(&mut self, wire: K) {
        *self.counts.entry(K::KIND).or_default() += 1;
        let problems = &mut self.problems;
        let read = wire.read(|name, problem| {
            problems.push(format!("{} {name}: {problem}", K::kind(&())));
        });
        self.objects.extend(read);
    }

    fn count(&self, kind: Kind) -> usize {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    /// Returns a pod.
    pub fn pod(&self, key: &PodKey) -> Option<Pod> {
        self.objects
            .iter()
            .find_map(|(other, object)| match object {
                Object::Pod(pod) if other == key => Some((**pod).clone()),
                _ => None,
            })
    }

    /// Returns the state of a scheduler for which this pod is still to be placed. What the pod already holds counts as taken in the zones,
    /// because zones are as the kubelet reports them.
    pub fn without(&self, key: &PodKey, mut cache: Cache) -> (Cluster, Cache) {
        let mut cluster = Cluster::new();
        for (name, object) in self.objects.iter().cloned() {
            match object {
                Object::Node(node) => drop(cluster.apply_node(*node)),
                Object::Pod(pod) => {
                    if let Some(node) = &pod.node {
                        cache.apply_pod(node, &pod);
                    }
                    if name != *key {
                        cluster.apply_pod(*pod);
                    }
                }
                Object::Budget(budget) => cluster.apply_budget(name, budget),
                Object::Namespace(labels) => cluster.apply_namespace(name.name, labels),
                Object::Group(kind, Some(selector)) => cluster.apply_group(kind, name, selector),
                Object::Storage(object) => drop(cluster.storage_mut().apply(name, object)),
                Object::Group(_, None) | Object::Topology(_) => {}
            }
        }
        // the cache has to know the pods of a node before its NRT, which may account for them
        for (node, object) in &self.objects {
            if let Object::Topology(topology) = object {
                cache.apply_nrt(&node.name, (**topology).clone());
            }
        }
        (cluster, cache)
    }

    fn check(mut self) -> anyhow::Result<Self> {
        if self.count(Kind::Node) == 0 {
            anyhow::bail!("there is no node among {}", self.origin);
        }
        if self.count(Kind::NodeResourceTopology) == 0 {
            self.notes.push(format!(
                "there is no NodeResourceTopology among {}: no node's zones are known",
                self.origin
            ));
        }
        self.notes.append(&mut self.problems);
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
    let mut listing = Listing {
        client,
        lists: Vec::new(),
    };
    kinds::each(&mut listing);
    let mut snapshot = Snapshot {
        origin: "the cluster's objects".to_owned(),
        ..Snapshot::default()
    };
    for (kind, list) in listing.lists {
        match list.await {
            Ok(add) => add(&mut snapshot),
            Err(error) if is_indispensable(kind) => return Err(error),
            Err(error) => snapshot.notes.push(format!(
                "{error:#}: the explanation assumes that there are none"
            )),
        }
    }
    snapshot.check()
}

/// Returns whether nothing can be explained without the right to list a kind. The others refine the explanation: without that right, a note
/// says so.
fn is_indispensable(kind: Kind) -> bool {
    kind.need() == Need::Always && kind != Kind::PodDisruptionBudget
}

/// Adds the objects of one list to a snapshot.
type Add = Box<dyn FnOnce(&mut Snapshot) + Send>;

/// A list for each kind, to be requested one after another.
struct Listing {
    client: Client,
    lists: Vec<(Kind, BoxFuture<'static, anyhow::Result<Add>>)>,
}

impl Visitor for Listing {
    fn visit<K: Watched>(&mut self) {
        let client = self.client.clone();
        let list = async move {
            let objects = all::<K>(&client).await?;
            let add: Add = Box::new(|snapshot| {
                for object in objects {
                    snapshot.add(object);
                }
            });
            Ok(add)
        };
        self.lists.push((K::KIND, Box::pin(list)));
    }
}

async fn all<K: Watched>(client: &Client) -> anyhow::Result<Vec<K>> {
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
                    .add_saved(&kind, object, &mut others)
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

/// A saved object that is added to the snapshot by the kind that has its name.
struct Saved<'a> {
    kind: &'a str,
    object: Option<Value>,
    snapshot: &'a mut Snapshot,
    result: Result<(), serde_json::Error>,
}

impl Visitor for Saved<'_> {
    fn visit<K: Watched>(&mut self) {
        let Some(object) = self.object.take_if(|_| K::kind(&()) == self.kind) else {
            return;
        };
        match serde_json::from_value::<K>(object) {
            Ok(wire) => self.snapshot.add(wire),
            Err(error) => self.result = Err(error),
        }
    }
}

impl Snapshot {
    fn add_saved(
        &mut self,
        kind: &str,
        object: Value,
        others: &mut BTreeMap<String, usize>,
    ) -> Result<(), serde_json::Error> {
        let mut saved = Saved {
            kind,
            object: Some(object),
            snapshot: self,
            result: Ok(()),
        };
        kinds::each(&mut saved);
        if saved.object.is_some() {
            *others.entry(kind.to_owned()).or_default() += 1;
        }
        saved.result
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
        assert_eq!(
            (snapshot.count(Kind::Node), snapshot.count(Kind::Pod)),
            (1, 1)
        );
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
