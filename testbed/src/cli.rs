//! `cluster up | run | down | status`, for any program that offers them.

pub(crate) mod hold;
mod plan;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
pub use cluster_spec::kind::LABELS as KIND_LABELS;
use cluster_spec::progress::{Progress, Report};
use local_cluster::cluster::down;
use local_cluster::cluster::up::check_privileges;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use self::plan::{PlanArgs, RuntimeName, kind_configuration};
use crate::lane::{Cluster, Lane};

/// Exit status after an interrupt.
const INTERRUPTED: u8 = 130;

/// Bring a cluster up or down, or look at it.
#[derive(Debug, clap::Subcommand)]
pub enum ClusterCommand {
    /// Bring up a cluster that lives until `down`.
    Up(UpArgs),
    /// Bring up a cluster for the time of one command, which finds it by KUBECONFIG.
    Run(RunArgs),
    /// End a cluster and remove everything that it left.
    Down(NameArgs),
    /// List the clusters.
    Status(RootArgs),
}

/// Where clusters are kept.
#[derive(Clone, Debug, clap::Args)]
pub struct RootArgs {
    /// Directory of all clusters [default: ~/.local/state/numaresources]
    #[arg(long, value_name = "DIR")]
    pub state_root: Option<PathBuf>,
}

impl RootArgs {
    /// Returns the directory, or the default one.
    pub fn resolve(&self) -> PathBuf {
        self.state_root
            .clone()
            .unwrap_or_else(cluster_state::default_root)
    }
}

/// Which cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct NameArgs {
    /// Name of the cluster.
    #[arg(long, default_value = "default")]
    pub name: String,
    /// Where clusters are kept.
    #[command(flatten)]
    pub root: RootArgs,
}

/// What kind of cluster.
#[derive(Clone, Debug, clap::Args)]
pub struct UpArgs {
    /// Which parts it is made of.
    #[arg(long, value_enum, default_value = "embedded", value_name = "LANE")]
    pub cluster: Lane,
    /// Which cluster.
    #[command(flatten)]
    pub name: NameArgs,
    /// What it is made of.
    #[command(flatten)]
    pub plan: PlanArgs,
}

/// A cluster for one command.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The cluster.
    #[command(flatten)]
    pub up: UpArgs,
    /// Program and arguments; its exit status becomes ours.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

impl ClusterCommand {
    /// Runs the command. Results go to standard output, progress to standard error.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Up(args) => {
                let interrupts = Interrupts::listen()?;
                // When an interrupt drops this future, the partly started cluster removes itself.
                let kubeconfig = tokio::select! {
                    kubeconfig = args.up_detached(&print_progress, async |_| Ok(())) => kubeconfig?,
                    () = interrupts.wait() => return Ok(ExitCode::from(INTERRUPTED)),
                };
                print(&format!("export KUBECONFIG={}\n", kubeconfig.display()))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Run(args) => {
                let interrupts = Interrupts::listen()?;
                tokio::select! {
                    code = args.run() => code,
                    () = interrupts.wait() => Ok(ExitCode::from(INTERRUPTED)),
                }
            }
            Self::Down(args) => {
                let existed = down(&args.root.resolve(), &args.name)?;
                print(if existed {
                    "removed\n"
                } else {
                    "there was no such cluster\n"
                })?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Status(args) => {
                print(&status(&args.resolve(), async |_| String::new()).await?)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl UpArgs {
    /// Brings the cluster up; it ends when the returned value is dropped, unless that is detached.
    pub async fn up(&self, report: Report<'_>) -> anyhow::Result<Cluster> {
        if self.cluster == Lane::Local {
            // Checked before the programs are located, because locating them may mean building them for minutes.
            check_privileges(usize::from(self.plan.workers) + 1)?;
        }
        let root = self.name.root.resolve();
        let spec = self
            .plan
            .spec(self.cluster, &self.name.name, &root, report)?;
        Ok(Cluster::up(spec, report).await?)
    }

    /// Brings up a cluster that outlives this process, lets `prepare` work on it, and returns its kubeconfig.
    pub async fn up_detached(
        &self,
        report: Report<'_>,
        prepare: impl AsyncFnOnce(kube::Client) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        match self.cluster {
            Lane::Embedded => {
                let held = hold::launch(self, report).await?;
                prepare(held.client.clone()).await?;
                held.detach().await
            }
            Lane::Local => {
                let cluster = self.up(report).await?;
                prepare(cluster.client()).await?;
                let kubeconfig = cluster.kubeconfig();
                if let Cluster::Local(cluster) = cluster {
                    cluster.detach()?;
                }
                Ok(kubeconfig)
            }
        }
    }
}

impl RunArgs {
    async fn run(&self) -> anyhow::Result<ExitCode> {
        let cluster = self.up.up(&print_progress).await?;
        let (program, arguments) = self.command.split_first().context("no program given")?;
        let status = tokio::process::Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", cluster.kubeconfig())
            .kill_on_drop(true)
            .status()
            .await
            .with_context(|| format!("cannot run {program}"))?;
        cluster.down()?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}

/// Interrupts from the terminal and requests to terminate. Listening begins at once, before anything exists that needs cleanup.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Returns when the first signal arrives.
    async fn wait(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns one line for each cluster; below that of a running one, what `about` returns for its directory.
pub async fn status(
    root: &Path,
    about: impl AsyncFn(PathBuf) -> String,
) -> Result<String, cluster_state::Error> {
    let mut parts = Vec::new();
    for (name, record, runs) in cluster_state::list(root)? {
        let dir = cluster_state::dir(root, &name);
        let kubeconfig = dir.join("kubeconfig");
        let state = if runs { "running" } else { "dead" };
        parts.push(format!(
            "{name}\t{state}\t{} nodes\tKUBECONFIG={}\n",
            record.nodes,
            kubeconfig.display()
        ));
        if runs {
            parts.push(about(dir).await);
        }
    }
    Ok(if parts.is_empty() {
        format!("no clusters below {}\n", root.display())
    } else {
        parts.concat()
    })
}

fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
}

/// Writes progress to standard error, one line each.
#[expect(
    clippy::needless_pass_by_value,
    reason = "receivers of progress take it"
)]
pub fn print_progress(progress: Progress) {
    // Standard error is the only place to report to, so an error of it is dropped.
    drop(writeln!(std::io::stderr(), "{progress}"));
}
