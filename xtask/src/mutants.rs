//! The proof that the suite notices faults: deliberate ones are built into the programs one at a time, and the suite has to fail.
//!
//! The edits are a committed list ([`list`]); no product has a switch for one. Each is made in a copy of the sources with a build of its own
//! ([`tree`]), so no build that anybody else uses has it. The suite that judges ([`stage`]) and the cluster that it brings up are built
//! without any. What became of each mutant is kept ([`results`]) and rendered ([`table`]).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use data_encoding::HEXLOWER;
use programs::console::note;
use sha2::{Digest as _, Sha256};

use crate::cargo;

mod list;
mod results;
mod stage;
mod table;
mod tree;

use list::Mutant;
use results::{CONTROL, Record, Results, Totals};
use stage::{Seen, Stage, Trial};
use tree::Tree;

/// The page of the results.
const PAGE: &str = "docs/mutants.md";

/// Which mutants are run, and how.
#[derive(Clone, Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct Args {
    /// Only mutants with one of these in their name [default: all]
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Print the selected mutants and run none
    #[arg(long)]
    list: bool,
    /// Run none; fail unless every edit fits the sources
    #[arg(long, conflicts_with = "list")]
    check: bool,
    /// Run none; fail unless every selected mutant compiles
    #[arg(long, conflicts_with_all = ["list", "check"])]
    compile_only: bool,
    /// Run only the scenarios of tier 0
    #[arg(long)]
    tier0: bool,
    /// Do not run again what has a result on the same sources
    #[arg(long)]
    resume: bool,
    /// How many mutants are judged at the same time, each on a cluster of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// Run none; write docs/mutants.md from the latest results
    #[arg(long, conflicts_with_all = ["filters", "list", "check", "compile_only", "tier0", "resume"])]
    table: bool,
}

impl Args {
    fn stages(&self) -> &'static [Stage] {
        if self.tier0 {
            &[Stage::Tier0]
        } else {
            &Stage::ALL
        }
    }

    fn selects(&self, mutant: &Mutant) -> bool {
        self.filters.is_empty()
            || self
                .filters
                .iter()
                .any(|filter| mutant.name.contains(filter))
    }
}

/// Identifies a list of texts. Each counts with its length, so that no two lists look the same when they are joined.
#[derive(Debug, Default)]
struct Digest(Sha256);

impl Digest {
    fn add(&mut self, part: &[u8]) {
        self.0.update(part.len().to_le_bytes());
        self.0.update(part);
    }

    /// Returns the first eight bytes in hexadecimal digits.
    fn text(self) -> String {
        HEXLOWER.encode(&self.0.finalize()[..8])
    }
}

/// Runs the selected mutants and prints `mutants: N caught, N not caught` last.
///
/// # Errors
/// Returns an error if the list does not fit the sources, a mutant does not compile, a run without any fault fails, or the suite notices too
/// few of the faults.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().context("finding the workspace")?;
    let mutants = list::read(&root)?;
    let wrong = list::check(&root, &mutants);
    ensure!(
        wrong.is_empty(),
        "{} thing(s) are wrong with the list of mutants:\n  {}",
        wrong.len(),
        wrong.join("\n  ")
    );
    if args.check {
        note(&format!("{} mutants fit the sources", mutants.len()));
        return Ok(());
    }
    let selected: Vec<&Mutant> = mutants
        .iter()
        .filter(|mutant| args.selects(mutant))
        .collect();
    ensure!(
        !selected.is_empty(),
        "no mutant has {} in its name; --list shows them",
        args.filters.join(" or ")
    );
    if args.list {
        return print(&selected);
    }
    let dir = cargo::target_dir()?.join("mutants");
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut results = Results::read(&dir.join("results.jsonl"));
    if args.table {
        return write_table(&root, &mutants, &results);
    }
    let tree = Tree::prepare(&root, &dir, args.jobs)?;
    if args.compile_only {
        return compile(&tree, &selected);
    }
    let runner = Runner {
        tree: &tree,
        runs: &dir.join("runs"),
        args,
    };
    runner.run(&selected, &mut results)?;
    let stages = args.stages();
    let records = selected
        .iter()
        .map(|mutant| (*mutant, results.on(Some(mutant), tree.digest())));
    let totals = Totals::of(records, stages);
    conclude(&totals, args)
}

