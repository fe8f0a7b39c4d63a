//! Where the image registry comes from that clusters with containerd pull from: a given directory, `PATH`, a cache, or a build from a Go module
//! into that cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use cluster_spec::progress::{Report, Step, note};

use crate::child::output_within;
use crate::go::{self, Module, VERSION_LIMIT};
use crate::path::{cache_dir, find_in, find_program, lock};

/// Name of the program.
const NAME: &str = "registry";
/// The module that the program is built of, and its version.
const PACKAGE: &str = "github.com/distribution/distribution/v3";
const VERSION: &str = "v3.1.2";
/// The program. That of the package itself has the clients of three clouds, which take twice as long to compile; a registry of this machine keeps
/// images in files.
const MODULE: Module = Module {
    requirements: include_str!("../modules/registry/go.mod"),
    sums: include_str!("../modules/registry/go.sum"),
    main: Some(include_str!("../modules/registry/main.go")),
};
/// What every version of the program writes about itself.
const OWN_NAME: &str = "distribution";

/// Why the program is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not here and could not be built.
    #[error("no image registry (the program {NAME} of {PACKAGE})")]
    Build(#[from] go::Error),
    /// The cache could not be used.
    #[error("cannot use the cache of the image registry")]
    Cache(#[from] std::io::Error),
}

/// Locates the program. If there is none, it is built into the cache, a directory of this user.
///
/// # Errors
/// Returns an error if there is none and it cannot be built.
pub fn locate(given: Option<&Path>, report: Report<'_>) -> Result<PathBuf, Error> {
    locate_in(&cache_dir().join(NAME).join(VERSION), given, report)
}

fn locate_in(cache: &Path, given: Option<&Path>, report: Report<'_>) -> Result<PathBuf, Error> {
    let here = find_in(given.map(Path::to_owned), NAME);
    for file in here.into_iter().chain(find_program(NAME)) {
        if is_one(&file) {
            return Ok(file.canonicalize()?);
        }
        let place = file.display();
        note(report, format!("skipped {place}: it is no image registry"));
    }
    let built = cache.join(NAME);
    if !built.is_file() {
        build(cache, &built, report)?;
    }
    Ok(built)
}

/// Returns whether a program is a registry of images: others have the same name.
fn is_one(file: &Path) -> bool {
    let output = output_within(Command::new(file).arg("--version"), VERSION_LIMIT);
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(OWN_NAME))
}

/// Builds the program into the cache. Another process that does the same waits here and then finds it.
fn build(cache: &Path, built: &Path, report: Report<'_>) -> Result<(), Error> {
    let go = go::find()?;
    let parent = cache.parent().unwrap_or(cache);
    fs_err::create_dir_all(cache)?;
    let _lock = lock(
        &parent.join("lock"),
        "another process builds the image registry; waiting for it",
        report,
    )?;
    if built.is_file() {
        return Ok(());
    }
    let title = format!("building the image registry {VERSION} from Go modules");
    let step = Step::begin(report, title);
    let work = tempfile::tempdir_in(parent)?;
    go::compile(&go, work.path(), MODULE, &["."], "", report)?;
    fs_err::rename(work.path().join("out").join(NAME), built)?;
    step.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn program(dir: &Path, version: &str) {
        let file = dir.join(NAME);
        fs_err::write(&file, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn module_has_the_version_that_the_cache_is_named_after() {
        assert!(MODULE.requires(PACKAGE, VERSION), "{VERSION}");
    }

    #[test]
    fn another_program_of_that_name_is_skipped_with_a_note() {
        let (given, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        program(given.path(), "npm registry client 1.0");
        program(cache.path(), "unused");
        let notes = std::sync::Mutex::new(Vec::new());
        let report = |progress: cluster_spec::progress::Progress| {
            notes.lock().unwrap().push(progress.to_string());
        };
        let skipped = locate_in(cache.path(), Some(given.path()), &report).unwrap();
        assert_ne!(skipped.parent(), Some(given.path()));
        let notes = notes.lock().unwrap();
        assert!(notes[0].contains("it is no image registry"), "{notes:?}");

        program(
            given.path(),
            "registry github.com/distribution/distribution/v3 v3.0.0",
        );
        let found = locate_in(cache.path(), Some(given.path()), &|_| {}).unwrap();
        assert_eq!(found, given.path().canonicalize().unwrap().join(NAME));
    }
}
