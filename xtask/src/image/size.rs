//! The size of the images' programs. It is measured again only when the profiles or the dependencies have changed, or when our own code has grown
//! so much that a limit may be reached, because a build with the images' settings takes as long as all tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use data_encoding::HEXLOWER;
use programs::console::note;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::build::Build;
use super::origin::Origin;
use super::variant::{PROGRAMS, Program, Variant};
use super::{compile, mega};

/// Checks the sizes: by the last measurement and the growth of the development builds where these are sufficient, else by a measurement.
///
/// # Errors
/// Returns an error if a program cannot be built, or if those of an image are too large.
pub(super) fn check() -> anyhow::Result<()> {
    let development = Sizes::of(&compile::development()?)?;
    if let Some(measured) = Measured::current()? {
        let estimate = measured.estimate(&development);
        note("about, by the last measurement and how development builds have grown since:");
        estimate.print();
        if estimate.check().is_ok() {
            return Ok(());
        }
    }
    measured(development)
}

/// Builds the programs with the images' settings, checks their sizes and stores them for the next time, with those of the development builds.
///
/// # Errors
/// Returns an error if a program cannot be built, or if those of an image are too large.
pub(crate) fn measure() -> anyhow::Result<()> {
    measured(Sizes::of(&compile::development()?)?)
}

fn measured(development: Sizes) -> anyhow::Result<()> {
    let shipped = Sizes::of(&compile::all(&Build::find(None, false)?, &Origin::find()?)?)?;
    shipped.print();
    shipped.check()?;
    let measured = Measured {
        inputs: inputs()?,
        shipped,
        development,
    };
    let text = serde_json::to_string_pretty(&measured)? + "\n";
    std::fs::write(file(), text).context("keeping the measurement")
}

/// The size of each program by its name, in bytes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct Sizes(BTreeMap<String, u64>);

impl Sizes {
    /// Reads the sizes of the programs in a directory.
    ///
    /// # Errors
    /// Returns an error if one is missing.
    pub(super) fn of(bin_dir: &Path) -> anyhow::Result<Self> {
        let sizes = PROGRAMS.iter().map(|program| {
            let path = bin_dir.join(program.name);
            let file = std::fs::metadata(&path);
            let file = file.with_context(|| format!("no program {}", path.display()))?;
            Ok((program.name.to_owned(), file.len()))
        });
        sizes.collect::<anyhow::Result<_>>().map(Self)
    }

    /// Tells them, and their sum for each image.
    pub(super) fn print(&self) {
        for (program, size) in &self.0 {
            note(&format!("  {program}: {:.1} MB", mega(*size)));
        }
        for variant in Variant::ALL {
            note(&format!(
                "  programs of the image {}: {:.1} MB of at most {:.0}",
                variant.name(),
                mega(self.image(variant)),
                mega(variant.largest())
            ));
        }
    }

    /// Returns them as a table, with their profiles, and their sum for each image.
    fn table(&self) -> String {
        let mut text = String::from("\n| program | profile | MB |\n|---|---|---|\n");
        for Program { name, profile, .. } in PROGRAMS {
            let size = mega(self.0.get(name).copied().unwrap_or(0));
            // writing to a `String` cannot fail
            let _ = writeln!(text, "| `{name}` | `{profile}` | {size:.1} |");
        }
        text.push_str("\n| programs of | MB | at most |\n|---|---|---|\n");
        for variant in Variant::ALL {
            let size = mega(self.image(variant));
            let largest = mega(variant.largest());
            let _ = writeln!(text, "| `{}` | {size:.1} | {largest:.0} |", variant.name());
        }
        text.push('\n');
        text
    }

