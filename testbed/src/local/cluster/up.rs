//! Bringing a cluster up: everything that can start at once does, everything else waits on conditions.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};

use super::{ClusterSpec, LocalCluster, Owned, client_from, runtime_process};
use crate::local::control_plane::{API_SERVER, ControlPlane, log_file, process, text};
use crate::local::enter::NodePlace;
use crate::local::net::{self, POD_PREFIX, Subnet};
use crate::local::node_handle::{
    self, LOOK, NodeHandle, POD_RESOURCES, POD_RESOURCES_HIDDEN, tail,
};
use crate::local::pki::{self, Pki};
use crate::local::privileges::{self, Facts, Missing};
use crate::local::process::ProcessRef;
use crate::local::progress::{Report, Step, note};
use crate::local::root::{self, Root};
use crate::local::supervise::client;
use crate::local::supervise::protocol::Announcement;
use crate::local::{state, sysfs};
use crate::node::spec::{Image, NodeSpec};

/// Longest time for the API server to answer.
const API: Duration = Duration::from_secs(90);
/// Longest time for the runtime of a node to answer.
const RUNTIME: Duration = Duration::from_secs(30);
/// Longest time for all nodes to be ready with their devices.
const NODES: Duration = Duration::from_secs(150);

/// Why a cluster did not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine does not allow it.
    #[error("this machine cannot run a local cluster, it lacks:\n{}", list(.0))]
    Privileges(Vec<Missing>),
    /// The plan makes no sense.
    #[error("cannot plan the cluster: {0}")]
    Plan(String),
    /// The state directory.
    #[error(transparent)]
    State(#[from] state::Error),
    /// The holder could not be started or prepared.
    #[error("cannot start the cluster's holder: {0}")]
    Launch(String),
    /// The holder refused or is gone.
    #[error(transparent)]
    Holder(#[from] client::Error),
    /// Keys.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// A file of the cluster.
    #[error("cannot write the files of the cluster")]
    Files(#[from] std::io::Error),
    /// The client of the new cluster.
    #[error(transparent)]
    Client(#[from] super::Error),
    /// A node failed.
    #[error(transparent)]
    Node(#[from] node_handle::Error),
    /// The API server refused something that an administrator may do.
    #[error("cannot {action}")]
    Api {
        /// What was tried.
        action: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// A part of the cluster ended or took too long.
    #[error("{name} {problem}; its log is {}:\n{tail}", log.display())]
    Part {
        /// Name of the process.
        name: String,
        /// What is wrong.
        problem: String,
        /// File with its log.
        log: PathBuf,
        /// Last lines of it.
        tail: String,
    },
}

fn list(missing: &[Missing]) -> String {
    let lines: Vec<String> = missing
        .iter()
        .map(|missing| format!("- {missing}"))
        .collect();
    lines.join("\n")
}

pub(super) async fn up(spec: ClusterSpec, report: Report<'_>) -> Result<LocalCluster, Error> {
    check(&spec)?;
    let whole = Step::begin(
        report,
        format!("cluster {} with {} nodes", spec.name, spec.nodes.len()),
    );
    let (dir, swept) = state::claim(&spec)?;
    for name in swept {
        note(
            report,
            format!("removed what was left of the dead cluster {name}"),
        );
    }
    let cluster = prepare(&spec, &dir, report).await?;
    match start(&cluster, report).await {
        Ok(()) => {}
        Err(error) => {
            cluster.abandon();
            return Err(error);
        }
    }
    whole.finish();
    Ok(cluster)
}

/// Whether this machine and this process may run a cluster with this many nodes; looks only at facts and starts nothing.
pub fn check_privileges(nodes: usize) -> Result<(), Error> {
    let missing = privileges::missing(&Facts::gather(), nodes);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Error::Privileges(missing))
    }
}

/// Whatever can be known to be wrong before anything starts.
fn check(spec: &ClusterSpec) -> Result<(), Error> {
    check_privileges(spec.nodes.len())?;
    if spec.nodes.is_empty() || spec.nodes.len() > net::MAX_NODES {
        return Err(Error::Plan(format!(
            "{} nodes, must be 1 to {}",
            spec.nodes.len(),
            net::MAX_NODES
        )));
    }
    let helper = spec.bin_dir.join("numaresources-testbed");
    for program in spec.assets.all().into_iter().chain([helper.as_path()]) {
        if !program.is_file() {
            return Err(Error::Plan(format!(
                "there is no program {}",
                program.display()
            )));
        }
    }
    Ok(())
}

/// Starts the holder and makes the keys of its cluster.
async fn prepare(
    spec: &ClusterSpec,
    dir: &Path,
    report: Report<'_>,
) -> Result<LocalCluster, Error> {
    fs_err::create_dir_all(dir.join("logs"))?;
    let (owned, subnet) = launch(spec, dir)?;
    note(
        report,
        format!(
            "directory {}, network {}/24",
            dir.display(),
            subnet.gateway()
        ),
    );
    let pki = pki::create(&dir.join("pki"), subnet)?;
    let plane = ControlPlane {
        dir,
        assets: &spec.assets,
        subnet,
        pki: &pki,
    };
    plane.write_credentials(spec.nodes.iter().map(|node| node.name.as_str()))?;
    let client = client_from(&plane.admin_kubeconfig()).await?;
    Ok(LocalCluster::assemble(
        spec.clone(),
        subnet,
        client,
        Some(owned),
    ))
}

/// Starts everything and waits for it.
async fn start(cluster: &LocalCluster, report: Report<'_>) -> Result<(), Error> {
    let spec = cluster.spec();
    let holder = cluster.holder();
    let plane = ControlPlane {
        dir: cluster.dir(),
        assets: &spec.assets,
        subnet: cluster.subnet(),
        pki: &Pki::in_dir(&cluster.dir().join("pki"))?,
    };
    let step = Step::begin(report, "control plane");
    holder.start(plane.etcd())?;
    holder.start(plane.api_server())?;
    prepare_nodes(cluster)?;
    for node in cluster.nodes() {
        holder.start(runtime(cluster, node))?;
    }
    for node in cluster.nodes() {
        wait_for_runtime(cluster, node).await?;
        node.write_kubelet(&node.plan().kubelet)?;
        if spec.hide_allocations {
            node.spawn_hiding_proxy()?;
        }
    }
    wait_for_api(cluster).await?;
    step.finish();

    let step = Step::begin(report, "nodes");
    for node in cluster.nodes() {
        node.spawn_kubelet()?;
    }
    holder.start(plane.controller_manager())?;
    holder.start(plane.scheduler())?;
    for node in cluster.nodes() {
        node.spawn_device_plugins()?;
    }
    wait_for_nodes(cluster, report).await?;
    step.finish();
    Ok(())
}

/// Starts the holder; returns what ties it to us and the network that it found.
fn launch(spec: &ClusterSpec, dir: &Path) -> Result<(Owned, Subnet), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Launch(error.to_string());
    let log = fs_err::File::create(dir.join("logs/holder.log"))?;
    let mut launcher = Command::new(spec.bin_dir.join("numaresources-testbed"))
        .arg("supervise")
        .arg("--state-dir")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log.into_file())
        .spawn()
        .map_err(|error| failed(&error))?;
    let lifeline = launcher
        .stdin
        .take()
        .ok_or_else(|| failed(&"no pipe to it"))?;
    let output = launcher
        .stdout
        .take()
        .ok_or_else(|| failed(&"no pipe from it"))?;
    let owned = Owned::new(launcher, lifeline);
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| failed(&error))?;
        match serde_json::from_str(&line).map_err(|error| failed(&error))? {
            Announcement::Launched { pid } => {
                let holder = i32::try_from(pid).ok().and_then(ProcessRef::of);
                state::update(&spec.state_root, &spec.name, |record| {
                    record.holder = holder;
                })?;
            }
            Announcement::Ready { subnet } => {
                state::update(&spec.state_root, &spec.name, |record| {
                    record.subnet = Some(subnet);
                })?;
                return Ok((owned, subnet));
            }
            Announcement::Failed { error } => {
                owned.wait();
                return Err(Error::Launch(error));
            }
        }
    }
    owned.wait();
    Err(Error::Launch(tail(&dir.join("logs/holder.log"))))
}

