//! Processes of containers: plain children of this process, each the leader of a process group.
//!
//! A process dies with the thread that started it (see [`super::tied`]). Therefore one thread that lives as long as the node starts all of
//! them.

mod attach;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cri_runtime::logs::{LogFile, Stream};
use cri_runtime::streaming::session::Attached;
use k8s_openapi::jiff::Timestamp;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};

use self::attach::{Streams, Tee};

/// How long to wait for remaining output after the process has ended.
const OUTPUT_DRAIN: Duration = Duration::from_millis(500);
/// Longest output of a command that is kept, in bytes.
const OUTPUT_LIMIT: u64 = 1 << 20;

/// A process to start.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Path of the program on this machine.
    pub(crate) program: PathBuf,
    /// Arguments; the first is the program's own name.
    pub(crate) argv: Vec<String>,
    /// The complete environment.
    pub(crate) env: Vec<(String, String)>,
    /// Working directory.
    pub(crate) directory: PathBuf,
    /// Source of the standard input.
    pub(crate) input: Input,
}

/// The input of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Input {
    /// None.
    #[default]
    None,
    /// Input of any number of attached clients.
    Open,
    /// Input of the first attached client; it ends with that client.
    Once,
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Exit code; 128 plus the number of the signal that ended the process.
    pub(crate) code: i32,
    /// When the end was noticed.
    pub(crate) at: Timestamp,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    /// Exit code; 128 plus the number of the signal that ended the process.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// Standard error.
    pub(crate) stderr: Vec<u8>,
}

/// A started process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pid: Pid,
    exit: watch::Receiver<Option<Exit>>,
    streams: Streams,
}

impl Process {
    /// Returns the process id.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends a signal to the process alone. Does nothing if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit.borrow().is_none() {
            let _ = kill(self.pid, signal);
        }
    }

    /// Sends a signal to the process and its children.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<(), Errno> {
        if self.exit.borrow().is_some() {
            return Err(Errno::ESRCH);
        }
        killpg(self.pid, signal)
    }

    /// Attaches to the process: to its output from now on, and to its input if it is open.
    pub(crate) fn attach(&self) -> Attached {
        let process = self.clone();
        let end = async move { process.ended().await.code };
        self.streams.attach(Box::pin(end))
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        let ended = exit
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|end| *end);
        // Nobody reaps the process any more: it was killed with its node.
        ended.unwrap_or_else(|| Exit {
            code: 128 + Signal::SIGKILL as i32,
            at: Timestamp::now(),
        })
    }
}

/// A request to the launcher thread.
struct SpawnRequest {
    command: Command,
    done: oneshot::Sender<io::Result<Child>>,
}

/// Starts processes and keeps track of the running ones; clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    helper: PathBuf,
    requests: mpsc::Sender<SpawnRequest>,
    running: Arc<Mutex<BTreeSet<i32>>>,
}

