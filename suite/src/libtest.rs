//! The scenarios behind libtest's command line: the same engine as everywhere, with the names, filters and output of `cargo test`.
//!
//! Without a filter, the release-blocking scenarios (tier0) run and the others count as ignored. With a filter, or with
//! `--include-ignored`, all matching scenarios run. With `KUBECONFIG` set they run on that cluster, else on an embedded one that is brought
//! up for the run, or, with `NUMARESOURCES_LANE=local`, on one of real Kubernetes parts. `NUMARESOURCES_SETUP=1` is what `--setup` is elsewhere,
//! `NUMARESOURCES_STRICT_SKIPS` what `--strict-skips` is.
//!
//! The test target `suite` only starts `numaresources-tests` with `libtest` as the first word: linking the engine twice would take another 120 MB.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use reports::event::Verdict;
use reports::terminal::Terminal;
use testbed::lane;
use tokio::time::Instant;

use crate::context::chain;
use crate::interrupt::Interrupt;
use crate::kubeconfig::Kubeconfig;
use crate::run::{self, Ended, Outcome, ReportPaths, Reports};
use crate::scenario::Scenario;
use crate::scenarios;
use crate::session::{Session, StartError};
use crate::setup::{ClusterSource, Options};
use crate::skips::Skips;
use crate::stop;

/// Environment variable that lets the stack be installed where it is missing, and removed at the end. Empty and `0` are as good as unset.
const SETUP_VARIABLE: &str = "NUMARESOURCES_SETUP";

/// A scenario to run, by its index in the registry, and the channel for its verdict.
type Order = (usize, Sender<Result<Verdict, String>>);

/// Exit code of a failure, that of libtest.
const FAILED: u8 = 101;

/// First word of a command line with libtest's arguments. The second is the directory of the run's artifacts.
const COMMAND: &str = "libtest";

/// Returns the artifacts' directory and the arguments for [`main`] if the command line is one with libtest's arguments.
pub fn called_with(argv: &[OsString]) -> Option<(PathBuf, Vec<OsString>)> {
    match argv {
        [program, command, artifacts, arguments @ ..] if command == COMMAND => Some((
            artifacts.into(),
            std::iter::once(program).chain(arguments).cloned().collect(),
        )),
        _ => None,
    }
}

/// Runs scenarios as libtest runs tests. `argv` starts with the program's name.
///
/// # Panics
/// Panics if the environment names no lane, or if the artifacts' directory is not writable.
pub fn main(artifacts: &Path, argv: Vec<OsString>) -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = Arguments::from_iter(argv);
    // scenarios share one cluster
    arguments.test_threads = Some(1);

    let scenarios = scenarios::all();
    let skips = match Skips::from_environment(&scenarios) {
        Ok(skips) => skips,
        Err(error) => {
            print_line(&chain(&error));
            return ExitCode::from(FAILED);
        }
    };
    let filtered = arguments.filter.is_some();
    let (orders, received) = channel::<Order>();
    let trials = scenarios
        .iter()
        .enumerate()
        .map(|(index, scenario)| trial(index, scenario, orders.clone(), filtered))
        .collect::<Vec<_>>();
    drop(orders);
    let will_run = |trial: &Trial| {
        !arguments.list && !arguments.is_filtered_out(trial) && !arguments.is_ignored(trial)
    };
    let selected: Vec<bool> = trials.iter().map(will_run).collect();

    let verdicts = Arc::new(Mutex::new(Vec::new()));
    let engine = std::thread::spawn({
        let verdicts = Arc::clone(&verdicts);
        let selected = selected.clone();
        let artifacts = artifacts.to_owned();
        move || {
            let run = Run {
                artifacts: &artifacts,
                scenarios: &scenarios,
                selected: &selected,
                skips: skips.as_ref(),
            };
            engine(&run, &received, &verdicts)
        }
    });
    let conclusion = libtest_mimic::run(&arguments, trials);
    let Ok(finish) = engine.join() else {
        print_line("the engine panicked");
        return ExitCode::from(FAILED);
    };
    match finish {
        Finish::Interrupted => return ExitCode::from(130),
        Finish::TearDownFailed => {
            print_line("the tear-down failed; its messages are above");
            return ExitCode::from(FAILED);
        }
        Finish::SkipsDiffer => {
            print_line("other scenarios were skipped than expected; the list is above");
            return ExitCode::from(FAILED);
        }
        Finish::ReportFailed => return ExitCode::from(FAILED),
        Finish::Done => {}
    }
    let ran = verdicts
        .lock()
        .expect("engine has ended")
        .iter()
        .any(|(_, verdict): &(_, Verdict)| verdict.is_passed() || verdict.is_failed());
    if selected.contains(&true) && !ran && !conclusion.has_failed() {
        print_line("no scenario could run, so nothing is proven");
        return ExitCode::from(FAILED);
    }
    conclusion.exit_code()
}

