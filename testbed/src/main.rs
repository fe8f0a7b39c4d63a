//! The multi-call helper of the testbed: inner processes of the local lane and the small programs of its image.

use std::process::ExitCode;

use clap::Parser;
use testbed::local::cli::ClusterCommand;
use testbed::local::{enter, supervise};

/// Inner processes of local test clusters; `cluster` is for people.
#[derive(Debug, Parser)]
#[command(name = "numaresources-testbed", version)]
enum Command {
    /// Bring a local cluster up or down, or look at it.
    #[command(subcommand)]
    Cluster(ClusterCommand),
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
}

// No runtime is started here: most of these must change namespaces while they have one thread.
fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        Command::Cluster(command) => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?
            .block_on(command.run()),
        Command::Supervise(args) => supervise::launch(&args),
        Command::Hold(args) => supervise::hold(&args),
        Command::Enter(args) => enter::enter(&args),
        Command::Join(args) => enter::join(&args),
    }
}
