//! What the tests share: a runtime, waiting, directories for reports, and running a selection of scenarios.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use reports::event::Verdict;
use reports::stream::Stream;
use suite::interrupt::Interrupt;
use suite::run::{self, Outcome, ReportPaths, Reports, Run};
use suite::scenarios;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use suite::skips::{self, Skips};
use tokio::runtime::{Builder, Runtime};

/// Returns a runtime for clusters and their clients.
pub(crate) fn runtime() -> Runtime {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

/// Waits until the check succeeds, and returns what it found.
pub(crate) async fn eventually<T>(
    what: &str,
    limit: Duration,
    check: impl AsyncFn() -> Result<T, String>,
) -> T {
    let found = testbed::eventually(limit, check).await;
    found
        .map_err(|seen| format!("{what}: {seen}"))
        .expect("it is so in time")
}

/// Returns a client of the cluster of a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig is readable");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("it has a context")).expect("it makes a client")
}

/// Returns how a program ended, and all that it wrote.
pub(crate) fn transcript(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Returns the paths of a test's reports. Tests run in parallel, so each of them uses another directory.
pub(crate) fn report_paths(test: &str, options: &Options) -> ReportPaths {
    let artifacts = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    ReportPaths::new(&artifacts, None, &options.run)
}

/// Opens the reports of a test that runs scenarios itself.
pub(crate) fn begin(options: &Options, paths: &ReportPaths) -> Stream {
    let reports = run::begin(options, Vec::new(), paths, Vec::new());
    reports.expect("the artefacts directory is writable").stream
}

/// Returns the value of an environment variable that is a number, if it is set.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("NUMARESOURCES_* variables are numbers"))
}

/// Describes a verdict in words.
pub(crate) fn describe(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed => "passed".to_owned(),
        Verdict::Failed(failure) => format!("failed: {failure}"),
        Verdict::Skipped { class, reason } => format!("skipped: {}: {reason}", class.as_str()),
        Verdict::Interrupted { reason } => format!("interrupted: {reason}"),
    }
}

/// Prepares a cluster for a test that runs the scenarios itself.
pub(crate) async fn start(options: &Options, stream: &Stream, paths: &ReportPaths) -> Session {
    Box::pin(Session::start(
        options,
        stream,
        &Interrupt::default(),
        &paths.artifacts,
    ))
    .await
    .expect("the set-up works")
}

/// A run that is over.
pub(crate) struct CompletedRun {
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// Why the set-up or tear-down failed.
    pub(crate) phase_failure: Option<String>,
    /// The verdict of each selected scenario.
    pub(crate) verdicts: BTreeMap<String, Verdict>,
    /// Its event log.
    pub(crate) events: PathBuf,
}

impl CompletedRun {
    /// Returns the scenarios whose verdict matches.
    pub(crate) fn ids(&self, matches: impl Fn(&Verdict) -> bool) -> Vec<&str> {
        let meant = self.verdicts.iter().filter(|(_, found)| matches(found));
        meant.map(|(id, _)| id.as_str()).collect()
    }
}

/// Runs the selected scenarios of the catalogue. `prepare` may break the cluster on purpose before the first one.
pub(crate) async fn run_scenarios(
    test: &str,
    options: &Options,
    selection: &Selection,
    prepare: impl AsyncFn(&Session) -> Result<(), String>,
) -> CompletedRun {
    run_with_skips(test, options, selection, None, prepare).await
}

/// Runs the selected scenarios of the catalogue, and compares what is skipped with the built-in list.
pub(crate) async fn run_strictly(
    test: &str,
    options: &Options,
    selection: &Selection,
) -> CompletedRun {
    let list = Path::new(skips::BUILT_IN);
    let skips = Skips::load(list, &scenarios::all()).expect("the built-in list is valid");
    run_with_skips(test, options, selection, Some(&skips), async |_| Ok(())).await
}

async fn run_with_skips(
    test: &str,
    options: &Options,
    selection: &Selection,
    skips: Option<&Skips>,
    prepare: impl AsyncFn(&Session) -> Result<(), String>,
) -> CompletedRun {
    let paths = report_paths(test, options);
    let scenarios = scenarios::all();
    let selected = selection.apply(&scenarios).expect("something is selected");
    let plan = scenarios.iter().zip(&selected);
    let plan = plan.filter(|(_, selected)| **selected);
    let plan = plan.map(|(scenario, _)| scenario.info());
    let Reports {
        stream, summary, ..
    } = run::begin(options, plan.collect(), &paths, Vec::new())
        .expect("the artefacts directory is writable");
    let run = Run {
        options,
        scenarios: &scenarios,
        selected: &selected,
        skips,
        paths: &paths,
        stream: &stream,
        interrupt: &Interrupt::default(),
    };
    let outcome = run::run(&run, prepare).await;
    summary.with(|summary| CompletedRun {
        outcome,
        phase_failure: summary.phase_failure().map(str::to_owned),
        verdicts: summary
            .verdicts()
            .map(|(id, verdict)| (id.to_owned(), verdict.clone()))
            .collect(),
        events: paths.events(),
    })
}
