//! The results of all seeds: as a table, as figures with goals, and every pod in a file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::outcome::{COLUMNS, Outcome, percentile};
use crate::Figure;

/// The outcomes of one seed.
pub(super) struct Results {
    pub(super) seed: u64,
    pub(super) kubernetes: Outcome,
    pub(super) ours: Outcome,
    pub(super) simulation: Outcome,
    /// The simulation again, with the delays that the kubelets added to the pods of our stack.
    pub(super) bounded: Outcome,
}

impl Results {
    /// Returns what was served, in percent of the simulation.
    fn share(&self, outcome: &Outcome) -> f64 {
        100.0 * outcome.served / self.simulation.served
    }
}

/// Appends the pods of a run to a file.
pub(super) fn save(
    file: &Path,
    seed: u64,
    scheduler: &str,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    let mut text = format!("# seed {seed}, {scheduler}\n{COLUMNS}\tidle room\n");
    for (pod, idle) in outcome.pods.iter().zip(&outcome.idle_room) {
        writeln!(text, "{}\t{idle:.3}", pod.row())?;
    }
    let mut to = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(to.write_all(text.as_bytes())?)
}

/// Formats all results of every seed.
pub(super) fn table(all: &[Results]) -> String {
    let mut text = String::from(
        "| seed | placed by | ran | refused | CPU-seconds served | of the simulation | create to running p50 / p99 | room unused p50 / p99 | of that in the kubelet |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for results in all {
        for (name, outcome) in [
            ("kube-scheduler", &results.kubernetes),
            ("ours", &results.ours),
            ("simulation", &results.simulation),
            ("simulation with these kubelets", &results.bounded),
        ] {
            writeln!(
                text,
                "| {} | {name} | {} | {} | {:.0} | {:.1} % | {:.1} / {:.1} s | {:.2} / {:.2} s | {:.2} / {:.2} s |",
                results.seed,
                outcome.ran,
                outcome.refused,
                outcome.served,
                results.share(outcome),
                percentile(&outcome.to_running, 50),
                percentile(&outcome.to_running, 99),
                percentile(&outcome.idle_room, 50),
                percentile(&outcome.idle_room, 99),
                percentile(&outcome.starts, 50),
                percentile(&outcome.starts, 99),
            )
            .expect("writing to a string cannot fail");
        }
    }
    text
}

/// Returns our figures with the goals.
pub(super) fn figures(all: &[Results]) -> Vec<Figure> {
    let ours = || all.iter().map(|results| &results.ours);
    let refused: usize = ours().map(|outcome| outcome.refused).sum();
    let idle = ours().map(|outcome| percentile(&outcome.idle_room, 99));
    let lost = all
        .iter()
        .map(|results| 100.0 - results.share(&results.ours));
    vec![
        Figure {
            runs: vec![refused as f64],
            ..Figure::new("refused by a kubelet, all seeds", "pods", 0.0)
        },
        Figure {
            runs: lost.collect(),
            ..Figure::new("less served than by the simulation", "%", 5.0)
        },
        Figure {
            runs: idle.collect(),
            ..Figure::new("not running although a zone had room, p99", "s", 1.0)
        },
    ]
}