impl Launcher {
    /// Starts the thread. `helper` is the testbed's program.
    pub(crate) fn start(helper: PathBuf) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::current();
        let (requests, incoming) = mpsc::channel::<SpawnRequest>();
        std::thread::Builder::new()
            .name("launcher".to_owned())
            .spawn(move || {
                let _entered = runtime.enter();
                for mut request in incoming {
                    // If the requester is gone, the process runs on without an owner and ends with this thread.
                    let _ = request.done.send(request.command.spawn());
                }
            })?;
        Ok(Self {
            helper,
            requests,
            running: Arc::default(),
        })
    }

    async fn spawn(&self, launch: &Launch) -> io::Result<Child> {
        let mut command = Command::new(&self.helper);
        command
            .arg("tied")
            .arg("--owner")
            .arg(std::process::id().to_string())
            .arg("--program")
            .arg(&launch.program)
            .arg("--")
            .args(&launch.argv)
            .env_clear()
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&launch.directory)
            .stdin(match launch.input {
                Input::None => Stdio::null(),
                Input::Open | Input::Once => Stdio::piped(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (done, outcome) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts processes is gone");
        self.requests
            .send(SpawnRequest { command, done })
            .map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }

    /// Starts a process that writes to a log.
    pub(crate) async fn start_logged(
        &self,
        launch: &Launch,
        log: Arc<LogFile>,
    ) -> io::Result<Process> {
        let mut child = self.spawn(launch).await?;
        let pid = self.register(&child)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (streams, listeners) = Streams::new(child.stdin.take(), launch.input);
        let copying = tokio::spawn(async move {
            let out = async {
                if let Some(stdout) = stdout {
                    let tee = Tee::new(stdout, Stream::Stdout, listeners.clone());
                    log.copy(Stream::Stdout, tee).await;
                }
            };
            let err = async {
                if let Some(stderr) = stderr {
                    let tee = Tee::new(stderr, Stream::Stderr, listeners.clone());
                    log.copy(Stream::Stderr, tee).await;
                }
            };
            tokio::join!(out, err);
        });
        let (sender, exit) = watch::channel(None);
        let launcher = self.clone();
        tokio::spawn(async move {
            let code = launcher.reap(&mut child, pid).await;
            let at = Timestamp::now();
            // The last output is in the log before the end is reported, unless another process holds the pipe open.
            let _ = tokio::time::timeout(OUTPUT_DRAIN, copying).await;
            sender.send_replace(Some(Exit { code, at }));
        });
        Ok(Process { pid, exit, streams })
    }

    /// Starts a command with streams. It is killed when the returned value is dropped.
    pub(crate) async fn start_attached(&self, launch: &Launch) -> io::Result<Attached> {
        let mut child = self.spawn(launch).await?;
        let held = KillOnDrop {
            pid: self.register(&child)?,
            launcher: self.clone(),
        };
        Ok(Attached {
            stdin: child.stdin.take().map(|pipe| Box::new(pipe) as _),
            stdout: child.stdout.take().map(|pipe| Box::new(pipe) as _),
            stderr: child.stderr.take().map(|pipe| Box::new(pipe) as _),
            end: Box::pin(async move { held.launcher.reap(&mut child, held.pid).await }),
        })
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, launch: &Launch, limit: Duration) -> io::Result<Output> {
        let mut child = self.spawn(launch).await?;
        let pid = self.register(&child)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let whole = async {
            tokio::join!(
                self.reap(&mut child, pid),
                read_all(stdout),
                read_all(stderr)
            )
        };
        let ended = tokio::time::timeout(limit, whole).await;
        let (code, stdout, stderr) = ended.map_err(|_| {
            let _ = killpg(pid, Signal::SIGKILL);
            io::Error::from(io::ErrorKind::TimedOut)
        })?;
        Ok(Output {
            code,
            stdout,
            stderr,
        })
    }

    fn register(&self, child: &Child) -> io::Result<Pid> {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
        self.lock().insert(id);
        Ok(Pid::from_raw(id))
    }

    /// Waits for a process and kills the children that it leaves behind.
    async fn reap(&self, child: &mut Child, pid: Pid) -> i32 {
        let status = child.wait().await;
        let _ = killpg(pid, Signal::SIGKILL);
        self.lock().remove(&pid.as_raw());
        status.map_or(-1, |status| {
            status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
        })
    }

    /// Kills every process at once.
    pub(crate) fn kill_all(&self) {
        for pid in self.lock().iter() {
            let _ = killpg(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, BTreeSet<i32>> {
        self.running.lock()
    }
}

/// A command that is killed when nobody waits for it any more.
struct KillOnDrop {
    pid: Pid,
    launcher: Launcher,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // A reaped process is no longer in the set.
        if self.launcher.lock().remove(&self.pid.as_raw()) {
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
    }
}

async fn read_all(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // A pipe that cannot be read counts as ended.
        let _ = pipe.take(OUTPUT_LIMIT).read_to_end(&mut bytes).await;
    }
    bytes
}
