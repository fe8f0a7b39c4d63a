//! What the image is built from, for those who ask a running cluster.

use std::process::Command;

use serde_json::json;

/// Where the programs of the stack look for it (scenarios-other.md 2.7).
pub(super) const PATH: &str = "usr/local/share/buildinfo.json";
/// Tell the programs, and this one, what they are built from; without them git is asked.
const COMMIT: &str = "NUMARESOURCES_BUILD_COMMIT";
const BRANCH: &str = "NUMARESOURCES_BUILD_BRANCH";

/// What a build is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    commit: String,
    branch: String,
}

impl Origin {
    /// As the environment says, or else git.
    pub(super) fn find() -> Self {
        let told = |variable: &str| std::env::var(variable).ok().filter(|text| !text.is_empty());
        let commit = told(COMMIT).or_else(|| git(&["rev-parse", "HEAD"]));
        let branch = told(BRANCH).or_else(|| git(&["rev-parse", "--abbrev-ref", "HEAD"]));
        Self {
            commit: commit.unwrap_or_else(|| "unknown".to_owned()),
            branch: branch.unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// Tells a build.
    pub(super) fn tell(&self, build: &mut Command) {
        build.env(COMMIT, &self.commit).env(BRANCH, &self.branch);
    }

    /// The file at [`PATH`].
    pub(super) fn text(&self) -> String {
        let info = json!({"branch": self.branch, "commit": self.commit, "version": env!("CARGO_PKG_VERSION")});
        format!("{info}\n")
    }
}

/// What git says; nothing where it or the repository is missing.
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
        origin.tell(&mut build);
        let told: Vec<_> = build.get_envs().map(|(_, value)| value.unwrap()).collect();
        // in the order of their names
        assert_eq!(told, ["main", "abc"]);
    }
}
