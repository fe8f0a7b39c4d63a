//! A test process in its own process group. It is ended with all of its children when it takes too long; its output and its processor time
//! are recorded.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex, MutexGuard};
use procfs::process::Process;

use super::job::Job;
use crate::cargo;

/// How long to wait for the rest of the output after the end of a process, because a child may still hold the pipe.
const REST: Duration = Duration::from_secs(2);
/// How a process ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// None if it could not be started or waited for, or took too long.
    pub(crate) status: Option<ExitStatus>,
    /// What else went wrong.
    pub(crate) trouble: Option<String>,
    /// Its output, by line and time since its start.
    pub(crate) lines: Vec<(Duration, String)>,
    pub(crate) wall: Duration,
    /// Processor time of it and of all children that it waited for.
    pub(crate) processor: Duration,
}

/// The running processes, with the time at which each counts as hanging.
#[derive(Debug, Default)]
pub(crate) struct Running {
    deadlines: Mutex<Deadlines>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Deadlines {
    by_group: BTreeMap<i32, Instant>,
    /// Groups that were ended because of their time.
    late: Vec<i32>,
    /// Nothing more is started.
    closed: bool,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Deadlines> {
        self.deadlines.lock()
    }

    /// Ends processes that run too long, until [`Running::close`].
    pub(crate) fn watch(&self) {
        let mut deadlines = self.lock();
        while !deadlines.closed {
            let now = Instant::now();
            let late: Vec<i32> = deadlines
                .by_group
                .iter()
                .filter(|(_, at)| **at <= now)
                .map(|(group, _)| *group)
                .collect();
            for group in late {
                deadlines.by_group.remove(&group);
                deadlines.late.push(group);
                kill(group);
            }
            let next = deadlines.by_group.values().min().copied();
            let pause = next.map_or(Duration::from_hours(1), |at| {
                at.saturating_duration_since(now)
            });
            self.changed.wait_for(&mut deadlines, pause);
        }
    }

    /// Ends all running processes and prevents new ones.
    pub(crate) fn close(&self) {
        let mut deadlines = self.lock();
        deadlines.closed = true;
        for group in deadlines.by_group.keys() {
            kill(*group);
        }
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Runs a job to its end.
    pub(crate) fn run(&self, job: &Job, environment: &[(&'static str, OsString)]) -> Ended {
        let started = Instant::now();
        match self.try_run(job, environment, started) {
            Ok(ended) => ended,
            Err(error) => Ended {
                status: None,
                trouble: Some(format!("cannot run {}: {error}", job.program.display())),
                lines: Vec::new(),
                wall: started.elapsed(),
                processor: Duration::ZERO,
            },
        }
    }

    fn try_run(
        &self,
        job: &Job,
        environment: &[(&'static str, OsString)],
        started: Instant,
    ) -> std::io::Result<Ended> {
        let (output, errors) = std::io::pipe()?;
        let mut command = Command::new(&job.program);
        // the variables that cargo sets; those of `cargo xtask` itself are about another package
        cargo::without_package(&mut command);
        if !job.is_cargo {
            command
                .env("CARGO_MANIFEST_DIR", &job.dir)
                .env("CARGO_PKG_NAME", &job.package);
        }
        command
            .args(&job.arguments)
            .current_dir(&job.dir)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(errors.try_clone()?)
            .stderr(errors);
        let mut child = command.spawn()?;
        // it holds the write ends of the pipe
        drop(command);
        let group = i32::try_from(child.id()).unwrap_or(i32::MAX);
        {
            let mut deadlines = self.lock();
            if deadlines.closed {
                kill(group);
            }
            deadlines.by_group.insert(group, started + job.limit());
            self.changed.notify_all();
        }
        let lines = read(output, started);
        // the record of the process stays until it is waited for, so its processor time can be read after its end
        let processor = waitid(
            Id::Pid(Pid::from_raw(group)),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
        )
        .map(|_| processor_time(group))
        .unwrap_or_default();
        let late = {
            let mut deadlines = self.lock();
            deadlines.by_group.remove(&group);
            let late = deadlines.late.contains(&group);
            deadlines.late.retain(|other| *other != group);
            late
        };
        // remaining processes of its group would hold the pipe and use the machine
        kill(group);
        let status = child.wait()?;
        let wall = started.elapsed();
        let mut read = Vec::new();
        while let Ok(line) = lines.recv_timeout(REST) {
            read.push(line);
        }
        Ok(Ended {
            status: (!late).then_some(status),
            trouble: late.then(|| {
                format!(
                    "it took longer than {} s and was ended: it hangs",
                    job.limit().as_secs()
                )
            }),
            lines: read,
            wall,
            processor,
        })
    }
}

/// Ends a process group, which may have ended already.
fn kill(group: i32) {
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

/// Reads lines when they arrive, on a separate thread that ends with the pipe.
fn read(output: std::io::PipeReader, started: Instant) -> Receiver<(Duration, String)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n').to_owned();
            if sender.send((started.elapsed(), text)).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// Returns the processor time of a process that has ended and was not waited for, and of the children that it waited for.
fn processor_time(process: i32) -> Duration {
    let stat = Process::new(process).and_then(|process| process.stat());
    stat.map(|stat| {
        let of_children = stat.cutime.unsigned_abs() + stat.cstime.unsigned_abs();
        let ticks = stat.utime + stat.stime + of_children;
        Duration::from_millis(ticks * 1000 / procfs::ticks_per_second())
    })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::plan::Expected;
    use super::*;

    fn shell(script: &str, seconds: f64) -> Job {
        Job {
            id: "p/t/x".to_owned(),
            target: "p/t".to_owned(),
            is_batch: false,
            is_cargo: false,
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            dir: "/".into(),
            package: "p".to_owned(),
            tests: vec!["x".to_owned()],
            expected: Expected { seconds, load: 1.0 },
        }
    }

    #[test]
    fn both_outputs_are_kept_in_order_with_the_environment() {
        let ended = Running::default().run(
            &shell("echo one; echo two $WORD >&2; exit 3", 1.0),
            &[("WORD", "here".into())],
        );
        let lines: Vec<&str> = ended.lines.iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(lines, ["one", "two here"]);
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn closing_ends_what_runs_and_what_it_started() {
        let running = Running::default();
        std::thread::scope(|scope| {
            let job = scope.spawn(|| running.run(&shell("sleep 600 & echo up; wait", 1.0), &[]));
            while running.lock().by_group.is_empty() {
                std::thread::yield_now();
            }
            running.close();
            let ended = job.join().expect("no panic");
            assert!(!ended.status.expect("it ended").success());
        });
    }

    #[test]
    fn a_process_that_hangs_is_ended_and_says_so() {
        let running = Running::default();
        let mut job = shell("sleep 600", 1.0);
        std::thread::scope(|scope| {
            scope.spawn(|| running.watch());
            // its limit is minutes, so the test moves the deadline instead of waiting for it
            job.id = "late".to_owned();
            let hanging = scope.spawn(|| running.run(&job, &[]));
            loop {
                let mut deadlines = running.lock();
                if let Some(at) = deadlines.by_group.values_mut().next() {
                    *at = Instant::now();
                    running.changed.notify_all();
                    break;
                }
                drop(deadlines);
                std::thread::yield_now();
            }
            let ended = hanging.join().expect("no panic");
            running.close();
            assert_eq!(ended.status, None);
            assert!(ended.trouble.expect("trouble").contains("hangs"));
        });
    }

    #[test]
    fn processor_time_of_children_counts() {
        let script = "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); true";
        let ended = Running::default().run(&shell(script, 1.0), &[]);
        assert!(ended.processor > Duration::ZERO, "{ended:?}");
    }
}