fn print(mutants: &[&Mutant]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for mutant in mutants {
        writeln!(
            out,
            "{}\t{}\t{}\t{}",
            mutant.name,
            mutant.source.text(),
            mutant.file,
            mutant.why
        )?;
    }
    Ok(())
}

fn write_table(root: &Path, mutants: &[Mutant], results: &Results) -> anyhow::Result<()> {
    let records = mutants
        .iter()
        .map(|mutant| (mutant, results.latest(mutant)));
    let page = table::render(records);
    std::fs::write(root.join(PAGE), page).with_context(|| format!("writing {PAGE}"))?;
    note(&format!("{PAGE}: {} mutants", mutants.len()));
    Ok(())
}

/// Compiles each mutant, and names those that do not.
fn compile(tree: &Tree, mutants: &[&Mutant]) -> anyhow::Result<()> {
    tree.check().context("the sources without an edit")?;
    let mut failed = Vec::new();
    for (number, mutant) in (1..).zip(mutants) {
        tree.apply(mutant)?;
        let checked = tree.check();
        tree.revert(mutant)?;
        let result = match checked {
            Ok(()) => "compiles".to_owned(),
            Err(error) => {
                failed.push(mutant.name.as_str());
                format!("does not compile: {error:#}")
            }
        };
        note(&format!(
            "[{number}/{}] {}: {result}",
            mutants.len(),
            mutant.name
        ));
    }
    ensure!(
        failed.is_empty(),
        "{} mutants do not compile: {}",
        failed.len(),
        failed.join(", ")
    );
    Ok(())
}

/// Fails when the suite noticed too little. What only some mutants show says nothing about shares.
fn conclude(totals: &Totals, args: &Args) -> anyhow::Result<()> {
    note(&format!(
        "mutants: {} caught, {} of them by tier 0, {} not caught",
        totals.by_any,
        totals.by_tier0,
        totals.all - totals.by_any
    ));
    if !args.filters.is_empty() {
        ensure!(
            args.tier0 || totals.unexplained.is_empty(),
            "not caught: {}",
            totals.unexplained.join(", ")
        );
        return Ok(());
    }
    let short = totals.shortfalls(args.stages());
    ensure!(short.is_empty(), "{}", short.join("\n  "));
    Ok(())
}

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
struct Runner<'a> {
    tree: &'a Tree,
    /// Directory with the reports of the runs.
    runs: &'a Path,
    args: &'a Args,
}

impl Runner<'_> {
    /// Runs the suite on a build without a fault, then on one build for each mutant. While some are judged, the next is built.
    fn run(&self, mutants: &[&Mutant], results: &mut Results) -> anyhow::Result<()> {
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
            let judges: Vec<_> = (0..self.args.jobs)
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
            let bin_dirs: Vec<PathBuf> = self.tree.bin_dirs().take(self.args.jobs.into()).collect();
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
            let stages = record.left(self.args.stages());
            record = judge(record, &stages, run, &Mutex::new(results))?;
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
        let former = results.on(mutant, self.tree.digest());
        former
            .filter(|_| self.args.resume)
            .cloned()
            .unwrap_or_else(|| Record::new(mutant, self.tree.digest()))
    }

    fn is_open(&self, record: &Record) -> bool {
        !record.left(self.args.stages()).is_empty()
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
            let run = |stage| {
                let noticing = mutant.noticed_by.iter().map(String::as_str);
                let noticing: Vec<&str> = noticing.filter(|id| Stage::of(id) == stage).collect();
                if stage != Stage::Tier0 && !noticing.is_empty() {
                    let seen = self.trial(&mutant.name, &bin_dir, stage, &noticing)?;
                    if !seen.failed.is_empty() {
                        return Ok(seen);
                    }
                }
                self.trial(&mutant.name, &bin_dir, stage, &[])
            };
            let mut stages = record.left(self.args.stages());
            if mutant
                .noticed_by
                .iter()
                .any(|id| Stage::of(id) == Stage::Openshift)
            {
                stages.sort_by_key(|stage| *stage == Stage::Others);
            }
            let judged = built.and_then(|()| judge(record, &stages, run, results));
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
fn judge(
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
