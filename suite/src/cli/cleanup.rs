//! The subcommand `cleanup`: puts a cluster back that a run left behind.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use reports::log;

use super::arguments::CleanupArgs;
use super::{FAILED, print_error};
use crate::artifacts;
use crate::cleanup;
use crate::context::chain;
use crate::kubeconfig::Kubeconfig;

/// Undoes what the named run, or every run that left something, changed.
pub(super) async fn run(args: CleanupArgs) -> ExitCode {
    let logs = match logs(&args) {
        Ok(logs) => logs,
        Err(message) => return print_error(FAILED, &message),
    };
    let kubeconfig = args.kubeconfig.map(Kubeconfig::from);
    let mut code = ExitCode::SUCCESS;
    for events in logs {
        let undone = cleanup::undo(&events, kubeconfig.as_ref(), say).await;
        let message = match undone {
            Ok(left) if left.is_empty() => continue,
            Ok(left) => format!("something is left on the cluster: {}", left.join("; ")),
            Err(error) => chain(&error),
        };
        code = print_error(FAILED, &message);
    }
    code
}

/// Returns the event logs of the runs that are meant, latest first.
fn logs(args: &CleanupArgs) -> Result<Vec<PathBuf>, String> {
    if let Some(events) = &args.events {
        return Ok(vec![events.clone()]);
    }
    if let Some(run) = &args.run {
        let events = artifacts::events_of(&args.artifacts, run);
        return if events.exists() {
            Ok(vec![events])
        } else {
            Err(format!(
                "there is no event log of run {run} ({}); name the artefacts directory of the run with --artifacts, or its event log with --events",
                events.display()
            ))
        };
    }
    let all = artifacts::all_events(&args.artifacts).map_err(|error| {
        format!(
            "there are no runs below {}: {error}; name their artefacts directory with --artifacts, or an event log with --events",
            args.artifacts.display()
        )
    })?;
    let mut logs = Vec::new();
    for events in all {
        if log::is_in_use(&events) {
            say(&format!(
                "not over yet, so left alone: {}",
                events.display()
            ));
            continue;
        }
        match artifacts::open_changes(&events) {
            Ok(open) if !open.need_cleanup() => {}
            // what cannot be read is told where it is to be undone
            Ok(_) | Err(_) => logs.push(events),
        }
    }
    if logs.is_empty() {
        say(&format!(
            "no run below {} left anything",
            args.artifacts.display()
        ));
    }
    Ok(logs)
}

fn say(text: &str) {
    // a closed pipe does not stop the work
    let _ = writeln!(anstream::stdout(), "{text}");
}
