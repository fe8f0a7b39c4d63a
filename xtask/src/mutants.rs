//! The proof that the suite notices faults: deliberate ones are built into the programs one at a time, and the suite has to fail.
//!
//! The edits are a committed list ([`list`]); no product has a switch for one. Each is made in a copy of the sources with a build of its own
//! ([`tree`]), so no build that anybody else uses has it. The suite that judges ([`stage`], [`runner`]) and the cluster that it brings up are
//! built without any. What became of each mutant is kept ([`results`]) and rendered ([`table`]).

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use data_encoding::HEXLOWER;
use programs::console::note;
use sha2::{Digest as _, Sha256};

use crate::cargo;

mod list;
mod results;
mod runner;
mod stage;
mod table;
mod tree;

use list::Mutant;
use results::{Results, Totals};
use runner::Runner;
use stage::Stage;
use tree::Tree;

/// The page of the results.
const PAGE: &str = "docs/mutants.md";
/// The file of the results.
const RESULTS: &str = "xtask/mutants/results.jsonl";

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
    /// Do not run again what has a result, be it of sources before the latest changes
    #[arg(long)]
    resume: bool,
    /// How many mutants are judged at the same time, each on a cluster of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// Run none; write docs/mutants.md from the latest results, and forget all others
    #[arg(long, conflicts_with_all = ["filters", "list", "check", "compile_only", "tier0", "resume"])]
    table: bool,
}

impl Args {
    fn stages(&self) -> &'static [Stage] {
        if self.tier0 {
            &Stage::OF_TIER0
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
    let mut results = Results::read(&root.join(RESULTS));
    if args.table {
        results.keep_latest(&mutants)?;
        return write_table(&root, &mutants, &results);
    }
    let tree = Tree::prepare(&root, &dir, args.jobs)?;
    if args.compile_only {
        return compile(&tree, &selected);
    }
    let runner = Runner {
        tree: &tree,
        runs: &dir.join("runs"),
        stages: args.stages(),
        resume: args.resume,
        jobs: args.jobs,
    };
    runner.run(&selected, &mut results)?;
    let stages = args.stages();
    let records = selected
        .iter()
        .map(|mutant| (*mutant, results.latest(mutant)));
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
