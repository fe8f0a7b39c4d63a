//! Runs tests, each in a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use programs::child::output_within;
use serde::Deserialize;

use super::outcome::Outcome;

/// How long the program may take to list its tests.
const LIST_LIMIT: Duration = Duration::from_mins(1);
/// How long a test may take. The slowest waits six minutes for a compaction.
const LIMIT: Duration = Duration::from_mins(12);
/// How long a test may clean up after that, before it is killed.
const GRACE: Duration = Duration::from_mins(1);
/// Marks of tests that disturb others.
const ALONE: [&str; 2] = ["[Serial]", "[Disruptive]"];

/// Why tests could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be run, or its output not be kept.
    #[error("cannot run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The list of tests cannot be read.
    #[error("cannot read the list of tests")]
    List(#[from] serde_yaml::Error),
}

#[derive(Deserialize)]
struct Test {
    codename: String,
}

/// Returns the names of all conformance tests of the program.
///
/// # Errors
/// Returns an error if the program cannot be run or its answer not be read.
pub fn list(program: &Path) -> Result<BTreeSet<String>, Error> {
    let mut command = Command::new(program);
    command.arg("--list-conformance-tests").stdin(Stdio::null());
    let output = output_within(&mut command, LIST_LIMIT).map_err(|source| Error::Run {
        program: program.to_owned(),
        source,
    })?;
    let tests: Vec<Test> = serde_yaml::from_slice(&output.stdout)?;
    Ok(tests.into_iter().map(|test| test.codename).collect())
}

/// How tests are run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program with the tests.
    pub program: PathBuf,
    /// The cluster's own client, which some tests call.
    pub kubectl: PathBuf,
    /// The cluster.
    pub kubeconfig: PathBuf,
    /// Directory for the output of each test.
    pub outputs: PathBuf,
    /// How many tests run at the same time.
    pub jobs: usize,
}

/// A test that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its name.
    pub test: String,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
    /// Its output.
    pub output: PathBuf,
}

/// Runs tests: first those that may run beside others, then the rest one after another. `report` hears of each that has ended.
///
/// # Errors
/// Returns an error if the program cannot be run or its output not be kept.
pub async fn run(
    plan: &Plan,
    tests: &[String],
    report: impl Fn(&Finished),
) -> Result<BTreeMap<String, Outcome>, Error> {
    let (alone, beside): (Vec<_>, Vec<_>) = tests
        .iter()
        .enumerate()
        .partition(|(_, test)| ALONE.iter().any(|mark| test.contains(mark)));
    let report = &report;
    let mut outcomes = BTreeMap::new();
    for (tests, jobs) in [(beside, plan.jobs), (alone, 1)] {
        let finished: Vec<Finished> = stream::iter(tests)
            .map(async |(number, test)| {
                let finished = one(plan, number, test).await?;
                report(&finished);
                Ok::<_, Error>(finished)
            })
            .buffer_unordered(jobs.max(1))
            .try_collect()
            .await?;
        outcomes.extend(finished.into_iter().map(|it| (it.test, it.outcome)));
    }
    Ok(outcomes)
}

async fn one(plan: &Plan, number: usize, test: &str) -> Result<Finished, Error> {
    let begun = Instant::now();
    let output = plan.outputs.join(format!("{number:03}.log"));
    let failed = |source| Error::Run {
        program: plan.program.clone(),
        source,
    };
    let file = fs_err::File::create(&output)
        .map_err(failed)?
        .into_parts()
        .0;
    let seconds = LIMIT.as_secs();
    let mut child = tokio::process::Command::new(&plan.program)
        .arg(format!("--ginkgo.focus={}$", regex::escape(test)))
        .arg(format!("--ginkgo.timeout={seconds}s"))
        .args(["--ginkgo.no-color", "--ginkgo.silence-skips=false"])
        .args(["--provider=skeleton", "--dump-logs-on-failure=false"])
        .arg("--kubeconfig")
        .arg(&plan.kubeconfig)
        .arg("--kubectl-path")
        .arg(&plan.kubectl)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(failed)?)
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let ended = tokio::time::timeout(LIMIT + GRACE, child.wait()).await;
    let outcome = if let Ok(status) = ended {
        let text = fs_err::read(&output).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        Outcome::read(&text, status.map_err(failed)?.success())
    } else {
        child.kill().await.map_err(failed)?;
        Outcome::Failed(format!("it did not end within {seconds} s and was killed"))
    };
    Ok(Finished {
        test: test.to_owned(),
        outcome,
        took: begun.elapsed(),
        output,
    })
}
