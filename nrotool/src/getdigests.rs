//! `getdigests`: the digests of scheduler images that an operator may trust (scenarios-other.md 10.3; operator.md 5.2).

use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::flags::{Given, Usage, text};
use crate::output::{FAILURE, USAGE_ERROR, print};

/// The program that asks registries.
const SKOPEO: &str = "skopeo";

const USAGE: Usage = Usage {
    name: "getdigests",
    about: "Asks a registry, through skopeo, for the digests of the scheduler's images: all of the current stream, the last of the one before, and of \
            the last one with extended support.",
    flags: &[
        text(
            "current-url",
            "",
            "image of the current stream, with its tag vX.Y",
        ),
        text(
            "prev-url",
            "",
            "image of the stream before, with its tag vX.Y",
        ),
        text(
            "eus-url",
            "",
            "image of the last stream with extended support, with its tag vX.Y",
        ),
        text(
            "pull-secret",
            "",
            "file with the credentials of the registry",
        ),
        text(
            "output",
            "",
            "file to write to, in place of the standard output",
        ),
    ],
    refusal: USAGE_ERROR,
    failure: FAILURE,
};

/// What the operator reads.
#[derive(Debug, Default, Serialize)]
struct Digests {
    current_channel: Vec<String>,
    prev_channel_last: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    eus_channel_last: String,
}

/// An image with the tag of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    repository: String,
    tag: String,
}

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, async |given| run(&given))
}

fn run(given: &Given) -> anyhow::Result<ExitCode> {
    for required in ["current-url", "prev-url"] {
        if given.text(required).is_empty() {
            return Ok(USAGE.refuse(&format!("flag -{required} is required")));
        }
    }
    let text = serde_json::to_string_pretty(&collect(given)?)? + "\n";
    Ok(match given.text("output") {
        "" => print(&text),
        file => {
            fs_err::write(file, text)?;
            ExitCode::SUCCESS
        }
    })
}

fn collect(given: &Given) -> anyhow::Result<Digests> {
    let registry = Registry {
        credentials: given.text("pull-secret"),
    };
    let current = Stream::parse(given.text("current-url"))?;
    let mut digests = Digests::default();
    for tag in current.releases(&registry.tags(&current.repository)?) {
        let digest = registry.digest(&current.repository, &tag)?;
        if !digests.current_channel.contains(&digest) {
            digests.current_channel.push(digest);
        }
    }
    ensure!(
        !digests.current_channel.is_empty(),
        "{} has no image of {}",
        current.repository,
        current.tag
    );
    let previous = Stream::parse(given.text("prev-url"))?;
    digests.prev_channel_last = registry.digest(&previous.repository, &previous.tag)?;
    if !given.text("eus-url").is_empty() {
        let supported = Stream::parse(given.text("eus-url"))?;
        digests.eus_channel_last = registry.digest(&supported.repository, &supported.tag)?;
    }
    Ok(digests)
}

impl Stream {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let url = url.strip_prefix("docker://").unwrap_or(url);
        let form = Regex::new(r"^(.+):(v\d+\.\d+)$")?;
        let parts = form
            .captures(url)
            .with_context(|| format!("{url:?} is no image with a tag vX.Y"))?;
        Ok(Self {
            repository: parts[1].to_owned(),
            tag: parts[2].to_owned(),
        })
    }

    /// Returns the tags of this stream, with and without a third number, in the given order.
    fn releases(&self, tags: &[String]) -> Vec<String> {
        let longer = format!("{}.", self.tag);
        tags.iter()
            .filter(|tag| **tag == self.tag || tag.starts_with(&longer))
            .cloned()
            .collect()
    }
}

struct Registry<'a> {
    /// File; empty for none.
    credentials: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tags {
    tags: Vec<String>,
}

impl Registry<'_> {
    fn tags(&self, repository: &str) -> anyhow::Result<Vec<String>> {
        let answer = self.ask(&["list-tags", &format!("docker://{repository}")])?;
        let answer: Tags = serde_json::from_str(&answer)
            .with_context(|| format!("the list of tags of {repository} is not as expected"))?;
        Ok(answer.tags)
    }

    fn digest(&self, repository: &str, tag: &str) -> anyhow::Result<String> {
        let image = format!("docker://{repository}:{tag}");
        let answer = self.ask(&["inspect", "--no-tags", "--format", "{{.Digest}}", &image])?;
        let digest = answer.trim();
        ensure!(
            digest.starts_with("sha256:"),
            "{SKOPEO} gave {digest:?} as the digest of {repository}:{tag}"
        );
        Ok(digest.to_owned())
    }

    fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(SKOPEO);
        command.args(words);
        if !self.credentials.is_empty() {
            command.arg("--authfile").arg(self.credentials);
        }
        let output = command
            .output()
            .with_context(|| format!("cannot start {SKOPEO}: it has to be installed"))?;
        ensure!(
            output.status.success(),
            "{SKOPEO} {} failed: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_releases_of_its_tag_only() {
        let stream = Stream::parse("docker://r.io/a/b:v4.2").expect("valid");
        assert_eq!(stream.repository, "r.io/a/b");
        let tags = ["v4.2", "v4.2.1-3", "v4.20", "v4.1", "4.2.1"].map(str::to_owned);
        assert_eq!(stream.releases(&tags), ["v4.2", "v4.2.1-3"]);
        for url in ["r.io/a/b", "r.io/a/b:latest", "r.io/a/b:v4"] {
            assert!(Stream::parse(url).is_err(), "{url}");
        }
    }
}
