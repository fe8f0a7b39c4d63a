//! The holder: PID 1 of a cluster's own PID namespace, with a mount and a network namespace of its own.
//!
//! Every process of the cluster is a descendant of the holder. However the holder ends, the kernel then ends all of them and removes their
//! mounts, namespaces and links. It ends
//! - when it gets a request to quit, or is killed;
//! - when its launcher dies (parent death signal);
//! - when its owner dies (end of file on its standard input), unless it was detached.
//!
//! Reading order: [`protocol`] has its requests, [`client`] sends them, [`children`] runs the processes.

pub mod children;
pub mod client;
pub mod protocol;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use anyhow::Context;
use children::Children;
use cluster_spec::subnet::Subnet;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use protocol::{Announcement, Reply, Request};

use super::net;

/// Name of the holder's control socket in the cluster's directory.
pub const SOCKET: &str = "holder.sock";

/// Arguments of the launcher (`supervise`) and of the holder itself (`hold`).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the cluster.
    #[arg(long)]
    pub state_dir: PathBuf,
}

/// Runs the launcher: creates the PID namespace, starts the holder in it and waits for it, so that the holder leaves no zombie.
///
/// Writes one [`Announcement::Launched`] line to standard output; the holder writes another, before or after it.
pub fn launch(args: &Args) -> anyhow::Result<ExitCode> {
    // Ctrl-C in the owner's terminal is handled by the owner.
    nix::unistd::setsid().context("cannot leave the session")?;
    unshare(CloneFlags::CLONE_NEWPID).context("cannot make a PID namespace")?;
    let mut holder = Command::new(children::THIS_PROGRAM)
        .arg0("numaresources-testbed")
        .arg("hold")
        .arg("--state-dir")
        .arg(&args.state_dir)
        .spawn()
        .context("cannot start the holder")?;
    announce(&Announcement::Launched { pid: holder.id() })?;
    let status = holder.wait().context("cannot wait for the holder")?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the holder. Writes one [`Announcement::Ready`] or [`Announcement::Failed`] line to standard output.
pub fn hold(args: &Args) -> anyhow::Result<ExitCode> {
    match prepare(&args.state_dir) {
        Ok((subnet, listener)) => {
            announce(&Announcement::Ready { subnet })?;
            serve(listener)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            announce(&Announcement::Failed {
                error: format!("{error:#}"),
            })?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn announce(announcement: &Announcement) -> anyhow::Result<()> {
    let line = serde_json::to_string(announcement).context("cannot write an announcement")?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")
        .and_then(|()| output.flush())
        .context("cannot announce to the owner")
}

/// Does everything that has to happen while there is only one thread.
fn prepare(state_dir: &Path) -> anyhow::Result<(Subnet, UnixListener)> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
        .context("cannot tie the holder to its launcher")?;
    nix::unistd::setsid().context("cannot leave the session")?;
    let namespaces = net::NetworkNamespaces::enter_new(
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS,
    )?;
    let none: Option<&Path> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make the mounts private")?;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        none,
    )
    .context("cannot mount /proc of the new PID namespace")?;
    let subnet = net::set_up_cluster(&namespaces)?;
    let listener =
        UnixListener::bind(state_dir.join(SOCKET)).context("cannot listen for commands")?;
    Ok((subnet, listener))
}

/// Serves until a request, the owner or an error ends the cluster.
fn serve(listener: UnixListener) -> anyhow::Result<()> {
    let children = Arc::new(Children::default());
    let detached = Arc::new(AtomicBool::new(false));
    let (quit, ended) = channel::<()>();

    let reaper = Arc::clone(&children);
    std::thread::spawn(move || reaper.reap_forever());

    let owner_quit = quit.clone();
    let owner_detached = Arc::clone(&detached);
    std::thread::spawn(move || {
        // The owner never writes: the loop ends when the other end of the pipe is closed, however the owner ended.
        let mut sink = [0_u8; 64];
        while matches!(std::io::stdin().read(&mut sink), Ok(count) if count > 0) {}
        if !owner_detached.load(Ordering::SeqCst) {
            // Sending fails only when the main thread, and with it the process, has ended.
            let _ = owner_quit.send(());
        }
    });

    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let children = Arc::clone(&children);
            let detached = Arc::clone(&detached);
            let quit = quit.clone();
            std::thread::spawn(move || {
                if let Err(error) = serve_connection(&connection, &children, &detached, &quit) {
                    tracing::debug!(%error, "Connection ended");
                }
            });
        }
    });

    ended
        .recv()
        .context("all threads that could end the cluster have ended")
}

/// Answers the requests of one connection.
fn serve_connection(
    connection: &UnixStream,
    children: &Children,
    detached: &AtomicBool,
    quit: &Sender<()>,
) -> std::io::Result<()> {
    let mut output = connection.try_clone()?;
    for line in BufReader::new(connection).lines() {
        let reply = match serde_json::from_str::<Request>(&line?) {
            Ok(request) => answer(request, children, detached, quit),
            Err(error) => Reply::error(format!("cannot read the request: {error}")),
        };
        let text = serde_json::to_string(&reply).map_err(std::io::Error::other)?;
        writeln!(output, "{text}")?;
    }
    Ok(())
}

fn answer(
    request: Request,
    children: &Children,
    detached: &AtomicBool,
    quit: &Sender<()>,
) -> Reply {
    let outcome = match request {
        Request::Start(start) => children.start(&start).map(|_| ()),
        Request::Stop {
            name,
            signal,
            grace_ms,
        } => children.stop(&name, signal, std::time::Duration::from_millis(grace_ms)),
        Request::Signal { name, signal } => children.signal(&name, signal),
        Request::List => Ok(()),
        Request::Detach => {
            detached.store(true, Ordering::SeqCst);
            Ok(())
        }
        Request::Quit => quit.send(()).map_err(|_| "the holder is ending".to_owned()),
    };
    match outcome {
        Ok(()) => Reply {
            error: None,
            processes: children.list(),
        },
        Err(error) => Reply::error(error),
    }
}
