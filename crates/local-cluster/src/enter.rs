//! The shims that a process of a node goes through before its program: they change namespaces and then `exec`.
//!
//! Both run in a fresh process with one thread.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context;
use cluster_spec::subnet::Subnet;
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

use super::net::{self, NetworkNamespaces};
use super::root::{self, Root};

/// A node to create: namespaces, network and root.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodeLayout {
    /// The root of the node.
    pub root: Root,
    /// Network of the cluster.
    pub subnet: Subnet,
    /// Index of the node; its addresses follow from it.
    pub index: usize,
    /// Number of nodes of the cluster.
    pub nodes: usize,
}

/// `enter`: makes the namespaces of a node and runs a program as the first process in them.
#[derive(Debug, clap::Args)]
pub struct EnterArgs {
    /// JSON file with the description of the node.
    #[arg(long = "place")]
    pub layout: PathBuf,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    pub argv: Vec<String>,
}

/// `join`: runs a program in the mount and network namespaces of another process.
#[derive(Debug, clap::Args)]
pub struct JoinArgs {
    /// Process whose namespaces are joined.
    #[arg(long)]
    pub pid: i32,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    pub argv: Vec<String>,
}

/// Runs `enter`; returns only on an error.
pub fn enter(args: &EnterArgs) -> anyhow::Result<ExitCode> {
    let text = fs_err::read_to_string(&args.layout)?;
    let layout: NodeLayout =
        serde_json::from_str(&text).context("cannot read the description of the node")?;
    let namespaces = NetworkNamespaces::enter_new(CloneFlags::CLONE_NEWNS)?;
    net::set_up_node(&namespaces, layout.subnet, layout.index, layout.nodes)?;
    drop(namespaces);
    root::enter(&layout.root)?;
    exec(&args.argv)
}

/// Runs `join`; returns only on an error.
pub fn join(args: &JoinArgs) -> anyhow::Result<ExitCode> {
    let open = |kind: &str| fs_err::File::open(format!("/proc/{}/ns/{kind}", args.pid));
    let (net, mounts) = (open("net")?, open("mnt")?);
    setns(net.file(), CloneFlags::CLONE_NEWNET).context("cannot join the network namespace")?;
    setns(mounts.file(), CloneFlags::CLONE_NEWNS).context("cannot join the mount namespace")?;
    nix::unistd::chdir("/").context("cannot go to the root of the namespace")?;
    exec(&args.argv)
}

fn exec(argv: &[String]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = argv.split_first().context("no program given")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {program}"))
}