/// Writes hardware, roots, keys and specifications of all nodes.
fn prepare_nodes(cluster: &LocalCluster) -> Result<(), Error> {
    let spec = cluster.spec();
    let mut trees: Vec<(&fixtures::machines::Machine, PathBuf)> = Vec::new();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let plan = &spec.nodes[index];
        let known = trees.iter().find(|(machine, _)| *machine == &plan.machine);
        let hardware = if let Some((_, tree)) = known {
            tree.clone()
        } else {
            let tree = cluster.dir().join(format!("hardware/{}", trees.len()));
            sysfs::write_tree(&plan.machine, &tree)?;
            trees.push((&plan.machine, tree.clone()));
            tree
        };
        fs_err::create_dir_all(node.dir())?;
        let place = NodePlace {
            root: Root {
                dir: node.dir().join("root"),
                sysctls: node.dir().join("sysctls"),
                hardware,
                state_dir: cluster.dir().to_owned(),
                program_dirs: program_dirs(spec),
            },
            subnet: cluster.subnet(),
            index,
            nodes: spec.nodes.len(),
        };
        root::prepare(&place.root, node.name(), node.address())?;
        write_json(&node.dir().join("place.json"), &place)?;
        write_json(&node.dir().join("node.json"), &node_spec(spec, node, index))?;
    }
    Ok(())
}

