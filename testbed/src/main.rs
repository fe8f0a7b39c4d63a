//! The multi-call helper of the testbed: inner processes of the local lane and the small programs of its image.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use testbed::cli::ClusterCommand;
use testbed::embedded;
use testbed::local::{enter, supervise};
use testbed::node;

/// Inner processes of local test clusters; `cluster` is for people.
#[derive(Debug, Parser)]
#[command(name = "numaresources-testbed", version)]
enum Command {
    /// Bring a cluster up or down, or look at it.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Be an embedded cluster that outlives who asked for it.
    #[command(hide = true)]
    HoldEmbedded(embedded::hold::HoldArgs),
    /// Launch the holder of a cluster.
    #[command(hide = true)]
    Supervise(supervise::Args),
    /// Be the holder of a cluster.
    #[command(hide = true)]
    Hold(supervise::Args),
    /// Make the namespaces of a node and run a program in them.
    #[command(hide = true)]
    Enter(enter::EnterArgs),
    /// Run a program in the namespaces of another process.
    #[command(hide = true)]
    Join(enter::JoinArgs),
    /// Become a program of a container in an embedded cluster.
    #[command(hide = true)]
    Tied(embedded::node::tied::TiedArgs),
    /// What runs inside a node.
    #[command(flatten)]
    Node(node::cli::Command),
}

// No runtime is started here: most of these must change namespaces while they have one thread.
fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    let outcome =
        node::cli::run_as_program(&argv).unwrap_or_else(|| run(Command::parse_from(&argv)));
    outcome.unwrap_or_else(|error| {
        // Nobody can be told that telling failed.
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
            .block_on(embedded::hold::run(args)),
        Command::Supervise(args) => supervise::launch(&args),
        Command::Hold(args) => supervise::hold(&args),
        Command::Enter(args) => enter::enter(&args),
        Command::Join(args) => enter::join(&args),
        Command::Tied(args) => embedded::node::tied::run(&args),
        Command::Node(command) => command.run(),
    }
}
