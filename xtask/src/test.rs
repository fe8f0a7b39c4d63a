//! README's test command: makes sure that the Kubernetes binaries are there, runs every test of the workspace, and adds up
//! what the test runners printed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use testbed::local::assets::{self, Places};

use crate::cargo;

/// How many random pod sequences the accounting test tries. Among all the other tests few do, each run with another seed; `cargo xtask
/// accounting` tries many.
pub(crate) const POD_SEQUENCES: &str = "NUMARESOURCES_POD_SEQUENCES";

/// Where the tests find the programs under test (`suite::binaries::BIN_DIR`), so that none of them builds the programs again.
const BIN_DIR: &str = "NUMARESOURCES_BIN_DIR";

/// Counts of a test run, added up over all test binaries.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Totals {
    passed: u64,
    failed: u64,
}

impl Totals {
    /// Adds the counts of one `test result:` line, the closing line of libtest and of libtest-mimic; other lines change nothing.
    fn read(&mut self, line: &str) {
        let Some(rest) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let count = |what: &str| -> u64 {
            rest.split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(what))
                .find_map(|number| number.trim().parse().ok())
                .unwrap_or(0)
        };
        self.passed += count(" passed");
        self.failed += count(" failed");
    }
}

/// Builds the workspace, runs `cargo test` over it with `arguments` appended and prints `tests: N passed, N failed`.
///
/// # Errors
/// When a test fails, no test ran, cargo cannot be started, or the Kubernetes programs can be neither found nor built.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    // before the tests, so that a build of several minutes shows its progress instead of looking like a hanging test
    assets::locate(&Places::from_environment(None), &|progress| {
        // nobody is left to tell when this fails
        let _ = writeln!(std::io::stderr(), "{progress}");
    })
    .context("looking for the Kubernetes programs")?;
    cargo::build(&["--workspace", "--all-targets"])?;
    let mut child = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(arguments)
        .env(BIN_DIR, cargo::target_dir()?.join("debug"))
        .envs(
            std::env::var_os(POD_SEQUENCES)
                .is_none()
                .then_some((POD_SEQUENCES, "30")),
        )
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo test")?;
    let stdout = child
        .stdout
        .take()
        .context("the output of cargo test is not connected")?;
    let mut totals = Totals::default();
    let mut out = std::io::stdout().lock();
    for line in BufReader::new(stdout).lines() {
        let line = line.context("reading the output of cargo test")?;
        writeln!(out, "{line}")?;
        totals.read(&line);
    }
    let status = child.wait().context("waiting for cargo test")?;
    // a test binary that dies without a closing line must not vanish from the totals
    if !status.success() && totals.failed == 0 {
        totals.failed = 1;
    }
    writeln!(
        out,
        "tests: {} passed, {} failed",
        totals.passed, totals.failed
    )?;
    if !status.success() {
        bail!("cargo test ended with {status}");
    }
    if totals.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_added_up() {
        let mut totals = Totals::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s",
            "test result: FAILED. 14 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 61.40s",
        ] {
            totals.read(line);
        }
        assert_eq!(
            totals,
            Totals {
                passed: 17,
                failed: 2
            }
        );
    }
}