/// Directories with programs, each once.
fn program_dirs(spec: &ClusterSpec) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = spec
        .assets
        .all()
        .into_iter()
        .filter_map(Path::parent)
        .chain([spec.bin_dir.as_path()])
        .map(Path::to_owned)
        .collect();
    dirs.sort();
    dirs.dedup();
    dirs
}

fn node_spec(spec: &ClusterSpec, node: &NodeHandle, index: usize) -> NodeSpec {
    let mut overrides = std::collections::BTreeMap::new();
    if spec.hide_allocations {
        overrides.insert(
            PathBuf::from(POD_RESOURCES),
            PathBuf::from(POD_RESOURCES_HIDDEN),
        );
    }
    NodeSpec {
        node: node.name().to_owned(),
        cri_socket: node.cri_socket(),
        control_socket: node.control_socket(),
        state_dir: node.dir().join("runtime"),
        pod_gateway: net::pod_gateway(index),
        pod_prefix: POD_PREFIX,
        node_address: node.address(),
        images: [(api::names::STACK_REPOSITORY.to_owned(), stack_image(spec))].into(),
        host_path_overrides: overrides,
    }
}

/// The image of the stack: programs of the workspace under the paths that the real image has them at. What is not built
/// when the cluster comes up is not in the image.
fn stack_image(spec: &ClusterSpec) -> Image {
    let built = |name: &str| spec.bin_dir.join(name);
    let programs = [
        (
            "/bin/numaresources-operator",
            built("numaresources-operator"),
        ),
        (
            "/bin/resource-topology-exporter",
            built("numaresources-operator"),
        ),
        ("/bin/kube-scheduler", built("numaresources-scheduler")),
        ("/pause", built("numaresources-testbed")),
        ("/bin/sleep", built("numaresources-testbed")),
        ("/bin/numacell", built("numaresources-testbed")),
        ("/bin/deviceplugin", built("numaresources-testbed")),
        ("/usr/local/bin/kubectl", spec.assets.kubectl.clone()),
    ];
    Image {
        programs: programs
            .into_iter()
            .filter(|(_, program)| program.is_file())
            .map(|(path, program)| (PathBuf::from(path), program))
            .collect(),
        user: None,
        entrypoint: vec!["/pause".to_owned()],
    }
}

/// The process of a node's runtime, which makes the node's namespaces and is the first in them.
fn runtime(cluster: &LocalCluster, node: &NodeHandle) -> crate::local::supervise::protocol::Start {
    let helper = text(&cluster.spec().bin_dir.join("numaresources-testbed"));
    let argv = [
        &helper,
        "enter",
        "--place",
        &text(&node.dir().join("place.json")),
        "--",
        &helper,
        "node",
        "--spec",
        &text(&node.dir().join("node.json")),
    ];
    let argv = argv.iter().map(|argument| (*argument).to_owned()).collect();
    process(cluster.dir(), &runtime_process(node.name()), argv)
}

