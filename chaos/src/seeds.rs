//! Many seeds: each is a run in a process of its own, several at the same time.

use std::ops::RangeInclusive;
use std::process::Stdio;
use std::str::FromStr;

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _};
use programs::console::note;
use tokio::process::Command;

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
/// Returns an error if the program cannot be started.
pub async fn run(seeds: &Seeds, jobs: usize, arguments: &[String]) -> anyhow::Result<Vec<u64>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let runs = stream::iter(seeds.0.clone()).map(|seed| {
        let mut command = Command::new(&program);
        command
            .args(["chaos", "--seed", &seed.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        async move {
            let status = command.status().await.context("cannot start a run")?;
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
    bad.sort_unstable();
    Ok(bad)
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
