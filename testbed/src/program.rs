//! The testbed's multi-call helper, which any program can contain: inner processes of the lanes and the small programs of their image.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use local_cluster::{enclosing, enter, platform, policies, supervise};

use crate::cli::{ClusterCommand, hold};

/// Internal processes of local test clusters; only `cluster` is meant for people.
#[derive(Debug, Parser)]
#[command(name = "numaresources-testbed", version)]
enum Command {
    /// Bring a cluster up or down, or look at it.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run an embedded cluster that outlives the process that requested it.
    #[command(hide = true)]
    HoldEmbedded(hold::HoldArgs),
    /// Launch the holder of a cluster.
    #[command(hide = true)]
    Supervise(supervise::Args),
    /// Run as the holder of a cluster.
    #[command(hide = true)]
    Hold(supervise::Args),
    /// Do what an OpenShift does by itself, in a local cluster.
    #[command(hide = true)]
    Openshift(enclosing::Args),
    /// Enforce network policies, in a local cluster.
    #[command(hide = true)]
    Policies(enclosing::Args),
    /// Create the namespaces of a node and run a program in them.
    #[command(hide = true)]
    Enter(enter::EnterArgs),
    /// Run a program in the namespaces of another process.
    #[command(hide = true)]
    Join(enter::JoinArgs),
    /// Become a program of a container in an embedded cluster.
    #[command(hide = true)]
    Tied(sim::node::tied::TiedArgs),
    /// What runs inside a node.
    #[command(flatten)]
    Node(cri_runtime::cli::Command),
}

/// File name of the helper.
pub const NAME: &str = "numaresources-testbed";

/// Returns whether a program was called as the helper or as one of the small programs; it then has to run [`main`].
pub fn is_called(argv: &[OsString]) -> bool {
    let name = argv.first().map(Path::new).and_then(Path::file_name);
    let name = name.and_then(|name| name.to_str()).unwrap_or_default();
    name == NAME || cri_runtime::cli::PROGRAMS.contains(&name)
}

/// Runs the helper. It starts no async runtime here, because most commands must change namespaces while there is one thread.
pub fn main(argv: &[OsString]) -> ExitCode {
    let outcome =
        cri_runtime::cli::run_as_program(argv).unwrap_or_else(|| run(Command::parse_from(argv)));
    outcome.unwrap_or_else(|error| {
        // Standard error is the only place to report to, so an error of it is dropped.
        drop(writeln!(std::io::stderr(), "error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Cluster(command) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(command.run()),
        Command::HoldEmbedded(args) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(hold::run(args)),
        Command::Supervise(args) => supervise::launch(&args),
        Command::Hold(args) => supervise::hold(&args),
        Command::Openshift(args) => cri_runtime::cli::serve(|| platform::run(args)),
        Command::Policies(args) => cri_runtime::cli::serve(|| policies::run(args)),
        Command::Enter(args) => enter::enter(&args),
        Command::Join(args) => enter::join(&args),
        Command::Tied(args) => sim::node::tied::run(&args),
        Command::Node(command) => command.run(),
    }
}
