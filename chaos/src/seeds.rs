//! Many seeds: each is a run in a process of its own, several at the same time.

use std::ops::RangeInclusive;
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::stream::{self, StreamExt as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use programs::console::note;
use suite::interrupt::Interrupt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a run that was asked to end has for taking its cluster down.
const GRACE: Duration = Duration::from_mins(1);

/// A range of seeds, both inclusive, written `A..B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds(pub RangeInclusive<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |number: &str| number.parse::<u64>().map_err(|error| error.to_string());
        let (first, last) = text.split_once("..").ok_or("seeds are written A..B")?;
        let (first, last) = (parse(first)?, parse(last)?);
        if first > last {
            return Err(format!("{first} comes after {last}"));
        }
        Ok(Self(first..=last))
    }
}

/// Runs this program once for each seed, with these arguments. Returns the seeds whose run found something wrong or did not end well.
///
/// # Errors
/// Returns an error if the program cannot be started, or if it was interrupted. None of its runs is left then.
pub async fn run(
    seeds: &Seeds,
    jobs: usize,
    arguments: &[String],
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<u64>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let runs = stream::iter(seeds.0.clone()).map(|seed| {
        let mut command = Command::new(&program);
        command
            .args(["chaos", "--seed", &seed.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            // what a terminal sends reaches this process only, which passes it on
            .process_group(0)
            .kill_on_drop(true);
        async move {
            if interrupt.is_stop_requested() {
                return Ok((seed, false));
            }
            let status = one(command, interrupt).await?;
            note(&format!("seed {seed}: {status}"));
            anyhow::Ok((seed, status.success()))
        }
    });
    let mut runs = runs.buffer_unordered(jobs);
    let mut bad = Vec::new();
    while let Some(outcome) = runs.next().await {
        let (seed, is_good) = outcome?;
        if !is_good {
            bad.push(seed);
        }
    }
    if interrupt.is_stop_requested() {
        bail!("the runs were interrupted");
    }
    bad.sort_unstable();
    Ok(bad)
}

/// Runs a command to its end. When the runs are interrupted it is asked to end, and killed if it does not.
async fn one(mut command: Command, interrupt: &Interrupt) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn().context("cannot start a run")?;
    tokio::select! {
        status = child.wait() => return status.context("cannot wait for a run"),
        () = interrupt.wait() => {}
    }
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        // it may have ended by itself
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
    if let Ok(status) = timeout(GRACE, child.wait()).await {
        return status.context("cannot wait for a run");
    }
    child.kill().await.context("cannot kill a run")?;
    child.wait().await.context("cannot wait for a run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_range_are_in_it() {
        assert_eq!("3..5".parse(), Ok(Seeds(3..=5)));
        assert!("5..3".parse::<Seeds>().is_err());
        assert!("5".parse::<Seeds>().is_err());
        assert!("a..b".parse::<Seeds>().is_err());
    }
}
