//! `cargo xtask bench`: measures the products against their goals. Not part of CI, because figures depend on the machine.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Parser;
use programs::console::note;

mod apiserver;
mod churn;
mod operator;
mod process;
mod rte;
mod scheduler;
mod shipped;
mod waiting;

/// Measures a product against its goals.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
enum Bench {
    /// The embedded API server with thousands of light nodes and pods, and many clients.
    Apiserver(apiserver::Args),
    /// The whole stack under more pods than fit, beside kube-scheduler and a simulation, on four real kubelets. Needs Linux and root.
    Churn(churn::Args),
    /// The operator with many pools and nodes, on the embedded API server.
    Operator(operator::Args),
    /// The resource topology exporter on a real kubelet. Needs Linux and root.
    Rte(rte::Args),
    /// The scheduler beside kube-scheduler on a real API server with light nodes. Needs the Kubernetes programs.
    Scheduler(scheduler::Args),
    /// The scheduler while thousands of pods wait that no node can take, on the embedded API server.
    Waiting(waiting::Args),
}

fn main() -> ExitCode {
    match run(Bench::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(what: Bench) -> anyhow::Result<()> {
    match what {
        Bench::Apiserver(args) => apiserver::run(&args),
        Bench::Churn(args) => churn::run(&args),
        Bench::Operator(args) => operator::run(&args),
        Bench::Rte(args) => rte::run(&args),
        Bench::Scheduler(args) => scheduler::run(&args),
        Bench::Waiting(args) => waiting::run(&args),
    }
}

/// A figure and its goal, the largest allowed value.
#[derive(Clone, Debug)]
struct Figure {
    what: &'static str,
    unit: &'static str,
    goal: f64,
    /// One value per run.
    runs: Vec<f64>,
}

impl Figure {
    fn new(what: &'static str, unit: &'static str, goal: f64) -> Self {
        Self {
            what,
            unit,
            goal,
            runs: Vec::new(),
        }
    }

    /// Returns the median; for an even number of runs the larger of the two middle values. Infinite when nothing was measured.
    fn value(&self) -> f64 {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
            .get(sorted.len() / 2)
            .copied()
            .unwrap_or(f64::INFINITY)
    }

    fn is_met(&self) -> bool {
        self.value() <= self.goal
    }
}

/// Formats the figures with their goals.
fn table(figures: &[Figure]) -> String {
    let mut text = String::from("| figure | goal | median | runs | |\n|---|---|---|---|---|\n");
    for figure in figures {
        let runs: Vec<String> = figure.runs.iter().map(|run| format!("{run:.2}")).collect();
        writeln!(
            text,
            "| {} | <= {} {unit} | {:.2} {unit} | {} | {} |",
            figure.what,
            figure.goal,
            figure.value(),
            runs.join(" "),
            if figure.is_met() { "met" } else { "MISSED" },
            unit = figure.unit,
        )
        .expect("writing to a string cannot fail");
    }
    text
}

/// Shows the table. With `check` a missed goal is an error.
fn conclude(figures: &[Figure], check: bool) -> anyhow::Result<()> {
    write!(std::io::stdout(), "{}", table(figures))?;
    let missed = figures.iter().filter(|figure| !figure.is_met()).count();
    ensure!(!check || missed == 0, "{missed} goal(s) missed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(runs: &[f64]) -> Figure {
        Figure {
            runs: runs.to_vec(),
            ..Figure::new("time", "ms", 10.0)
        }
    }

    #[test]
    fn median_counts_and_not_the_worst_run() {
        assert!(figure(&[1.0, 99.0, 9.0, 10.0, 2.0]).is_met());
        assert!(!figure(&[1.0, 99.0, 11.0, 10.5, 2.0]).is_met());
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert!(!figure(&[]).is_met());
        assert!(conclude(&[figure(&[])], true).is_err());
        assert!(conclude(&[figure(&[])], false).is_ok());
    }

    #[test]
    fn table_has_the_goal_beside_the_figure() {
        let text = table(&[figure(&[3.0, 1.0, 2.0])]);
        let row = "| time | <= 10 ms | 2.00 ms | 3.00 1.00 2.00 | met |";
        assert_eq!(text.lines().nth(2), Some(row));
    }
}
