//! Static pods: pods from files in a directory of the node, each with a mirror pod in the API (kubelet-node.md 13).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::{Pod, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use serde_json::Value;

use crate::node::kubelet::Kubelet;

/// Annotations of a static pod: its source, when it was seen and its hash; and the hash on its mirror pod.
const SOURCE: &str = "kubernetes.io/config.source";
const SEEN: &str = "kubernetes.io/config.seen";
const HASH: &str = "kubernetes.io/config.hash";
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Interval of the checks of the directory. A real kubelet uses inotify, but inotify instances are scarce.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Returns whether a pod of the API is a mirror pod.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// Returns whether a pod comes from a file.
pub(crate) fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source == "file") && !is_mirror(pod)
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(name).map(String::as_str)
}

/// Why a file is not a static pod.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The file cannot be read.
    #[error("cannot read the file")]
    Read(#[from] std::io::Error),
    /// The file is not valid YAML.
    #[error("cannot parse the file")]
    Syntax(#[from] serde_yaml::Error),
    /// The object has another kind.
    #[error("kind is {0:?} instead of Pod")]
    Kind(String),
    /// The object does not have the shape of a pod.
    #[error("it is not a pod")]
    Shape(#[from] serde_json::Error),
    /// The pod has no name.
    #[error("the pod has no name")]
    Nameless,
}

/// Reads the pod of a file, with the changes that a kubelet makes.
fn read(path: &Path, shown: &Path, node: &str) -> Result<Pod, Error> {
    let mut object: Value = serde_yaml::from_str(&fs_err::read_to_string(path)?)?;
    let kind = object["kind"].as_str().unwrap_or_default();
    if kind != "Pod" {
        return Err(Error::Kind(kind.to_owned()));
    }
    apiserver::fill_in_pod(&mut object);
    let text = object.to_string();
    let mut pod: Pod = serde_json::from_value(object)?;
    let metadata = &mut pod.metadata;
    let name = metadata.name.take().filter(|name| !name.is_empty());
    let name = name.ok_or(Error::Nameless)?;
    let uid = metadata.uid.take().unwrap_or_else(|| {
        let whole = format!("{text}host:{node}file:{}", shown.display());
        format!("{:032x}", fnv_128a(whole.as_bytes()))
    });
    metadata.name = Some(format!("{name}-{}", node.to_lowercase()));
    metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(HASH.to_owned(), uid.clone());
    annotations.insert(SOURCE.to_owned(), "file".to_owned());
    annotations.insert(SEEN.to_owned(), format!("{:.9}", Timestamp::now()));
    metadata.uid = Some(uid);
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    let tolerations = spec.tolerations.get_or_insert_default();
    let everything = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    if !tolerations.contains(&everything) {
        tolerations.push(everything);
    }
    Ok(pod)
}

/// Computes the 128-bit FNV-1a hash.
fn fnv_128a(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

/// Returns the files of a directory with modification time and size. Hidden files and directories are skipped.
fn files(dir: &Path) -> BTreeSet<(PathBuf, Option<SystemTime>, u64)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .filter_map(|entry| {
            // Follows symbolic links.
            let metadata = std::fs::metadata(entry.path()).ok()?;
            let found = (entry.path(), metadata.modified().ok(), metadata.len());
            metadata.is_file().then_some(found)
        })
        .collect()
}

/// Runs the pods of a directory, given as a path of the node. Without a directory there are no static pods.
pub(crate) async fn follow(kubelet: Arc<Kubelet>, dir: Option<PathBuf>) {
    let mut before = None;
    let mut pods: Vec<Pod> = Vec::new();
    let mut refused = BTreeSet::new();
    loop {
        kubelet.until_running().await;
        let found = dir
            .as_ref()
            .map(|dir| files(&kubelet.layout.host(dir)))
            .unwrap_or_default();
        if before.as_ref() != Some(&found) {
            pods = found
                .iter()
                .filter_map(|(path, _, _)| {
                    let name = path.file_name().unwrap_or_default();
                    let shown = dir.as_deref().unwrap_or_else(|| Path::new("/")).join(name);
                    let read = read(path, &shown, &kubelet.name);
                    read.inspect_err(|error| {
                        tracing::warn!(%error, path = %shown.display(), "Not a static pod");
                    })
                    .ok()
                })
                .collect();
            before = Some(found);
        }
        kubelet.set_static_pods(&pods, &mut refused).await;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns the mirror pod of a static pod; creates it if it is missing.
pub(crate) async fn mirror(kubelet: &Kubelet, pod: &Pod) -> kube::Result<Pod> {
    let mut copy = pod.clone();
    let hash = annotation(pod, HASH).unwrap_or_default().to_owned();
    let metadata = &mut copy.metadata;
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MIRROR.to_owned(), hash);
    metadata.owner_references = kubelet.uid().map(|uid| {
        vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: kubelet.name.clone(),
            uid,
            controller: Some(true),
            ..OwnerReference::default()
        }]
    });
    copy.status = None;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(kubelet.client.clone(), namespace);
    match api.create(&PostParams::default(), &copy).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api.get(pod.metadata.name.as_deref().unwrap_or_default())
                .await
        }
        outcome => outcome,
    }
}

/// Returns whether a mirror pod matches the static pod and is not being deleted.
pub(crate) fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.deletion_timestamp.is_none()
        && annotation(mirror, MIRROR) == annotation(pod, HASH)
}

/// Removes a mirror pod; returns whether it is gone.
pub(crate) async fn remove(kubelet: &Kubelet, mirror: &Pod) -> bool {
    let metadata = &mirror.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(kubelet.client.clone(), namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = metadata.name.as_deref().unwrap_or_default();
    match api.delete(name, &parameters).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => true,
        Err(error) => {
            tracing::debug!(%error, pod = name, "A mirror is not removed yet");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: c, image: i, resources: {limits: {cpu: 2, memory: 1Gi}}}\n";

    #[test]
    fn pod_of_a_file_has_the_names_and_marks_of_its_node() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.yaml");
        fs_err::write(&path, MANIFEST).unwrap();
        let pod = read(&path, Path::new("/m/web.yaml"), "Worker-0").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-worker-0"));
        assert_eq!(pod.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(annotation(&pod, HASH), pod.metadata.uid.as_deref());
        assert!(is_static(&pod) && !is_mirror(&pod));
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(spec.node_name.as_deref(), Some("Worker-0"));
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
        let workload = kubelet_model::workload::Workload::new(&pod).unwrap();
        assert_eq!(workload.exclusive_cpus(), 2);

        let elsewhere = read(&path, Path::new("/m/web.yaml"), "worker-1").unwrap();
        assert_ne!(pod.metadata.uid, elsewhere.metadata.uid);
        let again = read(&path, Path::new("/m/web.yaml"), "Worker-0").unwrap();
        assert_eq!(pod.metadata.uid, again.metadata.uid);
    }

    #[test]
    fn other_kinds_and_nameless_pods_are_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for text in ["kind: Node", "kind: Pod", "kind: [", ""] {
            fs_err::write(&path, text).unwrap();
            assert!(read(&path, &path, "n").is_err(), "{text}");
        }
    }

    #[test]
    fn hash_is_that_of_its_definition() {
        // Test vectors of draft-eastlake-fnv: the empty input and "a".
        assert_eq!(fnv_128a(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv_128a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
