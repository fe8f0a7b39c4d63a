//! How the tools end, and what they print.

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

/// Exit code of wrong usage, unless a tool has another.
pub(crate) const USAGE_ERROR: u8 = 2;
/// Exit code of a failure, unless a tool has another.
pub(crate) const FAILURE: u8 = 1;

/// Nobody reads the standard output any more: who wanted its beginning has got that.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
struct ReaderGone;

/// Writes a text whole to the standard output, by way of `out`. When nobody reads it any more the tool ends well: see [`block_on`].
pub(crate) fn write(mut out: impl std::io::Write, text: &str) -> anyhow::Result<()> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::new(error).context("cannot write the output"),
    })
}

/// Writes to the standard output, and returns the exit code.
pub(crate) fn print(text: &str) -> ExitCode {
    let written = write(std::io::stdout(), text);
    written.map_or_else(|error| failed(&error, FAILURE), |()| ExitCode::SUCCESS)
}

/// Writes to the standard error. That this fails can be told nobody.
pub(crate) fn complain(text: &str) {
    drop(std::io::stderr().write_all(text.as_bytes()));
}

/// Shows help, version or what is wrong with a command line, and returns the exit code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    drop(error.print());
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE_ERROR))
}

/// Runs a tool to its end. Says why it failed, with exit code 1.
pub(crate) fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    block_on_or(FAILURE, work)
}

/// Like [`block_on`], with the exit code of a failure.
pub(crate) fn block_on_or(
    failure: u8,
    work: impl Future<Output = anyhow::Result<ExitCode>>,
) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| failed(&error, failure))
}

/// Says why a tool failed, and returns the exit code.
fn failed(error: &anyhow::Error, code: u8) -> ExitCode {
    if error.is::<ReaderGone>() {
        return ExitCode::SUCCESS;
    }
    complain(&format!("error: {}\n", daemon::log::chain(error.as_ref())));
    ExitCode::from(code)
}
