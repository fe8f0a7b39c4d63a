//! The subcommand `report`: a recorded run once more.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use reports::changes::OpenChanges;
use reports::grouped::Grouped;
use reports::junit::Junit;
use reports::log::{self, Log};
use reports::stream::Reader as _;
use reports::summary::Summary;
use reports::terminal::Terminal;

use super::{FAILED, print_error};
use crate::artifacts::SUITE;
use crate::claim;
use crate::context::chain;
use crate::run::Outcome;

/// Shows the run as it was shown when it took place, and ends as it ended. A run that did not come to its end was stopped from outside.
pub(super) fn show(file: &Path, report_file: Option<&Path>, verbose: bool) -> ExitCode {
    let log = match log::read(file) {
        Ok(log) => log,
        Err(error) => return print_error(FAILED, &chain(&error)),
    };
    if log.records.is_empty() {
        return print_error(FAILED, &format!("{} has no record", file.display()));
    }
    let terminal = Terminal::new(anstream::stdout(), verbose);
    let mut grouped = Grouped::new(terminal);
    log::replay(&log.records, &mut grouped);
    grouped.finish();
    let mut summary = Summary::default();
    log::replay(&log.records, &mut summary);
    if let Some(path) = report_file
        && let Err(failure) = write_report(path, &log)
    {
        return print_error(FAILED, &failure);
    }
    if log.damaged > 0 {
        let (count, file) = (log.damaged, file.display());
        print_error(
            FAILED,
            &format!("{count} lines of {file} are no records and were left out"),
        );
    }
    let Some(code) = summary.exit_code() else {
        print_error(FAILED, &unfinished(file, &log, &summary));
        return ExitCode::from(Outcome::Interrupted.exit_code());
    };
    ExitCode::from(code)
}

/// Describes a run that did not come to its end.
fn unfinished(file: &Path, log: &Log, summary: &Summary) -> String {
    if log::is_in_use(file) {
        return format!("the run is not over yet; so far {summary}");
    }
    let mut text = format!("the log is unfinished: the run was killed; until then {summary}");
    let mut open = OpenChanges::default();
    log::replay(&log.records, &mut open);
    if !open.changes().is_empty() {
        let command = claim::cleanup_of(file);
        // writing to a String cannot fail
        let _ = write!(text, ". Something is left on its cluster: {command}");
    }
    text
}

fn write_report(path: &Path, log: &Log) -> Result<(), String> {
    let mut junit = Junit::create(path, SUITE).map_err(|error| chain(&error))?;
    log::replay(&log.records, &mut junit);
    junit.failure().map_or(Ok(()), Err)
}
