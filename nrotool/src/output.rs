//! How the tools end, and what they print.

use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of wrong usage, unless a tool has another.
pub(crate) const USAGE_ERROR: u8 = 2;
/// Exit code of a failure, unless a tool has another.
pub(crate) const FAILURE: u8 = 1;

/// Writes to the standard output.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
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
    outcome.unwrap_or_else(|error| {
        complain(&format!("error: {}\n", daemon::log::chain(error.as_ref())));
        ExitCode::from(failure)
    })
}
