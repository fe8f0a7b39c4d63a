//! What the image is built from, as build information for running clusters.

use std::process::Command;

use serde_json::json;

/// Where the programs of the stack look for the build information (scenarios-other.md 2.7).
pub(super) const PATH: &str = "usr/local/share/buildinfo.json";
/// Variables with the origin, for the programs and this one; without them git is called.
const COMMIT: &str = "NUMARESOURCES_BUILD_COMMIT";
const BRANCH: &str = "NUMARESOURCES_BUILD_BRANCH";

/// The origin of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    commit: String,
    branch: String,
}

impl Origin {
    /// Reads the origin from the environment, or else from git.
    pub(super) fn find() -> Self {
        let variable_value =
            |variable: &str| std::env::var(variable).ok().filter(|text| !text.is_empty());
        let commit = variable_value(COMMIT).or_else(|| git(&["rev-parse", "HEAD"]));
        let branch = variable_value(BRANCH).or_else(|| git(&["rev-parse", "--abbrev-ref", "HEAD"]));
        Self {
            commit: commit.unwrap_or_else(|| "unknown".to_owned()),
            branch: branch.unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// Passes the origin to a build.
    pub(super) fn apply_to(&self, build: &mut Command) {
        build.env(COMMIT, &self.commit).env(BRANCH, &self.branch);
    }

    /// Renders the file at [`PATH`].
    pub(super) fn text(&self) -> String {
        let info = json!({"branch": self.branch, "commit": self.commit, "version": env!("CARGO_PKG_VERSION")});
        format!("{info}\n")
    }
}

/// Returns git's output; `None` if git or the repository is missing.
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
mod tests {
    use super::*;

    #[test]
    fn a_build_and_its_image_are_told_the_same() {
        let origin = Origin {
            commit: "abc".into(),
            branch: "main".into(),
        };
        let file: serde_json::Value = serde_json::from_str(&origin.text()).unwrap();
        assert_eq!(file["commit"], "abc");
        let mut build = Command::new("true");
        origin.apply_to(&mut build);
        let values: Vec<_> = build.get_envs().map(|(_, value)| value.unwrap()).collect();
        // sorted by name
        assert_eq!(values, ["main", "abc"]);
    }
}
