//! Builds mutants and runs the suite on them, several at the same time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use programs::console::note;

use super::list::Mutant;
use super::results::{CONTROL, Record, Results};
use super::stage::{Seen, Stage, Trial};
use super::tree::{self, Tree};

/// A mutant whose build has ended.
#[derive(Debug)]
struct Ready<'m> {
    mutant: &'m Mutant,
    record: Record,
    /// Where its programs are.
    bin_dir: PathBuf,
    /// Whether it compiles.
    built: anyhow::Result<()>,
}

/// How many mutants are over.
#[derive(Debug)]
struct Progress {
    over: AtomicUsize,
    of: usize,
}

impl Progress {
    /// Counts one more, and returns `3/80`.
    fn next(&self) -> String {
        let over = self.over.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{over}/{}", self.of)
    }
}

/// Builds and runs mutants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) tree: &'a Tree,
    /// Directory with the reports of the runs.
    pub(crate) runs: &'a Path,
    /// The parts of the catalogue to run.
    pub(crate) stages: &'a [Stage],
    /// Whether what has a result is not run again.
    pub(crate) resume: bool,
    /// How many mutants are judged at the same time.
    pub(crate) jobs: u8,
}

impl Runner<'_> {
    /// Runs the suite on a build without a fault, then on one build for each mutant. While some are judged, the next is built.
    ///
    /// # Errors
    /// Returns an error if a run without a fault fails, or a mutant has no result.
    pub(crate) fn run(&self, mutants: &[&Mutant], results: &mut Results) -> anyhow::Result<()> {
        note("building the suite and the programs without a fault");
        self.tree.build_judge()?;
        self.control(results).context("the control run")?;
        note("control: nothing fails");
        let records = mutants
            .iter()
            .map(|mutant| (*mutant, self.record(Some(mutant), results)));
        let (open, over): (Vec<_>, Vec<_>) = records.partition(|(_, record)| self.is_open(record));
        for (mutant, record) in over {
            note(&format!(
                "{}: {} (by an earlier run)",
                mutant.name,
                verdict(&record)
            ));
        }
        let progress = Progress {
            over: AtomicUsize::new(0),
            of: open.len(),
        };
        let results = Mutex::new(results);
        let (ready, built) = mpsc::channel();
        let built = Mutex::new(built);
        let (give_back, free) = mpsc::channel();
        for bin_dir in self.tree.bin_dirs() {
            give_back.send(bin_dir).context("offering a directory")?;
        }
        let broken = thread::scope(|scope| {
            // its end of `ready` ends with the thread, also where that panics, so that nobody waits for more
            scope.spawn(move || self.build_each(open, &free, &ready));
            let judges: Vec<_> = (0..self.jobs)
                .map(|_| {
                    let give_back = give_back.clone();
                    let (progress, built, results) = (&progress, &built, &results);
                    scope.spawn(move || self.judge_each(progress, built, &give_back, results))
                })
                .collect();
            drop(give_back);
            let broken = judges.into_iter().map(|judge| {
                judge
                    .join()
                    .map_err(|_panic| anyhow!("a judge ended early"))
            });
            broken.collect::<anyhow::Result<Vec<_>>>()
        })?;
        let broken: Vec<String> = broken.into_iter().flatten().collect();
        ensure!(
            broken.is_empty(),
            "{} mutants have no result: {}",
            broken.len(),
            broken.join(", ")
        );
        Ok(())
    }

    /// Runs the suite on a build without a fault, where nothing may fail: as often at the same time as mutants will be judged, because what
    /// fails under that load would count as noticed.
    fn control(&self, results: &mut Results) -> anyhow::Result<()> {
        let mut record = self.record(None, results);
        if self.is_open(&record) {
            let bin_dirs: Vec<PathBuf> = self.tree.bin_dirs().take(self.jobs.into()).collect();
            for bin_dir in &bin_dirs {
                self.tree.build(bin_dir)?;
            }
            let run = |stage: Stage| {
                let each = (1_u8..).zip(&bin_dirs);
                let each = each.map(|(number, bin_dir)| (format!("{CONTROL}-{number}"), bin_dir));
                let each: Vec<_> = each.collect();
                thread::scope(|scope| {
                    let runs: Vec<_> = each
                        .iter()
                        .map(|(name, bin_dir)| {
                            scope.spawn(|| self.trial(name, bin_dir, stage, &[]))
                        })
                        .collect();
                    let mut all = Seen::nothing_failed(stage);
                    for run in runs {
                        all.add(
                            run.join()
                                .map_err(|_panic| anyhow!("a run ended early"))??,
                        );
                    }
                    Ok(all)
                })
            };
            let stages = record.left(self.stages);
            record = run_stages(record, &stages, run, &Mutex::new(results))?;
        }
        if let Some(seen) = record.caught() {
            let failed: Vec<&str> = seen.failed.iter().map(String::as_str).collect();
            bail!(
                "the run without a fault fails ({}), so no mutant can be counted: make {} green first",
                failed.join(", "),
                seen.stage.name()
            );
        }
        Ok(())
    }

    /// Returns the record of a mutant, or of the control run, that this run goes on with.
    fn record(&self, mutant: Option<&Mutant>, results: &Results) -> Record {
        let tree = self.tree.digest();
        let former = match mutant {
            None => results.control(tree),
            Some(mutant) => results.latest(mutant),
        };
        let mut record = former
            .filter(|_| self.resume)
            .cloned()
            .unwrap_or_else(|| Record::new(mutant, tree));
        if self.is_open(&record) {
            tree.clone_into(&mut record.tree);
        }
        record
    }

    fn is_open(&self, record: &Record) -> bool {
        !record.left(self.stages).is_empty()
    }

    /// Builds the programs of each mutant, into a directory that nobody judges.
    fn build_each<'m>(
        &self,
        open: Vec<(&'m Mutant, Record)>,
        free: &Receiver<PathBuf>,
        ready: &Sender<Ready<'m>>,
    ) {
        for (mutant, record) in open {
            let Ok(bin_dir) = free.recv() else {
                return;
            };
            let ready_mutant = Ready {
                mutant,
                record,
                built: self.build(mutant, &bin_dir),
                bin_dir,
            };
            if ready.send(ready_mutant).is_err() {
                return;
            }
        }
    }

    /// Judges mutants until there are no more. Returns the names of those that have no result.
    fn judge_each(
        &self,
        progress: &Progress,
        built: &Mutex<Receiver<Ready<'_>>>,
        give_back: &Sender<PathBuf>,
        results: &Mutex<&mut Results>,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        loop {
            let next = built.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(ready) = next else {
                return broken;
            };
            let started = Instant::now();
            let Ready {
                mutant,
                record,
                bin_dir,
                built,
            } = ready;
            let judged = built.and_then(|()| self.judge(mutant, record, &bin_dir, results));
            let result = match judged {
                Ok(record) => verdict(&record),
                Err(error) => {
                    broken.push(mutant.name.clone());
                    format!("no result: {error:#}")
                }
            };
            // the builder may have ended
            let _ = give_back.send(bin_dir);
            note(&format!(
                "[{}] {}: {result} ({} s)",
                progress.next(),
                mutant.name,
                started.elapsed().as_secs()
            ));
        }
    }

    /// Runs the suite on a mutant, as far as there is no result yet: in each part of the catalogue first the scenarios that are meant to notice
    /// it.
    fn judge(
        &self,
        mutant: &Mutant,
        record: Record,
        bin_dir: &Path,
        results: &Mutex<&mut Results>,
    ) -> anyhow::Result<Record> {
        let noticing = |stage: Stage| -> Vec<&str> {
            let ids = mutant.noticed_by.iter().map(String::as_str);
            ids.filter(|id| Stage::of(id) == stage).collect()
        };
        let run = |stage| {
            let first = noticing(stage);
            if !first.is_empty() {
                let seen = self.trial(&mutant.name, bin_dir, stage, &first)?;
                if !seen.failed.is_empty() {
                    return Ok(seen);
                }
            }
            self.trial(&mutant.name, bin_dir, stage, &[])
        };
        let mut stages = record.left(self.stages);
        if !noticing(Stage::Openshift).is_empty() {
            stages.sort_by_key(|stage| *stage == Stage::Others);
        }
        run_stages(record, &stages, run, results)
    }

    /// Builds the programs with an edit, and undoes it at once: what is built is all that the runs need.
    fn build(&self, mutant: &Mutant, bin_dir: &Path) -> anyhow::Result<()> {
        self.tree.apply(mutant)?;
        let built = self.tree.build(bin_dir);
        self.tree.revert(mutant)?;
        built.with_context(|| format!("{} does not compile: mend the edit", mutant.name))
    }

    /// Runs one stage of the suite on programs, or only some scenarios of it.
    fn trial(
        &self,
        name: &str,
        bin_dir: &Path,
        stage: Stage,
        only: &[&str],
    ) -> anyhow::Result<Seen> {
        let trial = Trial {
            suite: &tree::suite(bin_dir),
            bin_dir,
            artifacts: &self.runs.join(name),
        };
        trial.run(stage, only)
    }
}

/// Runs stages of the suite. Stops at the first that fails.
fn run_stages(
    mut record: Record,
    stages: &[Stage],
    run: impl Fn(Stage) -> anyhow::Result<Seen>,
    results: &Mutex<&mut Results>,
) -> anyhow::Result<Record> {
    for &stage in stages {
        note(&format!("{}: {}", record.name, stage.name()));
        let seen = run(stage)?;
        record.seen.retain(|former| former.stage != stage);
        record.seen.push(seen);
        results
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(record.clone())?;
        if record.caught().is_some() {
            break;
        }
    }
    Ok(record)
}

/// Returns what became of a mutant, for people.
fn verdict(record: &Record) -> String {
    match record.caught() {
        Some(seen) => {
            let failed: Vec<&str> = seen.failed.iter().map(String::as_str).collect();
            format!("caught by {}: {}", seen.stage.name(), failed.join(", "))
        }
        None if record.seen.iter().all(|seen| seen.whole) => "not caught".to_owned(),
        None => "not caught, and a run took too long and was stopped: it is no result".to_owned(),
    }
}
