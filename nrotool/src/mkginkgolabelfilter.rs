//! `mkginkgolabelfilter`: a label filter for the scenarios of the topics that a program supports (scenarios-other.md 10.1).

use std::process::ExitCode;

use anyhow::Context as _;
use serde::Deserialize;

use crate::flags::Usage;
use crate::output::{FAILURE, USAGE_ERROR, print};

const USAGE: Usage = Usage {
    name: "mkginkgolabelfilter",
    about: "Reads the JSON that `inspectfeatures` prints from the standard input, and prints a label filter for numaresources-tests.",
    flags: &[],
    refusal: USAGE_ERROR,
    failure: FAILURE,
};

#[derive(Deserialize)]
struct Topics {
    /// `null`, as Go writes an empty list, is none.
    #[serde(default)]
    active: Option<Vec<String>>,
}

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, async |_| {
        let text =
            std::io::read_to_string(std::io::stdin()).context("cannot read the standard input")?;
        let line = filter(&text).context("the standard input is no JSON of topics")?;
        Ok(print(&line))
    })
}

/// Returns the filter with its line end. Like Go's decoder, it reads the first JSON value only.
fn filter(text: &str) -> Result<String, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Topics>();
    let topics = values.next().unwrap_or_else(|| serde_json::from_str(""))?;
    let active = topics.active.unwrap_or_default().join(",");
    Ok(format!("feature: containsAny {{{active}}}\n"))
}
