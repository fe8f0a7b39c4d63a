//! `cargo xtask record scheduler`: the verdict of each filter plugin of a real kube-scheduler on a pod and a node, and the scores of each
//! score plugin.
//!
//! All objects of the cases exist before the scheduler starts, so that it knows them before its first verdict. The verdict is read from the
//! binding or from the message of the pod's condition.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use programs::console::note;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::cases::PLUGINS;
use self::score_cases::{VARIANTS, Variant};

mod case;
mod cases;
mod filters;
mod objects;
mod process;
mod score_cases;
mod scores;
mod verdicts;

/// Cases whose objects are created concurrently.
const CONCURRENCY: usize = 16;

/// What to record, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases for each plugin.
    #[arg(long, default_value_t = 200)]
    cases: u64,
    /// Seed of the first case.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only plugins whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Changes nothing; fails and names the cases whose verdicts differ from those recorded.
    #[arg(long)]
    check: bool,
    /// Directory of the corpus.
    #[arg(long, default_value = "scheduler/corpus")]
    corpus: PathBuf,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(record(args))
}

async fn record(args: Args) -> anyhow::Result<()> {
    let chosen: Vec<usize> = (0..PLUGINS.len())
        .filter(|plugin| {
            let only = args.only.as_deref();
            only.is_none_or(|only| PLUGINS[*plugin].name.contains(only))
        })
        .collect();
    let variants: Vec<&Variant> = VARIANTS
        .iter()
        .filter(|variant| {
            let only = args.only.as_deref();
            only.is_none_or(|only| variant.name.contains(only))
        })
        .collect();
    ensure!(
        !(chosen.is_empty() && variants.is_empty()),
        "no plugin has such a name"
    );
    let mut changed = Vec::new();
    for plugin in chosen {
        let name = PLUGINS[plugin].name;
        let recorded = filters::record(&args, plugin)
            .await
            .with_context(|| format!("cannot record {name}"))?;
        let path = args.corpus.join(format!("{name}.jsonl"));
        if args.check {
            changed.extend(differing(&path, &recorded, |line| {
                (line.case.clone(), format!("{:?}", line.reasons))
            })?);
        } else {
            write(&path, &recorded)?;
        }
        let feasible = recorded.iter().filter(|line| line.reasons.is_empty());
        note(&format!(
            "{name}: {} of {} nodes will do",
            feasible.count(),
            recorded.len()
        ));
    }
    for variant in variants {
        let name = variant.name;
        let recorded = scores::record(&args, variant)
            .await
            .with_context(|| format!("cannot record {name}"))?;
        let path = args.corpus.join(format!("{name}.jsonl"));
        if args.check {
            changed.extend(differing(&path, &recorded, |line| {
                (line.case.clone(), format!("{:?}", line.scores))
            })?);
        } else {
            write(&path, &recorded)?;
        }
        let scored = recorded.iter().filter(|line| !line.scores.is_empty());
        note(&format!(
            "{name}: {} of {} cases are scored",
            scored.count(),
            recorded.len()
        ));
    }
    ensure!(
        changed.is_empty(),
        "these verdicts differ from the recording:\n{}",
        changed.join("\n")
    );
    Ok(())
}

fn write<T: Serialize>(path: &Path, lines: &[T]) -> anyhow::Result<()> {
    let mut text = String::new();
    for line in lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    std::fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| std::fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the cases with other verdicts than in the file. `describe` returns a line's case and its verdict in words.
fn differing<T: DeserializeOwned + PartialEq>(
    path: &Path,
    now: &[T],
    describe: impl Fn(&T) -> (String, String),
) -> anyhow::Result<Vec<String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let before: Vec<T> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .with_context(|| format!("cannot parse {}", path.display()))?;
    let mut list = Vec::new();
    for line in now {
        let (case, verdict) = describe(line);
        match before.iter().find(|other| describe(other).0 == case) {
            Some(other) if other == line => {}
            Some(other) => list.push(format!("{case}: {verdict}, recorded {}", describe(other).1)),
            None => list.push(format!("{case}: not recorded")),
        }
    }
    Ok(list)
}
