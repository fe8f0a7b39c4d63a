//! Runs jobs in parallel, as many as the processors allow.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use programs::console::note;

use super::idle::Processors;
use super::job::Job;
use super::output::{self, Verdict};
use super::process::{Ended, Running};

/// A job that keeps less than this of a processor busy mostly waits: it may start before a longer one that does not fit yet.
const WAITING: f64 = 0.4;
/// Least load that a job counts for, because a machine full of waiting jobs is busy, too.
const LEAST_LOAD: f64 = 0.1;
/// Least load that is no rounding error.
const ROUNDING: f64 = 0.01;
/// Time between two looks at the processors while no job ends.
const LOOK: Duration = Duration::from_secs(1);

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) job: Job,
    pub(crate) ended: Ended,
    /// The verdict of each of its tests.
    pub(crate) verdicts: Vec<Verdict>,
}

impl Done {
    pub(crate) fn failed(&self) -> bool {
        self.verdicts.iter().any(Verdict::failed)
    }
}

/// Runs all jobs and passes each to `done` when it has ended. Returns whether the run was interrupted before all jobs had run.
///
/// # Errors
/// Returns an error if a thread or the handler of Ctrl-C cannot be created.
pub(crate) fn all(
    jobs: Vec<Job>,
    capacity: f64,
    environment: &[(&'static str, OsString)],
    mut done: impl FnMut(Done),
) -> anyhow::Result<bool> {
    let running = Arc::new(Running::default());
    let _interrupts = interrupts(Arc::clone(&running))?;
    let mut waiting = Waiting::new(jobs, capacity);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| running.watch());
        let (sender, receiver) = channel();
        let start = |job: Job| {
            let (sender, running) = (sender.clone(), &running);
            scope.spawn(move || {
                let ended = running.run(&job, environment);
                let verdicts = output::verdicts(&job, &ended);
                // the receiver lives until all have ended
                let _ = sender.send(Done {
                    job,
                    ended,
                    verdicts,
                });
            });
        };
        let mut processors = Processors::default();
        loop {
            while !running.is_closed()
                && let Some(job) = waiting.next(begun.elapsed())
            {
                start(job);
            }
            if waiting.running.is_empty() {
                break;
            }
            match receiver.recv_timeout(LOOK) {
                Ok(ended) => {
                    waiting.ended(&ended.job);
                    done(ended);
                }
                Err(RecvTimeoutError::Timeout) => {
                    if processors.are_idle()
                        && !running.is_closed()
                        && let Some(job) = waiting.next_on_an_idle_machine(begun.elapsed())
                    {
                        start(job);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let interrupted = running.is_closed();
        running.close();
        // it has nothing left to watch
        let _ = watch.join();
        Ok(interrupted)
    })
}

/// Ends everything at Ctrl-C and SIGTERM. Test processes are in their own groups, so the signals of a terminal do not reach them.
fn interrupts(running: Arc<Running>) -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("starting a runtime for signals")?;
    let (ready, is_ready) = sync_channel(1);
    runtime.spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        );
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return;
        };
        // it fails only when the receiver is gone
        let _ = ready.send(());
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        note("stopping: what runs is ended");
        running.close();
    });
    is_ready.recv().context("listening for Ctrl-C")?;
    Ok(runtime)
}

/// The jobs that have not started, the longest first, and those that run.
#[derive(Debug)]
struct Waiting {
    jobs: VecDeque<Job>,
    capacity: f64,
    running: Vec<Taken>,
}

/// What a job that runs takes of the machine, and from when until when it is expected to, since the start of the run.
#[derive(Clone, Debug)]
struct Taken {
    id: String,
    load: f64,
    from: Duration,
    until: Duration,
}

impl Taken {
    /// Returns when it is expected to end. One that takes longer than expected is expected to take half as long again.
    fn ends(&self, now: Duration) -> Duration {
        if self.until > now {
            self.until
        } else {
            now + now.saturating_sub(self.from) / 2
        }
    }
}

impl Waiting {
    fn new(jobs: Vec<Job>, capacity: f64) -> Self {
        Self {
            jobs: jobs.into(),
            capacity,
            running: Vec::new(),
        }
    }

    fn load(&self, job: &Job) -> f64 {
        job.expected.load.clamp(LEAST_LOAD, self.capacity)
    }

    fn taken(&self) -> f64 {
        self.running.iter().map(|taken| taken.load).sum()
    }

    /// Returns the next job that fits: the longest, or, if that does not fit, the longest of those that do not keep it waiting, because they
    /// end before it fits (the rule of EASY backfilling) or because they mostly wait.
    fn next(&mut self, now: Duration) -> Option<Job> {
        let room = self.capacity + ROUNDING - self.taken();
        let first = self.load(self.jobs.front()?);
        let fits_at = self.fits_at(first, now);
        let index = self.jobs.iter().enumerate().position(|(index, job)| {
            let ends = now.saturating_add(job.expected.duration());
            self.load(job) <= room && (index == 0 || self.load(job) <= WAITING || ends <= fits_at)
        })?;
        self.take(index, now)
    }

