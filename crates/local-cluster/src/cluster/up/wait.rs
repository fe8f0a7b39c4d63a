//! Waits for the parts of a starting cluster, and notices those that end instead.

use std::time::{Duration, Instant};

use cluster_spec::progress::{Progress, Report};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};

use super::Error;
use crate::cluster::LocalCluster;
use crate::containerd::registry;
use crate::control_plane::{API_SERVER, log_file};
use crate::kube_proxy;
use crate::kubelet::runtime_process;
use crate::node_handle::{NodeHandle, POLL_PAUSE, tail};

/// Longest time for the API server to answer.
const API_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest time for the runtime of a node to answer.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for the rules of Services to be there.
const PROXY_TIMEOUT: Duration = Duration::from_mins(1);
/// Longest time for the registry to answer.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for all nodes to be ready with their devices.
const NODES_TIMEOUT: Duration = Duration::from_secs(150);

pub(super) async fn wait_for_runtime(
    cluster: &LocalCluster,
    node: &NodeHandle,
) -> Result<(), Error> {
    let deadline = Instant::now() + RUNTIME_TIMEOUT;
    while std::os::unix::net::UnixStream::connect(node.cri_socket()).is_err() {
        check_components(cluster)?;
        if Instant::now() > deadline {
            let name = runtime_process(node.name());
            return Err(timeout_error(
                cluster,
                &name,
                "does not answer",
                RUNTIME_TIMEOUT,
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub(super) async fn wait_for_registry(cluster: &LocalCluster) -> Result<(), Error> {
    let deadline = Instant::now() + REGISTRY_TIMEOUT;
    let address = registry::address(cluster.subnet());
    while tokio::net::TcpStream::connect(address).await.is_err() {
        check_components(cluster)?;
        if Instant::now() > deadline {
            return Err(timeout_error(
                cluster,
                registry::PROCESS,
                "does not answer",
                REGISTRY_TIMEOUT,
            ));
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
    Ok(())
}

pub(super) async fn wait_for_api(cluster: &LocalCluster) -> Result<(), Error> {
    let deadline = Instant::now() + API_TIMEOUT;
    loop {
        if is_ready(cluster).await {
            return Ok(());
        }
        check_components(cluster)?;
        if Instant::now() > deadline {
            return Err(timeout_error(
                cluster,
                API_SERVER,
                "is not ready",
                API_TIMEOUT,
            ));
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
}

/// Waits until the kube-proxy of a node has written rules.
pub(super) async fn wait_for_proxy(cluster: &LocalCluster, node: &NodeHandle) -> Result<(), Error> {
    let deadline = Instant::now() + PROXY_TIMEOUT;
    let path = kube_proxy::health_path(node.name());
    loop {
        let request = http::Request::get(&path).body(Vec::new());
        let request = request.map_err(std::io::Error::other)?;
        // A refused connection means the same as no rules: not yet.
        let health = cluster.client().request_text(request).await;
        if health.is_ok_and(|health| kube_proxy::has_rules(&health)) {
            return Ok(());
        }
        check_components(cluster)?;
        if Instant::now() > deadline {
            let name = kube_proxy::process_name(node.name());
            return Err(timeout_error(
                cluster,
                &name,
                "wrote no rules",
                PROXY_TIMEOUT,
            ));
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
}

async fn is_ready(cluster: &LocalCluster) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
        return false;
    };
    // A refused connection and an unready answer mean the same: not yet.
    matches!(cluster.client().request_text(request).await, Ok(answer) if answer == "ok")
}

/// Waits until every node is ready, labelled, and has its devices.
pub(super) async fn wait_for_nodes(
    cluster: &LocalCluster,
    report: Report<'_>,
) -> Result<(), Error> {
    let deadline = Instant::now() + NODES_TIMEOUT;
    let api: Api<Node> = Api::all(cluster.client());
    let mut labelled = vec![false; cluster.nodes().len()];
    let mut reported = vec![false; cluster.nodes().len()];
    loop {
        let nodes = match api.list(&ListParams::default()).await {
            Ok(nodes) => nodes.items,
            Err(source) => {
                pause_after("list the nodes", source, deadline).await?;
                check_components(cluster)?;
                continue;
            }
        };
        let mut waiting = Vec::new();
        for (index, handle) in cluster.nodes().iter().enumerate() {
            let object = nodes
                .iter()
                .find(|node| node.metadata.name.as_deref() == Some(handle.name()));
            let Some(object) = object else {
                waiting.push(format!("{} has not registered", handle.name()));
                continue;
            };
            if !labelled[index] {
                match label(&api, handle).await {
                    Ok(()) => labelled[index] = true,
                    Err(source) => {
                        pause_after("label a node", source, deadline).await?;
                        waiting.push(format!("{} has no labels", handle.name()));
                        continue;
                    }
                }
            }
            let problem = handle
                .why_not_ready(object, 0)
                .or_else(|| startup_taint(object));
            match problem {
                Some(problem) => waiting.push(format!("{} {problem}", handle.name())),
                None if !reported[index] => {
                    reported[index] = true;
                    report(Progress::Advanced(format!("{} ready", handle.name())));
                }
                None => {}
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        check_components(cluster)?;
        if Instant::now() > deadline {
            let name = waiting[0].split(' ').next().unwrap_or_default().to_owned();
            let problem = format!(
                "kept the cluster from getting ready: {}",
                waiting.join("; ")
            );
            return Err(timeout_error(
                cluster,
                &format!("kubelet/{name}"),
                &problem,
                NODES_TIMEOUT,
            ));
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
}

/// Returns a taint that a node has until the controller manager has seen it ready.
fn startup_taint(node: &Node) -> Option<String> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    taints
        .iter()
        .find(|taint| taint.key.starts_with("node.kubernetes.io/"))
        .map(|taint| format!("still has the taint {}", taint.key))
}

async fn label(api: &Api<Node>, node: &NodeHandle) -> kube::Result<()> {
    let patch = serde_json::json!({ "metadata": { "labels": node.plan().labels } });
    api.patch(node.name(), &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Pauses after a failed request. The API server of a busy machine may fail to answer while the cluster starts, so the failure becomes an
/// error only if the server refused the request or the deadline is over.
async fn pause_after(action: &str, source: kube::Error, deadline: Instant) -> Result<(), Error> {
    let refused = matches!(&source, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429);
    if refused || Instant::now() > deadline {
        return Err(Error::Api {
            action: action.to_owned(),
            source: Box::new(source),
        });
    }
    tracing::debug!(error = %source, "Cannot {action} yet");
    tokio::time::sleep(POLL_PAUSE).await;
    Ok(())
}

/// Returns an error if any process of the cluster has ended, because none should.
fn check_components(cluster: &LocalCluster) -> Result<(), Error> {
    let ended = cluster
        .holder()
        .list()?
        .into_iter()
        .find_map(|process| process.ended.clone().map(|end| (process, end)));
    match ended {
        None => Ok(()),
        Some((process, end)) => Err(Error::Component {
            name: process.name,
            problem: format!("ended ({end})"),
            tail: tail(&process.log),
            log: process.log,
        }),
    }
}

fn timeout_error(cluster: &LocalCluster, name: &str, problem: &str, limit: Duration) -> Error {
    let log = log_file(cluster.dir(), name);
    Error::Component {
        name: name.to_owned(),
        problem: format!("{problem} after {} s", limit.as_secs()),
        tail: tail(&log),
        log,
    }
}
