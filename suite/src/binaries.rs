//! The programs under test: built from the workspace when there is one, and never older than their sources.
//!
//! The dep-info file that cargo writes beside a program (`<program>.d`) lists the sources of the program; changes of other files do not
//! matter. In a source tree, cargo is called only when one of the sources has changed since the last call (`Stamp`), because the call alone
//! takes 0.6 s. Programs that were built elsewhere are judged by their own time. A program without a dep-info file was installed and is
//! used as it is.
//!
//! Reading order: [`locate`] and [`refresh`], `cargo` (building them), `freshness` (comparing them with their sources).

mod cargo;
mod freshness;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cargo::built;
use freshness::{checked, complete};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The operator.
pub const OPERATOR: &str = "numaresources-operator";
/// The exporter.
pub const EXPORTER: &str = "resource-topology-exporter";
/// The scheduler.
pub const SCHEDULER: &str = "numaresources-scheduler";
/// The program for the inner processes of our clusters.
pub const TESTBED: &str = "numaresources-testbed";
/// File names of the programs that a run on our own cluster starts.
pub const PROGRAMS: [&str; 4] = [OPERATOR, EXPORTER, SCHEDULER, TESTBED];
/// Packages of [`PROGRAMS`].
const PACKAGES: [&str; 4] = ["operator", "rte", "scheduler", "testbed"];
/// Environment variable with the directory of programs that are already built, used when no directory is given. `cargo xtask test` builds
/// the whole workspace at once; a build of these packages alone would compile their dependencies a second time, with other features.
pub const BIN_DIR: &str = "NUMARESOURCES_BIN_DIR";

/// Why the programs cannot be found or built.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no workspace to build from and no directory was given.
    #[error(
        "the programs under test are not beside {0} and there are no sources to build them from; name their directory with --bin-dir"
    )]
    NoSources(PathBuf),
    /// A program is missing.
    #[error("{program} is missing in {dir}")]
    Missing {
        /// File name.
        program: &'static str,
        /// Where it should be.
        dir: PathBuf,
    },
    /// A program is older than one of its sources.
    #[error(
        "{} is older than its source {}; build it again (cargo build -p operator -p rte -p scheduler -p testbed) or leave --bin-dir out",
        program.display(), source_file.display()
    )]
    Stale {
        /// The program's path.
        program: PathBuf,
        /// The program's most recently changed source.
        source_file: PathBuf,
    },
    /// A source of a program is missing while other sources of it exist.
    #[error(
        "{} was built from {}, which is missing; build it again (cargo build -p operator -p rte -p scheduler -p testbed) or leave --bin-dir out",
        program.display(), source_file.display()
    )]
    Gone {
        /// The program's path.
        program: PathBuf,
        /// The missing source.
        source_file: PathBuf,
    },
    /// The build failed.
    #[error("cargo build failed ({0}); its messages are above")]
    Build(std::process::ExitStatus),
    /// A program or file could not be used.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// Finds the programs: those of `given` if they are fresh, else those of [`BIN_DIR`], else freshly built ones, else those beside this
/// program.
///
/// Lines that cargo writes are passed to `progress`.
pub async fn locate(given: Option<&Path>, progress: impl Fn(&str)) -> Result<PathBuf, Error> {
    if let Some(dir) = given {
        return checked(existing(dir)?);
    }
    if let Some(dir) = from_environment() {
        // cargo has ensured that they match the sources
        return complete(existing(&dir)?);
    }
    let own = own()?;
    if let Some((root, dir)) = source_tree(&own) {
        return built(&root, dir, progress).await;
    }
    let beside = own
        .parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_owned);
    if PROGRAMS
        .iter()
        .all(|program| beside.join(program).is_file())
    {
        checked(beside)
    } else {
        Err(Error::NoSources(own))
    }
}

/// Brings the programs of a directory up to date if it is the directory that [`locate`] builds into. Otherwise checks whether they are up
/// to date.
///
/// Lines that cargo writes are passed to `progress`.
pub async fn refresh(dir: &Path, progress: impl Fn(&str)) -> Result<(), Error> {
    let dir = existing(dir)?;
    if let Some(of_tests) = from_environment()
        && existing(&of_tests)? == dir
    {
        return complete(dir).map(drop);
    }
    match source_tree(&own()?) {
        Some((root, profile_dir)) if profile_dir == dir => {
            built(&root, dir, progress).await.map(drop)
        }
        _ => checked(dir).map(drop),
    }
}

/// Returns the canonical path of a directory.
pub fn existing(dir: &Path) -> Result<PathBuf, Error> {
    dir.canonicalize().map_err(|source| Error::Io {
        what: format!("no directory {}", dir.display()),
        source,
    })
}

fn from_environment() -> Option<PathBuf> {
    std::env::var_os(BIN_DIR).map(PathBuf::from)
}

fn own() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|source| Error::Io {
        what: "cannot find this program".to_owned(),
        source,
    })
}

/// The directory of this package when it was compiled. Programs of the images know none, so that they are the same wherever they were built.
#[cfg(not(shipped))]
const COMPILED_IN: Option<&str> = Some(env!("CARGO_MANIFEST_DIR"));
#[cfg(shipped)]
const COMPILED_IN: Option<&str> = None;

/// Returns the workspace that this program was compiled in, if it still exists.
pub fn workspace() -> Option<PathBuf> {
    let root = Path::new(COMPILED_IN?).parent()?;
    root.join("Cargo.lock").is_file().then(|| root.to_owned())
}

/// Returns the workspace of this program and the directory of the profile's programs, if this program is where cargo put it.
fn source_tree(own: &Path) -> Option<(PathBuf, PathBuf)> {
    Some((workspace()?, profile_dir(own)?))
}

/// Returns the directory with the profile's programs, if this program is in a target directory: `target/debug/numaresources-tests` or
/// `target/debug/deps/suite-0123`.
fn profile_dir(own: &Path) -> Option<PathBuf> {
    let dir = own.parent()?;
    let dir = if dir.file_name()? == "deps" {
        dir.parent()?
    } else {
        dir
    };
    // cargo keeps this directory beside the programs of every profile
    dir.join(".fingerprint").is_dir().then(|| dir.to_owned())
}

/// One build of a program, identified by size and time of its file, because programs are too large to read at every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Size of the file in bytes.
    pub size: u64,
    /// When it was written.
    pub modified: SystemTime,
}

impl Build {
    /// Returns the build that is in a file now.
    pub fn of(program: &Path) -> Result<Self, Error> {
        let read = || {
            let metadata = std::fs::metadata(program)?;
            Ok(Self {
                size: metadata.len(),
                modified: metadata.modified()?,
            })
        };
        read().map_err(|source| Error::Io {
            what: format!("cannot look at the program {}", program.display()),
            source,
        })
    }
}

/// Returns the builds of all programs that are in a directory now, by name.
pub fn builds(dir: &Path) -> Result<BTreeMap<String, Build>, Error> {
    let build = |program: &str| Ok((program.to_owned(), Build::of(&dir.join(program))?));
    PROGRAMS.into_iter().map(build).collect()
}

#[cfg(test)]
mod tests;
