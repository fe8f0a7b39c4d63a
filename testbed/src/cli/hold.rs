//! An embedded cluster in a process of its own, for `cluster up`.
//!
//! The process that was asked for a cluster starts a *keeper* (`numaresources-testbed hold-embedded`). The keeper starts the cluster,
//! announces it on its standard output, and keeps it until it is stopped: by `cluster down`, which kills it, by `SIGTERM`, or, before it is
//! detached, by the end of the process that asked.

use std::io::Read;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, bail};
use cluster_spec::progress::{Progress, Report};
use cluster_state::process::ProcessRef;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::{PlanArgs, UpArgs};
use crate::lane::{Cluster, Lane};

/// Byte on standard input that detaches the keeper: it then outlives the end of its standard input.
const DETACH: u8 = b'\n';

/// Arguments of the keeper.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldArgs {
    /// Name of the cluster.
    #[arg(long)]
    name: String,
    /// Directory of all clusters.
    #[arg(long)]
    state_root: PathBuf,
    /// What it is made of.
    #[command(flatten)]
    plan: PlanArgs,
}

/// Announcements of the keeper, one JSON object per line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Announcement {
    /// A line of progress.
    Progress(String),
    /// The cluster is ready.
    Ready {
        /// Kubeconfig of the administrator.
        kubeconfig: PathBuf,
    },
    /// The cluster did not start, and the keeper ends.
    Failed(String),
}

/// A cluster in a keeper. It ends with this value unless it is detached.
pub(crate) struct Held {
    /// A client with the administrator's rights.
    pub(crate) client: kube::Client,
    kubeconfig: PathBuf,
    _keeper: Child,
    lifeline: ChildStdin,
}

impl Held {
    /// Detaches the cluster so that it lives on; returns the path of its kubeconfig.
    pub(crate) async fn detach(mut self) -> anyhow::Result<PathBuf> {
        use tokio::io::AsyncWriteExt;
        self.lifeline
            .write_all(&[DETACH])
            .await
            .context("the keeper of the cluster has ended")?;
        self.lifeline
            .flush()
            .await
            .context("the keeper of the cluster has ended")?;
        Ok(self.kubeconfig)
    }
}

/// Starts a keeper and waits until its cluster is up.
pub(crate) async fn launch(args: &UpArgs, report: Report<'_>) -> anyhow::Result<Held> {
    let program = args.plan.programs()?.join("numaresources-testbed");
    let mut command = Command::new(&program);
    command
        .arg("hold-embedded")
        .args(["--name", &args.name.name])
        .arg("--state-root")
        .arg(args.name.root.resolve())
        .args(args.plan.to_arguments())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut keeper = command
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let lifeline = keeper.stdin.take().context("no pipe to the keeper")?;
    let output = keeper.stdout.take().context("no pipe from the keeper")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.context("cannot read the keeper")? {
        match serde_json::from_str(&line).context("cannot parse the keeper's announcement")? {
            Announcement::Progress(text) => report(Progress::Note(text)),
            Announcement::Failed(error) => bail!("{error}"),
            Announcement::Ready { kubeconfig } => {
                return Ok(Held {
                    client: local_cluster::cluster::client_from(&kubeconfig).await?,
                    kubeconfig,
                    _keeper: keeper,
                    lifeline,
                });
            }
        }
    }
    bail!("the keeper of the cluster ended without an announcement")
}

/// Runs the keeper.
pub(crate) async fn run(args: HoldArgs) -> anyhow::Result<ExitCode> {
    // Ctrl-C in the terminal of the asking process must not end the keeper.
    nix::unistd::setsid().context("cannot leave the session")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let lifeline = lifeline();
    let report = |progress: Progress| {
        if let Progress::Note(text) = progress {
            // The asking process may be gone; the lifeline detects that.
            let _ = announce(&Announcement::Progress(text));
        }
    };
    let cluster = tokio::select! {
        cluster = bring_up(&args, &report) => cluster,
        () = parent_ended(lifeline.clone()) => return Ok(ExitCode::FAILURE),
        _ = terminate.recv() => return Ok(ExitCode::FAILURE),
    };
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(error) => {
            announce(&Announcement::Failed(format!("{error:#}")))?;
            return Ok(ExitCode::FAILURE);
        }
    };
    announce(&Announcement::Ready {
        kubeconfig: cluster.kubeconfig(),
    })?;
    tokio::select! {
        () = parent_ended(lifeline) => {}
        _ = terminate.recv() => {}
    }
    cluster.down()?;
    Ok(ExitCode::SUCCESS)
}

async fn bring_up(args: &HoldArgs, report: Report<'_>) -> anyhow::Result<Cluster> {
    let spec = args
        .plan
        .spec(Lane::Embedded, &args.name, &args.state_root, report)?;
    let cluster = Cluster::up(spec, report).await?;
    cluster_state::update(&args.state_root, &args.name, |record| {
        record.holder = ProcessRef::current();
        record.detached = true;
    })?;
    Ok(cluster)
}

/// Reads standard input on a separate thread, so that the end of the keeper need not wait for a read. The returned channel closes when the
/// asking process ends without detaching.
fn lifeline() -> watch::Receiver<()> {
    let (ended, lifeline) = watch::channel(());
    std::thread::spawn(move || {
        let mut byte = [0];
        let detaches = matches!(std::io::stdin().read(&mut byte), Ok(1)) && byte[0] == DETACH;
        if detaches {
            // Keeps the channel open as long as the process lives.
            std::mem::forget(ended);
        }
    });
    lifeline
}

/// Returns when the asking process has ended without detaching; never returns after it has detached.
async fn parent_ended(mut lifeline: watch::Receiver<()>) {
    // No value is ever sent; the only change is the end of the sender.
    let _ = lifeline.changed().await;
}

fn announce(announcement: &Announcement) -> anyhow::Result<()> {
    use std::io::Write;
    let line = serde_json::to_string(announcement).context("cannot write an announcement")?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .context("cannot announce")
}
