//! Brings a cluster up: everything that can start at once does, everything else waits for conditions.

mod nodes;
mod wait;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cluster_spec::plan::ClusterSpec;
use cluster_spec::progress::{Report, Step, note};
use cluster_spec::runtime::{ContainerPrograms, Runtime};
use cluster_spec::subnet::Subnet;
use cluster_state::Claim;
use cluster_state::process::ProcessRef;
use cri_runtime::filter;
use nodes::{prepare_nodes, runtime};
use wait::{wait_for_api, wait_for_nodes, wait_for_proxy, wait_for_registry, wait_for_runtime};

use super::{LocalCluster, Owned, client_from};
use crate::containerd::{images, registry};
use crate::control_plane::ControlPlane;
use crate::node_handle::{self, tail};
use crate::pki::{self, Pki};
use crate::privileges::{self, Facts, Missing};
use crate::supervise::client;
use crate::supervise::protocol::Announcement;
use crate::{helper_process, net};

/// The longest name of a socket in a node's directory.
const LONGEST_SOCKET: &str = "/control.sock";

/// Why a cluster did not come up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks prerequisites.
    #[error("this machine cannot run a local cluster, it lacks:\n{}", list(.0))]
    Privileges(Vec<Missing>),
    /// The plan is invalid.
    #[error("cannot plan the cluster: {0}")]
    Plan(String),
    /// The state directory could not be used.
    #[error(transparent)]
    State(#[from] cluster_state::Error),
    /// The holder could not be started or prepared.
    #[error("cannot start the cluster's holder: {0}")]
    Launch(String),
    /// The holder refused a request or does not answer.
    #[error(transparent)]
    Holder(#[from] client::Error),
    /// Keys could not be created.
    #[error(transparent)]
    Pki(#[from] pki::Error),
    /// A file of the cluster could not be used.
    #[error("cannot write the files of the cluster")]
    Files(#[from] std::io::Error),
    /// The client of the new cluster could not be created.
    #[error(transparent)]
    Client(#[from] super::Error),
    /// The cluster could not be made an OpenShift.
    #[error("cannot make the cluster an OpenShift")]
    Flavour(#[from] openshift::Error),
    /// The registry does not take the images.
    #[error("cannot push the cluster's images")]
    Images(#[from] registry::Error),
    /// A node failed.
    #[error(transparent)]
    Node(#[from] node_handle::Error),
    /// The API server refused a request of the administrator, or did not answer in time.
    #[error("cannot {action}")]
    Api {
        /// The failed action.
        action: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// A component of the cluster ended or took too long.
    #[error("{name} {problem}; its log is {}:\n{tail}", log.display())]
    Component {
        /// Name of the process.
        name: String,
        /// What is wrong.
        problem: String,
        /// File with its log.
        log: PathBuf,
        /// Last lines of the log.
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
    let (dir, swept) = cluster_state::claim(&Claim {
        root: &spec.state_root,
        name: &spec.name,
        nodes: &spec.nodes,
        longest_socket: LONGEST_SOCKET,
        spec: Some(&spec),
    })?;
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

/// Checks that this machine and this process can run a cluster with this many nodes; only gathers facts and starts nothing.
pub fn check_privileges(nodes: usize) -> Result<(), Error> {
    let missing = privileges::missing(&Facts::gather(nodes), nodes);
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Error::Privileges(missing))
    }
}

/// Checks everything that can be checked before anything starts.
fn check(spec: &ClusterSpec) -> Result<(), Error> {
    check_privileges(spec.nodes.len())?;
    if spec.nodes.is_empty() || spec.nodes.len() > net::MAX_NODES {
        return Err(Error::Plan(format!(
            "{} nodes, must be 1 to {}",
            spec.nodes.len(),
            net::MAX_NODES
        )));
    }
    if spec.hide_allocations && spec.runtime != Runtime::Builtin {
        return Err(Error::Plan(
            "only the builtin runtime can hide allocations, because it decides what a volume holds"
                .to_owned(),
        ));
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

/// Starts the holder and creates the keys of its cluster.
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

/// Starts all processes and waits until the nodes are ready and can pull images.
async fn start(cluster: &LocalCluster, report: Report<'_>) -> Result<(), Error> {
    match &cluster.spec().runtime {
        Runtime::Builtin => start_parts(cluster, report).await,
        Runtime::Containerd(programs) => {
            // Nobody asks for an image before the nodes are ready.
            let images = publish_images(cluster, programs, report);
            tokio::try_join!(start_parts(cluster, report), images)?;
            Ok(())
        }
    }
}

async fn start_parts(cluster: &LocalCluster, report: Report<'_>) -> Result<(), Error> {
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
        node.spawn_companions()?;
        node.write_kubelet(&node.plan().kubelet)?;
        if spec.hide_allocations {
            node.spawn_hiding_proxy()?;
        }
    }
    wait_for_api(cluster).await?;
    if let Some(flavour) = spec.flavour {
        openshift::install_for(&cluster.client(), flavour, &spec.nodes).await?;
    }
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
    if spec.flavour.is_some() {
        holder.start(helper_process::platform(spec))?;
    }
    let mut proxied = Vec::new();
    for node in cluster.nodes() {
        if node.spawn_proxy()? {
            proxied.push(node);
        }
    }
    if filter::is_available() {
        holder.start(helper_process::policies(spec))?;
    }
    for node in proxied {
        wait_for_proxy(cluster, node).await?;
    }
    step.finish();
    Ok(())
}

/// Starts the registry, pushes the images, and writes down how pods name them.
async fn publish_images(
    cluster: &LocalCluster,
    programs: &ContainerPrograms,
    report: Report<'_>,
) -> Result<(), Error> {
    let step = Step::begin(report, "images");
    registry::write(cluster.dir(), cluster.subnet())?;
    let start = registry::start(cluster.dir(), &programs.registry);
    cluster.holder().start(start)?;
    let packed_dir = cluster.dir().join("images");
    let images = nodes::pushed_images(cluster.spec());
    let dir = packed_dir.clone();
    let packed = tokio::task::spawn_blocking(move || images::pack(&dir, &images))
        .await
        .map_err(std::io::Error::other)??;
    wait_for_registry(cluster).await?;
    let published = registry::push(cluster.subnet(), &packed).await?;
    published.write(cluster.dir())?;
    // The registry has a copy.
    fs_err::remove_dir_all(packed_dir)?;
    step.finish();
    Ok(())
}

/// What the launcher and the holder told.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// Both run, and the cluster has this network.
    Running(Subnet),
    /// The holder could not be prepared.
    Failed(String),
    /// They ended before.
    Ended,
}

/// Reads what the launcher and the holder tell, until both run.
///
/// They tell it in either order: the launcher may come to it only after the holder is ready. Nobody may stop reading before, because a
/// launcher that cannot tell ends, and its holder with it.
fn until_both_run(
    output: impl BufRead,
    mut record: impl FnMut(&Announcement) -> Result<(), Error>,
) -> Result<Told, Error> {
    let (mut launched, mut network) = (false, None);
    for line in output.lines() {
        let line = line.map_err(|error| Error::Launch(error.to_string()))?;
        let announcement = serde_json::from_str(&line);
        let announcement = announcement.map_err(|error| Error::Launch(error.to_string()))?;
        record(&announcement)?;
        match announcement {
            Announcement::Launched { .. } => launched = true,
            Announcement::Ready { subnet } => network = Some(subnet),
            Announcement::Failed { error } => return Ok(Told::Failed(error)),
        }
        if let Some(subnet) = network.filter(|_| launched) {
            return Ok(Told::Running(subnet));
        }
    }
    Ok(Told::Ended)
}

/// Starts the holder; returns the value that ties it to this process, and the network that it took.
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
    let told = until_both_run(BufReader::new(output), |announcement| {
        cluster_state::update(&spec.state_root, &spec.name, |record| match announcement {
            Announcement::Launched { pid } => {
                record.holder = i32::try_from(*pid).ok().and_then(ProcessRef::of);
            }
            Announcement::Ready { subnet } => {
                if let Some(local) = &mut record.local {
                    local.subnet = Some(*subnet);
                }
            }
            Announcement::Failed { .. } => {}
        })?;
        Ok(())
    })?;
    match told {
        Told::Running(subnet) => return Ok((owned, subnet)),
        Told::Failed(error) => {
            owned.wait();
            return Err(Error::Launch(error));
        }
        Told::Ended => {}
    }
    owned.wait();
    Err(Error::Launch(tail(&dir.join("logs/holder.log"))))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SUBNET: Subnet = Subnet(7);

    #[rstest]
    #[case::launcher_first(&["launched", "ready"], Told::Running(SUBNET))]
    #[case::holder_first(&["ready", "launched"], Told::Running(SUBNET))]
    #[case::no_holder(&["launched"], Told::Ended)]
    #[case::no_launcher(&["ready"], Told::Ended)]
    #[case::failed(&["launched", "failed"], Told::Failed("no network".to_owned()))]
    fn a_cluster_has_begun_when_launcher_and_holder_have_told(
        #[case] told: &[&str],
        #[case] expected: Told,
    ) {
        let lines: Vec<String> = told
            .iter()
            .map(|one| match *one {
                "launched" => Announcement::Launched { pid: 7 },
                "ready" => Announcement::Ready { subnet: SUBNET },
                _ => Announcement::Failed {
                    error: "no network".to_owned(),
                },
            })
            .map(|announcement| serde_json::to_string(&announcement).unwrap())
            .collect();
        let text = lines.join("\n");
        let mut recorded = 0;
        let found = until_both_run(text.as_bytes(), |_| {
            recorded += 1;
            Ok(())
        });
        assert_eq!(found.unwrap(), expected);
        assert_eq!(recorded, told.len());
    }
}
