//! The subcommand `report`: a recorded run once more.

use std::path::Path;
use std::process::ExitCode;

use reports::grouped::Grouped;
use reports::junit::Junit;
use reports::summary::Summary;
use reports::terminal::Terminal;

use super::{FAILED, print_error};
use crate::context::chain;
use crate::run::{self, Outcome};

/// Shows the run as it was shown when it took place, and ends as it ended.
pub(super) fn show(file: &Path, report_file: Option<&Path>, verbose: bool) -> ExitCode {
    let records = match reports::log::read(file) {
        Ok(records) => records,
        Err(error) => return print_error(FAILED, &chain(&error)),
    };
    let terminal = Terminal::new(anstream::stdout(), verbose);
    reports::log::replay(&records, &mut Grouped::new(terminal));
    let mut summary = Summary::default();
    reports::log::replay(&records, &mut summary);
    if let Some(path) = report_file {
        let mut junit = Junit::new(path, run::SUITE);
        reports::log::replay(&records, &mut junit);
        if let Some(error) = junit.failure() {
            return print_error(FAILED, &chain(error));
        }
    }
    let outcome = if summary.interrupted() {
        Outcome::Interrupted
    } else if summary.phase_failure().is_some() {
        Outcome::SetupFailed
    } else if summary.all_passed() {
        Outcome::Passed
    } else {
        Outcome::ScenarioFailed
    };
    ExitCode::from(outcome.exit_code())
}