async fn wait_for_runtime(cluster: &LocalCluster, node: &NodeHandle) -> Result<(), Error> {
    let deadline = Instant::now() + RUNTIME;
    while std::os::unix::net::UnixStream::connect(node.cri_socket()).is_err() {
        check_parts(cluster)?;
        if Instant::now() > deadline {
            let name = runtime_process(node.name());
            return Err(late(cluster, &name, "does not answer", RUNTIME));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn wait_for_api(cluster: &LocalCluster) -> Result<(), Error> {
    let deadline = Instant::now() + API;
    loop {
        if is_ready(cluster).await {
            return Ok(());
        }
        check_parts(cluster)?;
        if Instant::now() > deadline {
            return Err(late(cluster, API_SERVER, "is not ready", API));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn is_ready(cluster: &LocalCluster) -> bool {
    let Ok(request) = http::Request::get("/readyz").body(Vec::new()) else {
        return false;
    };
    // Refused connections and unready answers are the same here: not yet.
    matches!(cluster.client().request_text(request).await, Ok(answer) if answer == "ok")
}

/// Waits until every node is ready, labelled, and has its devices.
async fn wait_for_nodes(cluster: &LocalCluster, report: Report<'_>) -> Result<(), Error> {
    let deadline = Instant::now() + NODES;
    let api: Api<Node> = Api::all(cluster.client());
    let mut labelled = vec![false; cluster.nodes().len()];
    let mut announced = vec![false; cluster.nodes().len()];
    loop {
        let nodes = api
            .list(&ListParams::default())
            .await
            .map_err(|source| api_error("list the nodes", source))?
            .items;
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
                label(&api, handle).await?;
                labelled[index] = true;
            }
            let problem = handle
                .unreadiness(object, 0)
                .or_else(|| startup_taint(object));
            match problem {
                Some(problem) => waiting.push(format!("{} {problem}", handle.name())),
                None if !announced[index] => {
                    announced[index] = true;
                    report(crate::local::progress::Progress::Advanced(format!(
                        "{} ready",
                        handle.name()
                    )));
                }
                None => {}
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        check_parts(cluster)?;
        if Instant::now() > deadline {
            let name = waiting[0].split(' ').next().unwrap_or_default().to_owned();
            let problem = format!(
                "kept the cluster from getting ready: {}",
                waiting.join("; ")
            );
            return Err(late(cluster, &format!("kubelet/{name}"), &problem, NODES));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The taint that a node carries until the controller manager has seen it ready.
fn startup_taint(node: &Node) -> Option<String> {
    let taints = node.spec.as_ref()?.taints.as_ref()?;
    taints
        .iter()
        .find(|taint| taint.key.starts_with("node.kubernetes.io/"))
        .map(|taint| format!("still has the taint {}", taint.key))
}

async fn label(api: &Api<Node>, node: &NodeHandle) -> Result<(), Error> {
    let labels: serde_json::Map<String, serde_json::Value> = node
        .plan()
        .labels
        .iter()
        .map(|label| (label.clone(), serde_json::Value::String(String::new())))
        .collect();
    let patch = serde_json::json!({ "metadata": { "labels": labels } });
    api.patch(node.name(), &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|source| api_error("label a node", source))?;
    Ok(())
}

fn api_error(action: &str, source: kube::Error) -> Error {
    Error::Api {
        action: action.to_owned(),
        source: Box::new(source),
    }
}

/// An error when any process of the cluster has ended: none is meant to.
fn check_parts(cluster: &LocalCluster) -> Result<(), Error> {
    let ended = cluster
        .holder()
        .list()?
        .into_iter()
        .find_map(|process| process.ended.clone().map(|end| (process, end)));
    match ended {
        None => Ok(()),
        Some((process, end)) => Err(Error::Part {
            name: process.name,
            problem: format!("ended ({end})"),
            tail: tail(&process.log),
            log: process.log,
        }),
    }
}

fn late(cluster: &LocalCluster, name: &str, problem: &str, limit: Duration) -> Error {
    let log = log_file(cluster.dir(), name);
    Error::Part {
        name: name.to_owned(),
        problem: format!("{problem} after {} s", limit.as_secs()),
        tail: tail(&log),
        log,
    }
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
    fs_err::write(path, text)?;
    Ok(())
}
