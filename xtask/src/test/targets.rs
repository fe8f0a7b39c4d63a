//! The test binaries of the workspace and the tests in them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use cargo_metadata::{MetadataCommand, TargetKind};

use crate::cargo;

/// A test binary.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Binary {
    pub(crate) package: String,
    /// Name of the cargo target, `lib` for the tests in a library's own files, `bin` for those in a program's, `doc` for the examples of
    /// its documentation.
    pub(crate) target: String,
    pub(crate) executable: PathBuf,
    /// Arguments before those of the test runner.
    pub(crate) leading: Vec<OsString>,
    /// Directory of the package, in which its tests run.
    pub(crate) dir: PathBuf,
}

impl Binary {
    /// Returns whether each test gets its own process: those of integration binaries, which share nothing and take long.
    pub(crate) fn is_split(&self) -> bool {
        self.target == "it"
    }

    /// Returns how many names of tests its runner takes.
    pub(crate) fn names(&self) -> Names {
        if !self.leading.is_empty() {
            // cargo's own run of documentation examples
            Names::None
        } else if matches!(self.id().as_str(), "judges/replay" | "suite/suite") {
            // libtest-mimic
            Names::One
        } else {
            Names::Any
        }
    }

    /// Returns its short name, `package/target`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }
}

/// How many names of tests a runner takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Names {
    None,
    One,
    Any,
}

/// A test of a binary.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Test {
    pub(crate) binary: Arc<Binary>,
    pub(crate) name: String,
    pub(crate) ignored: bool,
}

impl Test {
    /// Returns the text that filters match: `package/target/name`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.binary.id(), self.name)
    }
}

/// Builds all programs and tests at once, because separate builds would compile many packages again with other features.
///
/// # Errors
/// Returns an error if cargo cannot be started or the build fails.
pub(crate) fn build() -> anyhow::Result<Vec<Binary>> {
    let mut binaries = Vec::new();
    for artifact in cargo::artifacts(&["--workspace", "--tests"])? {
        let (true, Some(executable)) = (artifact.profile.test, &artifact.executable) else {
            continue;
        };
        let manifest = artifact.manifest_path.as_std_path();
        let dir = manifest
            .parent()
            .context("a manifest lies in no directory")?;
        let is = |kind: TargetKind| artifact.target.kind.contains(&kind);
        binaries.push(Binary {
            package: package_name(&artifact.package_id.repr),
            target: if is(TargetKind::Lib) {
                "lib".to_owned()
            } else if is(TargetKind::Bin) {
                "bin".to_owned()
            } else {
                artifact.target.name.clone()
            },
            executable: executable.clone().into_std_path_buf(),
            leading: Vec::new(),
            dir: dir.to_owned(),
        });
    }
    binaries.extend(documentation()?);
    binaries.sort_by_key(Binary::id);
    Ok(binaries)
}

/// Returns the examples in documentation, which are no binaries: cargo compiles and runs them. Their packages depend on `features` for tests, so
/// that cargo finds everything below them compiled.
fn documentation() -> anyhow::Result<Vec<Binary>> {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .context("reading the workspace with cargo metadata")?;
    let with_examples = metadata
        .packages
        .iter()
        .filter(|package| package.targets.iter().any(|target| target.doctest));
    Ok(with_examples
        .map(|package| Binary {
            package: package.name.to_string(),
            target: "doc".to_owned(),
            executable: cargo::program(),
            leading: ["test", "--doc", "--package", &package.name, "--"]
                .map(OsString::from)
                .into(),
            dir: package.manifest_path.with_file_name("").into_std_path_buf(),
        })
        .collect())
}

/// Parses the name from a package id of this workspace: `path+file:///folder/name#0.1.0` or `path+file:///folder#name@0.1.0`.
fn package_name(id: &str) -> String {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

/// Lists the tests of the binaries.
///
/// # Errors
/// Returns an error if a binary cannot be started or does not list its tests.
pub(crate) fn list(binaries: &[Binary]) -> anyhow::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for binary in binaries {
        let binary = Arc::new(binary.clone());
        let ignored: BTreeSet<String> = names(&binary, &["--ignored"])?.into_iter().collect();
        for name in names(&binary, &[])? {
            tests.push(Test {
                binary: Arc::clone(&binary),
                ignored: ignored.contains(&name),
                name,
            });
        }
    }
    Ok(tests)
}

fn names(binary: &Binary, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let what = || format!("listing the tests of {}", binary.id());
    let mut list = Command::new(&binary.executable);
    let output = cargo::without_package(&mut list)
        .args(&binary.leading)
        .args(["--list", "--format", "terse"])
        .args(arguments)
        .current_dir(&binary.dir)
        .stdin(Stdio::null())
        .output()
        .with_context(what)?;
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        what(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
        .stdout
        .lines()
        .map(|line| line.with_context(what))
        .filter_map(|line| match line {
            Ok(line) => line.strip_suffix(": test").map(|name| Ok(name.to_owned())),
            Err(error) => Some(Err(error)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::folder_of_the_same_name("path+file:///src/crates/apiserver#0.1.0", "apiserver")]
    #[case::another_folder("path+file:///src/one#two@0.1.0", "two")]
    fn the_package_is_read_from_its_id(#[case] id: &str, #[case] name: &str) {
        assert_eq!(package_name(id), name);
    }
}
