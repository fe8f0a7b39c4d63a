//! Many seeds in processes of their own: none of these outlives the one that started them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use rstest::rstest;

/// Until both runs have started a cluster, whose programs may have to be built before.
const STARTED: Duration = Duration::from_mins(10);
/// Until all has ended.
const ENDED: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(100);

fn eventually<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(PAUSE);
    }
}

/// A process that is not mistaken for a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    pid: i32,
    start: u64,
}

/// Returns the descendants of a process: whose they are, level by level.
fn descendants(of: i32) -> Vec<BTreeSet<Identity>> {
    let all = all_processes()
        .unwrap()
        .filter_map(|one| one.ok()?.stat().ok());
    let all: Vec<_> = all
        .filter(|stat| stat.state != 'Z')
        .map(|stat| {
            let (pid, start) = (stat.pid, stat.starttime);
            (stat.ppid, Identity { pid, start })
        })
        .collect();
    let mut levels = Vec::new();
    let mut parents = BTreeSet::from([of]);
    loop {
        let level = all.iter().filter(|(parent, _)| parents.contains(parent));
        let level: BTreeSet<Identity> = level.map(|(_, child)| *child).collect();
        if level.is_empty() {
            return levels;
        }
        parents = level.iter().map(|child| child.pid).collect();
        levels.push(level);
    }
}

fn is_alive(one: Identity) -> bool {
    let stat = Process::new(one.pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime == one.start && stat.state != 'Z')
}

/// Returns whether a process is a part of a cluster, and not of a build.
fn is_node(pid: i32) -> bool {
    let stat = Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.comm.starts_with("numaresources"))
}

/// Ends with the test, so that a failed one leaves nothing.
struct Parent(Child);

impl Drop for Parent {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).unwrap();
        for one in descendants(pid).into_iter().flatten() {
            let _ = kill(Pid::from_raw(one.pid), Signal::SIGKILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[rstest]
#[case::terminated(Signal::SIGTERM)]
#[case::hung_up(Signal::SIGHUP)]
fn no_run_outlives_its_parent_that_is_told_to_end(#[case] signal: Signal) {
    let directory = directory(&format!("seeds-{signal}"));
    let mut parent = Command::new(env!("CARGO_BIN_EXE_chaos"));
    parent
        .args(["chaos", "--seeds", "1..3", "--jobs", "2", "--directory"])
        .arg(&directory)
        .stdin(Stdio::null());
    let mut parent = Parent(parent.spawn().unwrap());
    let pid = i32::try_from(parent.0.id()).unwrap();
    let started: BTreeSet<Identity> = eventually("two runs with processes", STARTED, || {
        let levels = descendants(pid);
        let has_two = levels.first().is_some_and(|runs| runs.len() == 2);
        let nodes = levels.get(1)?.iter().filter(|one| is_node(one.pid));
        (has_two && nodes.count() >= 2).then(|| levels.into_iter().flatten().collect())
    });
    kill(Pid::from_raw(pid), signal).unwrap();
    let status: ExitStatus = eventually("the parent has ended", ENDED, || {
        parent.0.try_wait().unwrap()
    });
    assert_eq!(status.code(), Some(1), "{status}");
    let left: Vec<Identity> = started.into_iter().filter(|one| is_alive(*one)).collect();
    assert_eq!(left, []);
    let third = directory.join("embedded-3");
    assert!(!third.exists(), "no other run began");
}
