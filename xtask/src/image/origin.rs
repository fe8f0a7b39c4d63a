//! What the images are built from: for the programs' versions, for the labels, and as a file for running clusters.

use std::process::Command;

use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// Where the programs of the stack look for the build information (scenarios-other.md 2.7).
pub(super) const PATH: &str = "usr/local/share/buildinfo.json";
/// Version of the programs.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Variables with the origin, for the programs and this one; without them git is called.
const COMMIT: &str = "NUMARESOURCES_BUILD_COMMIT";
const BRANCH: &str = "NUMARESOURCES_BUILD_BRANCH";
const DATE: &str = "NUMARESOURCES_BUILD_DATE";
const LINE: &str = "NUMARESOURCES_BUILD_LINE";
const SOURCE: &str = "NUMARESOURCES_BUILD_SOURCE";
/// The time that reproducible builds have instead of the clock's, in seconds since 1970 (reproducible-builds.org).
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The origin of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The commit, with `-dirty` where tracked files differ from it.
    pub(super) commit: String,
    /// Branch of git.
    branch: String,
    /// When the commit was made; a build has no other time, so that it can be repeated.
    pub(super) date: Option<String>,
    /// Where the source can be read, if it is a public address.
    pub(super) source: Option<String>,
}

impl Origin {
    /// Reads the origin from the environment, or else from git.
    ///
    /// # Errors
    /// Returns an error if `SOURCE_DATE_EPOCH` is no time.
    pub(super) fn find() -> anyhow::Result<Self> {
        let variable_value =
            |variable: &str| std::env::var(variable).ok().filter(|text| !text.is_empty());
        let unknown = || "unknown".to_owned();
        let commit = variable_value(COMMIT)
            .or_else(commit)
            .unwrap_or_else(unknown);
        let branch = variable_value(BRANCH).or_else(|| git(&["rev-parse", "--abbrev-ref", "HEAD"]));
        let seconds =
            variable_value(EPOCH).or_else(|| git(&["show", "-s", "--format=%ct", "HEAD"]));
        let date = match variable_value(DATE) {
            Some(date) => Some(date),
            None => seconds.map(|seconds| rfc3339(&seconds)).transpose()?,
        };
        let source = variable_value(SOURCE).or_else(|| git(&["remote", "get-url", "origin"]));
        Ok(Self {
            commit,
            branch: branch.unwrap_or_else(unknown),
            date,
            source: source.filter(|address| is_public(address)),
        })
    }

    /// Passes the origin to a build. Development builds are told nothing, so that no commit makes them compile anything again.
    pub(super) fn apply_to(&self, build: &mut Command) {
        build
            .env(COMMIT, &self.commit)
            .env(BRANCH, self.release_branch())
            .env(LINE, self.line());
    }

    /// Returns what programs print after their name when they are asked for their version: version, commit, branch and language
    /// (operator.md 2), and then the date.
    fn line(&self) -> String {
        let branch = self.release_branch();
        let line = format!("{VERSION} {} ({branch}) rust", self.commit);
        match &self.date {
            Some(date) => format!("{line} {date}"),
            None => line,
        }
    }

    /// Renders the file at [`PATH`], with the original's keys (operator.md 2) and the date.
    pub(super) fn text(&self) -> String {
        let info = json!({
            "branch": self.release_branch(),
            "commit": self.commit,
            "date": self.date,
            "gitbranch": self.branch,
            "version": VERSION,
        });
        format!("{info}\n")
    }

    /// Returns the name after `release-`, or `devel` for any other branch (operator.md 2).
    fn release_branch(&self) -> &str {
        self.branch.strip_prefix("release-").unwrap_or("devel")
    }
}

/// Returns the checked-out commit.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    Some(match changed {
        Some(_) => format!("{commit}-dirty"),
        None => commit,
    })
}

/// Converts seconds since 1970 to RFC 3339.
fn rfc3339(seconds: &str) -> anyhow::Result<String> {
    let parsed = seconds.parse().ok();
    let time = parsed.and_then(|seconds| Timestamp::from_second(seconds).ok());
    let time = time.with_context(|| {
        format!("{EPOCH} is {seconds:?}: it must be a number of seconds since 1970")
    })?;
    Ok(time.to_string())
}

/// Returns whether everybody may read an address: not that of a local repository, and none with a user or a password.
fn is_public(address: &str) -> bool {
    address.starts_with("https://") && !address.contains('@')
}

/// Returns git's output; `None` if it is empty, or if git or the repository is missing.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An origin with every field.
    pub(in crate::image) fn mk_origin(branch: &str) -> Origin {
        Origin {
            commit: "abc".into(),
            branch: branch.into(),
            date: Some("2026-01-02T03:04:05Z".into()),
            source: Some("https://git.example/numaresources".into()),
        }
    }

    #[test]
    fn a_build_and_its_image_are_told_the_same() {
        let origin = mk_origin("release-1.2");
        let file: serde_json::Value = serde_json::from_str(&origin.text()).unwrap();
        assert_eq!(file["gitbranch"], "release-1.2");
        let mut build = Command::new("true");
        origin.apply_to(&mut build);
        let values: Vec<_> = build.get_envs().map(|(_, value)| value.unwrap()).collect();
        // sorted by name
        assert_eq!(values[0], file["branch"].as_str().unwrap());
        assert_eq!(values[1], file["commit"].as_str().unwrap());
        let line = format!("{VERSION} abc (1.2) rust 2026-01-02T03:04:05Z");
        assert_eq!(values[2], line.as_str());
    }

    #[test]
    fn every_other_branch_is_devel() {
        assert_eq!(mk_origin("main").release_branch(), "devel");
    }

    #[test]
    fn a_time_is_a_number() {
        assert_eq!(rfc3339("86400").unwrap(), "1970-01-02T00:00:00Z");
        let error = rfc3339("yesterday").unwrap_err().to_string();
        assert!(
            error.contains("SOURCE_DATE_EPOCH is \"yesterday\""),
            "{error}"
        );
    }

    #[test]
    fn no_password_and_no_path_gets_into_a_label() {
        assert!(is_public("https://git.example/numaresources"));
        assert!(!is_public("https://user:secret@git.example/numaresources"));
        assert!(!is_public("/home/user/numaresources"));
    }
}