    /// Returns when a job of this load fits, if every job that runs ends as expected.
    fn fits_at(&self, load: f64, now: Duration) -> Duration {
        let mut taken = self.taken();
        let mut running: Vec<&Taken> = self.running.iter().collect();
        running.sort_by_key(|taken| taken.ends(now));
        let mut at = now;
        for ending in running {
            if taken + load <= self.capacity + ROUNDING {
                break;
            }
            taken -= ending.load;
            at = ending.ends(now);
        }
        at
    }

    /// Returns the longest job for a machine that is idle although no job fits: what runs needs less than it was expected to. There is one such
    /// job at a time.
    fn next_on_an_idle_machine(&mut self, now: Duration) -> Option<Job> {
        (self.taken() <= self.capacity)
            .then(|| self.take(0, now))
            .flatten()
    }

    fn take(&mut self, index: usize, now: Duration) -> Option<Job> {
        let job = self.jobs.remove(index)?;
        self.running.push(Taken {
            id: job.id.clone(),
            load: self.load(&job),
            from: now,
            until: now.saturating_add(job.expected.duration()),
        });
        Some(job)
    }

    fn ended(&mut self, job: &Job) {
        if let Some(index) = self.running.iter().position(|taken| taken.id == job.id) {
            self.running.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Expected;
    use super::*;

    fn job(id: &str, seconds: f64, load: f64) -> Job {
        Job {
            id: id.to_owned(),
            target: "p/t".to_owned(),
            is_batch: false,
            is_cargo: false,
            program: "/bin/true".into(),
            arguments: Vec::new(),
            dir: "/".into(),
            package: "p".to_owned(),
            tests: vec!["x".to_owned()],
            expected: Expected { seconds, load },
        }
    }

    const START: Duration = Duration::ZERO;

    fn begin(waiting: &mut Waiting) -> Vec<String> {
        std::iter::from_fn(|| waiting.next(START))
            .map(|job| job.id)
            .collect()
    }

    #[test]
    fn what_waits_runs_beside_what_burns_the_processors() {
        let mut waiting = Waiting::new(
            vec![
                job("heavy", 50.0, 1.7),
                job("busy", 40.0, 1.0),
                job("idle", 30.0, 0.2),
                job("busy-2", 20.0, 1.0),
            ],
            2.0,
        );
        assert_eq!(begin(&mut waiting), ["heavy", "idle"]);
        waiting.ended(&job("heavy", 50.0, 1.7));
        assert_eq!(begin(&mut waiting), ["busy"]);
        waiting.ended(&job("idle", 30.0, 0.2));
        assert_eq!(begin(&mut waiting), ["busy-2"]);
    }

    #[test]
    fn what_ends_before_the_longest_fits_does_not_keep_it_waiting() {
        let mut waiting = Waiting::new(
            vec![
                job("heavy", 50.0, 1.4),
                job("busy", 45.0, 1.0),
                job("short", 40.0, 0.6),
                job("shorter", 30.0, 0.6),
            ],
            2.0,
        );
        assert_eq!(begin(&mut waiting), ["heavy", "short"]);
        waiting.ended(&job("short", 40.0, 0.6));
        // 30 s from here end after `heavy`, and `busy` would have to wait for them
        let later = Duration::from_secs(25);
        assert!(waiting.next(later).is_none());
        // now `heavy` takes longer than expected, 40 s more as it seems
        let overdue = Duration::from_secs(80);
        let next = waiting.next(overdue).map(|job| job.id);
        assert_eq!(next.as_deref(), Some("shorter"));
        waiting.ended(&job("shorter", 30.0, 0.6));
        waiting.ended(&job("heavy", 50.0, 1.4));
        let next = waiting.next(later).map(|job| job.id);
        assert_eq!(next.as_deref(), Some("busy"));
    }

    #[test]
    fn an_idle_machine_gets_one_job_that_does_not_fit() {
        let mut waiting = Waiting::new(
            vec![
                job("heavy", 50.0, 1.7),
                job("busy", 40.0, 1.0),
                job("busy-2", 20.0, 1.0),
            ],
            2.0,
        );
        assert_eq!(begin(&mut waiting), ["heavy"]);
        let mut beyond = || waiting.next_on_an_idle_machine(START).map(|job| job.id);
        assert_eq!(beyond().as_deref(), Some("busy"));
        assert_eq!(beyond(), None);
        waiting.ended(&job("busy", 40.0, 1.0));
        let next = waiting.next_on_an_idle_machine(START).map(|job| job.id);
        assert_eq!(next.as_deref(), Some("busy-2"));
    }

    #[test]
    fn a_job_that_asks_for_more_than_there_is_runs_alone() {
        let mut waiting = Waiting::new(vec![job("wide", 9.0, 5.0), job("next", 1.0, 1.0)], 2.0);
        assert_eq!(begin(&mut waiting), ["wide"]);
        waiting.ended(&job("wide", 9.0, 5.0));
        assert_eq!(begin(&mut waiting), ["next"]);
    }

    #[test]
    fn every_job_is_run_and_told_once() {
        let jobs = (0..20).map(|n| job(&format!("j{n}"), 1.0, 0.5)).collect();
        let mut seen = Vec::new();
        let interrupted = all(jobs, 2.0, &[], |done| seen.push(done.job.id)).expect("threads");
        assert!(!interrupted);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 20);
    }
}
