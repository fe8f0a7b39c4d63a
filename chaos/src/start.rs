//! Starts a session of the suite's engine: a cluster of its own with the stack on it.

use std::path::Path;

use anyhow::bail;
use suite::interrupt::Interrupt;
use suite::run::{ReportPaths, begin};
use suite::session::{Session, StartError};
use suite::setup;

/// Brings up the cluster and the stack. `directory` gets the reports, `bin_dir` has the programs, in place of those that are built from the
/// sources. `interrupt` ends the set-up, and later the scenario.
///
/// # Errors
/// Returns an error if they do not come up or are interrupted, or a report cannot be written.
pub(crate) async fn session(
    mut setup: setup::Options,
    bin_dir: Option<&Path>,
    directory: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Session> {
    setup.plan.bin_dir = bin_dir.map(Path::to_owned);
    let paths = ReportPaths::new(directory, None, &setup.run);
    let stream = begin(&setup, Vec::new(), &paths, Vec::new())?.stream;
    match Box::pin(Session::start(&setup, &stream, interrupt, directory)).await {
        Ok(session) => Ok(session),
        Err(StartError::Interrupted) => bail!("the set-up was interrupted"),
        Err(StartError::Failed(failure)) => bail!("the set-up failed: {failure}"),
    }
}