/// Writes a line for people, beside libtest's output.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn trial(index: usize, scenario: &Scenario, orders: Sender<Order>, filtered: bool) -> Trial {
    let off_by_default = !filtered && !scenario.labels.contains(&"tier0");
    Trial::ignorable_test(scenario.id, move || {
        let (reply, verdict) = channel();
        orders
            .send((index, reply))
            .map_err(|_| Failed::from("the engine has ended"))?;
        match verdict.recv() {
            Err(_) => Err("the engine has ended".into()),
            Ok(Err(message)) => Err(message.into()),
            Ok(Ok(Verdict::Passed)) => Ok(Completion::Completed),
            Ok(Ok(Verdict::Failed(failure))) => Err(failure.to_string().into()),
            Ok(Ok(Verdict::Interrupted { reason })) => Err(reason.into()),
            Ok(Ok(Verdict::Skipped { class, reason })) => Ok(Completion::ignored_with(format!(
                "{}: {reason}",
                class.as_str()
            ))),
        }
    })
    .with_ignored_flag(off_by_default)
}

/// How the engine ended.
enum Finish {
    Done,
    Interrupted,
    TearDownFailed,
    SkipsDiffer,
    ReportFailed,
}

/// What the engine is told.
struct Run<'a> {
    artifacts: &'a Path,
    scenarios: &'a [Scenario],
    selected: &'a [bool],
    /// The skips that are expected, if others are to make the run fail.
    skips: Option<&'a Skips>,
}

/// Runs the ordered scenarios, on a cluster that is prepared for the first order. Ends when no more orders are possible.
fn engine(
    run: &Run<'_>,
    orders: &Receiver<Order>,
    verdicts: &Mutex<Vec<(&'static str, Verdict)>>,
) -> Finish {
    let Run {
        artifacts,
        scenarios,
        selected,
        skips,
    } = *run;
    let Ok(mut next) = orders.recv() else {
        return Finish::Done;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let begun = Instant::now();
    let mut options = options();
    let paths = ReportPaths::new(artifacts, None, &options.run);
    options.ledger = Some(paths.events());
    let chosen = scenarios.iter().zip(selected);
    let chosen = chosen.filter(|(_, selected)| **selected);
    let chosen = chosen.map(|(scenario, _)| scenario.info());
    let Reports { stream, open, .. } = run::begin(
        &options,
        chosen.collect(),
        &paths,
        vec![Box::new(Terminal::new(anstream::stderr(), false))],
    )
    .expect("the artefacts directory is writable");
    let interrupt = Interrupt::default();
    let signals = runtime.block_on(async { stop::on_signals(&interrupt, &open, paths.events()) });
    let _signals = signals.expect("signals can be heard");
    let session = runtime.block_on(Session::start(
        &options,
        &stream,
        &interrupt,
        &paths.artifacts,
    ));
    let session = session.map_err(|error| match error {
        StartError::Interrupted => "the run was interrupted".to_owned(),
        StartError::Failed(failure) => format!("the set-up failed: {failure}"),
    });
    loop {
        let (index, reply) = next;
        let verdict = match &session {
            Ok(session) => match session.stack_failure() {
                Some(failure) => Err(format!(
                    "it did not run, because the stack had died: {failure}"
                )),
                None => Ok(runtime.block_on(session.run(&scenarios[index]))),
            },
            Err(message) => Err(message.clone()),
        };
        if let Ok(verdict) = &verdict {
            verdicts
                .lock()
                .expect("nobody panics with it")
                .push((scenarios[index].id, verdict.clone()));
        }
        // the trial that sent the order waits for the verdict
        let _ = reply.send(verdict);
        match orders.recv() {
            Ok(order) => next = order,
            Err(_) => break,
        }
    }
    let environment = session
        .as_ref()
        .map(|session| session.cluster().facts.environment)
        .ok();
    let is_set_up_broken = session.is_err();
    let stack_failed = matches!(&session, Ok(session) if session.stack_failure().is_some());
    let clean = session.is_err() || session.is_ok_and(|session| runtime.block_on(session.finish()));
    let is_interrupted = interrupt.is_stop_requested();
    let verdicts = verdicts.lock().expect("nobody panics with it");
    let skips = skips.filter(|_| !(is_interrupted || stack_failed));
    let as_listed = run::are_as_listed(skips, environment, &verdicts, &stream);
    let ended = Ended {
        in_order: clean && !is_set_up_broken,
        as_listed,
        stack_failed,
    };
    let outcome = run::outcome(
        &interrupt,
        ended,
        verdicts.iter().map(|(_, verdict)| verdict),
    );
    if run::conclude(&stream, outcome, begun) == Outcome::ReportFailed {
        for failure in stream.failures() {
            print_line(&format!("the reports are not complete: {failure}"));
        }
        Finish::ReportFailed
    } else if is_interrupted {
        Finish::Interrupted
    } else if !clean {
        Finish::TearDownFailed
    } else if as_listed {
        Finish::Done
    } else {
        Finish::SkipsDiffer
    }
}

fn options() -> Options {
    let own = lane::Lane::from_environment().expect("the variable names a lane");
    let options = Options::own(own, &[]).expect("no flag is wrong");
    match Kubeconfig::from_environment() {
        None => options,
        Some(kubeconfig) => Options {
            cluster: ClusterSource::Kubeconfig(kubeconfig),
            install: std::env::var(SETUP_VARIABLE)
                .is_ok_and(|value| !matches!(value.as_str(), "" | "0")),
            ..options
        },
    }
}
