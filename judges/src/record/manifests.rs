//! `cargo xtask record manifests`: compares the embedded API server with a real one on manifests, valid and with a rule broken each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use judges::manifests::{self, Difference, Finding, Judge, Known, Outcome};
use programs::console::note;
use serde_json::json;

/// Number of differences that are shown whole.
const SHOWN: usize = 10;

/// Which manifests.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of manifests, drawn at random.
    #[arg(long, default_value_t = 5000)]
    count: usize,
    /// What they are drawn with; another one each time if it is not given.
    #[arg(long)]
    seed: Option<u64>,
    /// All manifests that can be drawn, each once.
    #[arg(long, conflicts_with_all = ["count", "seed"])]
    all: bool,
    /// Only cases whose name contains this, such as `create pod /spec/hostname`.
    #[arg(long)]
    only: Option<String>,
    /// Writes each difference that is not listed to this file, as a line of JSON.
    #[arg(long, value_name = "FILE")]
    findings: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(compare(args))
}

async fn compare(args: Args) -> anyhow::Result<()> {
    let documents = manifests::documents()?;
    let known = Known::read()?;
    let mut cases = if args.all {
        manifests::all(&documents)
    } else {
        let clock = || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(0, |now| now.as_secs())
        };
        let seed = args.seed.unwrap_or_else(clock);
        note(&format!(
            "--count {} --seed {seed} repeats this run",
            args.count
        ));
        manifests::drawn(&documents, args.count, seed)
    };
    if let Some(only) = &args.only {
        cases.retain(|case| case.to_string().contains(only));
    }
    let outcome = Judge::start().await?.run(&cases, &known).await?;
    note(&format!("{} manifests", outcome.compared));
    if let Some(path) = &args.findings {
        let lines: Vec<String> = outcome.findings.iter().map(line).collect();
        std::fs::write(path, lines.concat())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let unmet: Vec<&str> = known
        .rules()
        .filter(|rule| args.all && args.only.is_none() && !outcome.met.contains(*rule))
        .collect();
    let is_met = unmet.is_empty();
    ensure!(
        is_met && is_as_known(&outcome),
        "{}",
        report(&outcome, &unmet)
    );
    Ok(())
}

fn is_as_known(outcome: &Outcome) -> bool {
    outcome.findings.is_empty() && outcome.mended.is_empty()
}

fn line(finding: &Finding) -> String {
    let difference = Difference::between(&finding.real, &finding.ours);
    let text = json!({"case": finding.case, "kind": finding.kind, "real": difference.real, "ours": difference.ours});
    format!("{text}\n")
}

fn report(outcome: &Outcome, unmet: &[&str]) -> String {
    let mut text = String::new();
    for rule in unmet {
        // writing to a `String` cannot fail
        let _ = writeln!(text, "met by no manifest, so not to be listed: {rule}");
    }
    for (rule, case) in &outcome.mended {
        let _ = writeln!(
            text,
            "no longer different, so not to be listed: {rule} ({case})"
        );
    }
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in &outcome.findings {
        *kinds.entry(&finding.kind).or_default() += 1;
    }
    for finding in outcome.findings.iter().take(SHOWN) {
        let _ = writeln!(
            text,
            "{finding}  again: cargo xtask record manifests --all --only '{}'",
            finding.case
        );
    }
    let total = outcome.findings.len();
    let _ = write!(
        text,
        "{total} manifests with differences that are not listed: {kinds:?}"
    );
    text
}
