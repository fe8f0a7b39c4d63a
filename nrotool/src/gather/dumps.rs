//! The fingerprint status that exporters and schedulers write down (scenarios-other.md 10.5).

use api::names;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::Api;

use super::folder::name;
use super::{Gather, namespaces};
use crate::cluster::is_running;
use crate::{cluster, exec, schedlogs};

/// Collects the dumps of a namespace.
pub(super) async fn collect(gather: &Gather, namespace: &str) {
    let folder = format!("namespaces/{}/pfpstatus", name(namespace));
    for pod in running(gather, namespace, &namespaces::exporters()).await {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let folder = format!("{folder}/resource-topology-exporters");
        read(gather, &pod, node.as_slice(), &folder).await;
    }
    let schedulers = schedulers(gather, namespace).await;
    if schedulers.is_empty() {
        return;
    }
    let nodes: Api<Node> = Api::all(gather.client.clone());
    let nodes = gather.limits.request(cluster::list(&nodes, "")).await;
    let nodes = gather
        .folder
        .or_error("nodes of the scheduler's dumps", nodes);
    let nodes: Vec<String> = nodes.iter().flatten().map(ResourceExt::name_any).collect();
    for (index, pod) in schedulers.iter().enumerate() {
        // tools expect one folder of this name; the other replicas have theirs beside it
        let folder = if index == 0 {
            format!("{folder}/scheduler")
        } else {
            format!("{folder}/other-schedulers/{}", name(&pod.name_any()))
        };
        read(gather, pod, &nodes, &folder).await;
    }
}

/// Returns the scheduler's running pods of a namespace, the leader first.
pub(super) async fn schedulers(gather: &Gather, namespace: &str) -> Vec<Pod> {
    let mut pods = running(gather, namespace, &namespaces::schedulers(namespace)).await;
    if pods.len() > 1
        && let Ok(leader) = schedlogs::leader(&gather.client, namespace).await
    {
        pods.sort_by_key(|pod| pod.name_any() != leader);
    }
    pods
}

/// Returns the running pods of a namespace with these labels.
pub(super) async fn running(gather: &Gather, namespace: &str, selector: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(gather.client.clone(), namespace);
    let pods = gather.limits.request(cluster::list(&pods, selector)).await;
    let what = format!("pods with labels {selector} of namespace {namespace}");
    let pods = gather.folder.or_error(&what, pods).unwrap_or_default();
    pods.into_iter().filter(is_running).collect()
}

/// Reads the files of these nodes in the container that has the directory of dumps. A pod without such a directory writes none; a file that is
/// not there was never written.
async fn read(gather: &Gather, pod: &Pod, nodes: &[String], folder: &str) {
    let Some((container, directory)) = dumping(pod) else {
        return;
    };
    for node in nodes {
        let file = node.replace('.', "_");
        let path = format!("{directory}/{file}");
        let command = ["cat", path.as_str()];
        let read = exec::run(&gather.client, pod, container, &command);
        match gather.limits.request(read).await {
            Ok(text) => gather
                .folder
                .text(&format!("{folder}/{}", name(&file)), &text),
            Err(super::limits::Error::Failed(exec::Error::Failed { .. })) => {}
            Err(error) => {
                let what = format!("fingerprint status of {} for {node}", pod.name_any());
                gather.folder.failed(&what, &error);
            }
        }
    }
}

/// Returns the container that writes dumps, and into which directory.
fn dumping(pod: &Pod) -> Option<(&str, &str)> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find_map(|container| {
        let mut variables = container.env.iter().flatten();
        let variable = variables.find(|variable| variable.name == names::ENV_PFP_STATUS_DUMP)?;
        let directory = variable
            .value
            .as_deref()
            .filter(|value| !value.is_empty())?;
        Some((container.name.as_str(), directory))
    })
}
