//! The processes of a cluster, which are started, stopped and listed by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};

use super::protocol::{ProcessSpec, ProcessStatus};

/// Path of the running program, valid even after another one was built in its place.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";

/// All children of the holder: those that were started by name, and the orphans that the kernel hands to PID 1.
#[derive(Debug, Default)]
pub struct Children {
    /// Locked during every spawn, so that no child is reaped before it is known (see [`Children::reap_forever`]).
    known: Mutex<BTreeMap<String, Child>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Child {
    pid: Pid,
    log: PathBuf,
    ended: Option<String>,
}

impl Children {
    /// Starts a process; the error is a text for the client.
    pub fn start(&self, start: &ProcessSpec) -> Result<Pid, String> {
        let mut known = self.known.lock();
        if known
            .get(&start.name)
            .is_some_and(|child| child.ended.is_none())
        {
            return Err(format!("{} runs already", start.name));
        }
        let joined = start
            .join
            .as_ref()
            .map(|other| match known.get(other) {
                Some(child) if child.ended.is_none() => Ok(child.pid),
                _ => Err(format!(
                    "{other}, which {} was to join, does not run",
                    start.name
                )),
            })
            .transpose()?;
        let pid = spawn(start, joined)
            .map_err(|error| format!("cannot start {}: {error}", start.name))?;
        let child = Child {
            pid,
            log: start.log.clone(),
            ended: None,
        };
        known.insert(start.name.clone(), child);
        self.changed.notify_all();
        Ok(pid)
    }

    /// Sends a signal to a running process.
    pub fn signal(&self, name: &str, signal: i32) -> Result<(), String> {
        let signal =
            Signal::try_from(signal).map_err(|_| format!("no signal has the number {signal}"))?;
        let known = self.known.lock();
        match known.get(name) {
            Some(child) if child.ended.is_none() => {
                kill(child.pid, signal).map_err(|error| format!("cannot signal {name}: {error}"))
            }
            _ => Err(format!("{name} does not run")),
        }
    }

    /// Sends a signal, waits, and kills the process after `grace`. Does nothing for a process that does not run.
    pub fn stop(&self, name: &str, signal: i32, grace: Duration) -> Result<(), String> {
        let signal =
            Signal::try_from(signal).map_err(|_| format!("no signal has the number {signal}"))?;
        let mut known = self.known.lock();
        let mut deadline = Instant::now() + grace;
        let mut next = Some(signal);
        loop {
            let Some(child) = known.get(name).filter(|child| child.ended.is_none()) else {
                return Ok(());
            };
            if let Some(signal) = next.take() {
                kill(child.pid, signal)
                    .map_err(|error| format!("cannot signal {name}: {error}"))?;
            }
            let now = Instant::now();
            if now >= deadline {
                next = Some(Signal::SIGKILL);
                deadline = now + Duration::from_secs(5);
                continue;
            }
            self.changed.wait_for(&mut known, deadline - now);
        }
    }

    /// Returns all processes by name.
    pub fn list(&self) -> Vec<ProcessStatus> {
        self.known
            .lock()
            .iter()
            .map(|(name, child)| ProcessStatus {
                name: name.clone(),
                pid: child.pid.as_raw(),
                ended: child.ended.clone(),
                log: child.log.clone(),
            })
            .collect()
    }

    /// Reaps every child that ends. It first waits without reaping, and reaps only while it holds the lock: when `exec` fails inside
    /// [`Command::spawn`], that function has to reap its own child.
    pub fn reap_forever(&self) {
        loop {
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Ok(_) => self.reap_ended(),
                Err(Errno::ECHILD) => {
                    let mut known = self.known.lock();
                    // The next start wakes this thread. The time limit covers orphans, which arrive without notice.
                    self.changed
                        .wait_for(&mut known, Duration::from_millis(200));
                }
                Err(_) => {}
            }
        }
    }

    fn reap_ended(&self) {
        let mut known = self.known.lock();
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let (pid, text) = match status {
                WaitStatus::Exited(pid, code) => (pid, format!("exit status: {code}")),
                WaitStatus::Signaled(pid, signal, _) => (pid, format!("signal: {signal}")),
                WaitStatus::StillAlive => break,
                _ => continue,
            };
            let child = known
                .values_mut()
                .find(|child| child.pid == pid && child.ended.is_none());
            if let Some(child) = child {
                child.ended = Some(text);
            }
        }
        self.changed.notify_all();
    }
}

fn spawn(start: &ProcessSpec, joined: Option<Pid>) -> std::io::Result<Pid> {
    let log = fs_err::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&start.log)?;
    let mut argv = start.argv.clone();
    if let Some(pid) = joined {
        let mut shim = vec![
            THIS_PROGRAM.to_owned(),
            "join".to_owned(),
            "--pid".to_owned(),
            pid.to_string(),
            "--".to_owned(),
        ];
        shim.append(&mut argv);
        argv = shim;
    }
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| std::io::Error::other("no program given"))?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&start.env)
        .current_dir(&start.cwd)
        .stdin(Stdio::null())
        .stdout(log.file().try_clone()?)
        .stderr(log.into_file())
        .spawn()?;
    // The handle is dropped without waiting, because the reaper waits for every child.
    Ok(Pid::from_raw(child.id().cast_signed()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn eventually(is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is_so() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn start(dir: &std::path::Path, name: &str, script: &str) -> ProcessSpec {
        ProcessSpec {
            name: name.to_owned(),
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
            log: dir.join("log"),
            cwd: dir.to_owned(),
            ..ProcessSpec::default()
        }
    }

    // There is only one test, because the reaper takes every child of the test process.
    #[test]
    fn children_are_started_listed_and_stopped_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let children = Arc::new(Children::default());
        let reaper = Arc::clone(&children);
        std::thread::spawn(move || reaper.reap_forever());

        children
            .start(&start(
                dir.path(),
                "deaf",
                "trap '' TERM; echo up; while :; do sleep 1; done",
            ))
            .unwrap();
        let twice = children
            .start(&start(dir.path(), "deaf", "true"))
            .unwrap_err();
        assert_eq!(twice, "deaf runs already");
        let mut orphan = start(dir.path(), "orphan", "true");
        orphan.join = Some("absent".to_owned());
        assert!(children.start(&orphan).unwrap_err().contains("absent"));
        let mut unknown = start(dir.path(), "unknown", "true");
        unknown.argv = vec!["/does/not/exist".to_owned()];
        assert!(
            children
                .start(&unknown)
                .unwrap_err()
                .contains("cannot start unknown")
        );

        eventually(|| std::fs::read_to_string(dir.path().join("log")).unwrap() == "up\n");
        children
            .stop("deaf", 15, Duration::from_millis(50))
            .unwrap();
        assert_eq!(children.list()[0].ended.as_deref(), Some("signal: SIGKILL"));
        children.stop("deaf", 15, Duration::from_secs(5)).unwrap();
        assert_eq!(
            children.signal("deaf", 15).unwrap_err(),
            "deaf does not run"
        );

        children
            .start(&start(dir.path(), "short", "exit 3"))
            .unwrap();
        eventually(|| children.list()[1].ended.is_some());
        assert_eq!(children.list()[1].ended.as_deref(), Some("exit status: 3"));
    }
}
