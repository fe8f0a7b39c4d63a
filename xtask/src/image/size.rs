//! The size of the image's programs. It is measured again only when the profiles or the dependencies have changed, or when our own code has grown
//! so much that the limit may be reached, because a build with the image's settings takes as long as all tests.

use std::path::PathBuf;

use anyhow::Context as _;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A measurement and its inputs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Measured {
    /// A hash of what decides the size ([`inputs`]).
    inputs: String,
    /// All programs together, in bytes.
    pub(super) bytes: u64,
    /// The same programs as development builds, linked as for a trial, in bytes: what tells how much our own code grows.
    development: u64,
}

impl Measured {
    /// Returns the last measurement, if it was made with the current profiles and dependencies.
    ///
    /// # Errors
    /// Returns an error if the workspace's own files cannot be read.
    pub(super) fn current() -> anyhow::Result<Option<Self>> {
        let text = std::fs::read(file()).context("reading the last measurement")?;
        let last: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged", file().display()))?;
        Ok((last.inputs == inputs()?).then_some(last))
    }

    /// Returns about how large the programs are now, in bytes, from the size of the development builds.
    pub(super) fn estimate(&self, development: u64) -> u64 {
        let now =
            u128::from(self.bytes) * u128::from(development) / u128::from(self.development.max(1));
        u64::try_from(now).unwrap_or(u64::MAX)
    }

    /// Stores a measurement of these programs and of their development builds for the next time.
    ///
    /// # Errors
    /// Returns an error if the workspace's own files cannot be read or written.
    pub(super) fn write(bytes: u64, development: u64) -> anyhow::Result<()> {
        let measured = Self {
            inputs: inputs()?,
            bytes,
            development,
        };
        let text = serde_json::to_string_pretty(&measured)? + "\n";
        std::fs::write(file(), text).context("keeping the measurement")
    }
}

fn file() -> PathBuf {
    root().join("xtask/src/image/size.json")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns a hash of the profiles and of the dependencies.
fn inputs() -> anyhow::Result<String> {
    let read = |name: &str| {
        std::fs::read_to_string(root().join(name)).with_context(|| format!("reading {name}"))
    };
    Ok(hash(&read("Cargo.toml")?, &read("Cargo.lock")?))
}

fn hash(manifest: &str, lock: &str) -> String {
    let mut hasher = Sha256::new();
    hasher.update(image_profiles(manifest));
    hasher.update(external_packages(lock));
    HEXLOWER.encode(&hasher.finalize()[..8])
}

/// Returns the profiles that the image is built with; development profiles do not affect it.
fn image_profiles(manifest: &str) -> String {
    let mut kept = String::new();
    let mut keeps = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            keeps = line.starts_with("[profile.image") || line.starts_with("[profile.release");
        }
        if keeps && !line.trim().is_empty() && !line.starts_with('#') {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Returns the entries of the lock file that have a source. Packages of the workspace have none: their sizes change with every commit.
fn external_packages(lock: &str) -> String {
    let entries = lock.split("[[package]]");
    entries
        .filter(|entry| entry.contains("\nsource = "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry\"\n\n[[package]]\nname = \"suite\"\nversion = \"0.1.0\"\n";
    const MANIFEST: &str = "[workspace]\nmembers = []\n\n[profile.dev]\ndebug = 1\n\n# why\n[profile.image]\nopt-level = \"s\"\n\n[profile.image.package.a]\nopt-level = 3\n";

    #[test]
    fn programs_are_taken_to_have_grown_as_their_development_builds_have() {
        let measured = Measured {
            inputs: String::new(),
            bytes: 70_000_000,
            development: 200_000_000,
        };
        assert_eq!(measured.estimate(200_000_000), 70_000_000);
        assert_eq!(measured.estimate(220_000_000), 77_000_000);
    }

    #[test]
    fn the_profiles_of_the_image_and_the_dependencies_decide_and_nothing_else() {
        let before = hash(MANIFEST, LOCK);
        let manifest = |from, to| hash(&MANIFEST.replace(from, to), LOCK);
        let lock = |from, to| hash(MANIFEST, &LOCK.replace(from, to));
        assert_eq!(manifest("debug = 1", "debug = 2"), before);
        assert_ne!(manifest("opt-level = 3", "opt-level = 2"), before);
        assert_eq!(lock("suite", "other"), before);
        assert_ne!(lock("1.0.0", "1.0.1"), before);
    }
}