    /// Checks that those of each image fit.
    ///
    /// # Errors
    /// Returns an error with the first image that has too large ones.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for variant in Variant::ALL {
            ensure!(
                self.image(variant) <= variant.largest(),
                "the programs of the image {} have {:.1} MB, at most {:.0} are allowed",
                variant.name(),
                mega(self.image(variant)),
                mega(variant.largest())
            );
        }
        Ok(())
    }

    /// Returns the sum of those of an image.
    fn image(&self, variant: Variant) -> u64 {
        let programs = variant.programs().iter();
        programs
            .filter_map(|program| self.0.get(program.name))
            .sum()
    }
}

/// A measurement and its inputs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Measured {
    /// A hash of what decides the size ([`inputs`]).
    inputs: String,
    /// The programs as the images have them.
    shipped: Sizes,
    /// The same programs as development builds, linked as for a trial: what tells how much our own code grows.
    development: Sizes,
}

impl Measured {
    /// Returns the last measurement.
    fn last() -> anyhow::Result<Self> {
        let text = std::fs::read(file()).context("reading the last measurement")?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file().display()))
    }

    /// Returns the last measurement, if it was made with the current profiles and dependencies.
    fn current() -> anyhow::Result<Option<Self>> {
        let last = Self::last()?;
        Ok((last.inputs == inputs()?).then_some(last))
    }

    /// Returns about how large the programs are now, from the sizes of the development builds.
    fn estimate(&self, development: &Sizes) -> Sizes {
        let grown = self.shipped.0.iter().map(|(program, shipped)| {
            let size = |sizes: &Sizes| sizes.0.get(program).copied().unwrap_or(*shipped).max(1);
            let now = u128::from(*shipped) * u128::from(size(development))
                / u128::from(size(&self.development));
            (program.clone(), u64::try_from(now).unwrap_or(u64::MAX))
        });
        Sizes(grown.collect())
    }
}

/// Returns the table of the last measurement, whatever has changed since.
///
/// # Errors
/// Returns an error if the workspace's own files cannot be read.
pub(crate) fn table() -> anyhow::Result<String> {
    Ok(Measured::last()?.shipped.table())
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

/// Returns the profiles that the images' programs are built with; development profiles do not affect it.
fn image_profiles(manifest: &str) -> String {
    let mut kept = String::new();
    let mut keeps = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            keeps = ["image", "release", "small"]
                .iter()
                .any(|profile| line.starts_with(&format!("[profile.{profile}")));
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
        let of = |small, large| {
            Sizes(BTreeMap::from([
                ("numaresources-tools".to_owned(), small),
                ("numaresources-stack".to_owned(), large),
            ]))
        };
        let measured = Measured {
            inputs: String::new(),
            shipped: of(7_000_000, 20_000_000),
            development: of(20_000_000, 60_000_000),
        };
        let estimate = |small, large| measured.estimate(&of(small, large));
        assert_eq!(estimate(20_000_000, 60_000_000), measured.shipped);
        assert_eq!(estimate(22_000_000, 60_000_000), of(7_700_000, 20_000_000));
    }

    #[test]
    fn the_table_has_every_program_and_the_sum_of_each_image() {
        let sizes = PROGRAMS.iter().zip(1..);
        let sizes = sizes.map(|(program, size)| (program.name.to_owned(), size << 20));
        let table = Sizes(sizes.collect()).table();
        for row in [
            "| `numaresources-stack` | `image` | 1.0 |",
            "| `resource-topology-exporter` | `small` | 2.0 |",
            "| `stack` | 11.0 | 50 |",
            "| `tests` | 10.0 | 90 |",
        ] {
            assert!(table.contains(row), "{table}");
        }
    }

    #[test]
    fn each_image_has_a_limit_for_the_programs_that_are_in_it() {
        let with = |name: &str, size| Sizes(BTreeMap::from([(name.to_owned(), size)]));
        let most = Variant::Tests.largest();
        with("numaresources-tests", most).check().unwrap();
        let error = with("numaresources-tests", most + 1).check().unwrap_err();
        assert!(error.to_string().contains("image tests have"), "{error}");
        let error = with("numaresources-tools", most).check().unwrap_err();
        assert!(error.to_string().contains("image stack have"), "{error}");
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
