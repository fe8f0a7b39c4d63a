//! The programs under test: built from the workspace when there is one, and never older than their sources.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use thiserror::Error;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// What the local lane starts, by file name.
pub const PROGRAMS: [&str; 3] = [
    "numaresources-operator",
    "numaresources-scheduler",
    "numaresources-testbed",
];
/// Packages of [`PROGRAMS`].
const PACKAGES: [&str; 3] = ["operator", "scheduler", "testbed"];
/// Names the directory of programs that are built already, for whom nothing was given: `cargo xtask test` builds all of the workspace at
/// once, and a build of these packages alone would compile what they depend on a second time, with other features.
pub const BIN_DIR: &str = "NUMARESOURCES_BIN_DIR";
/// Folders of the workspace whose code ends up in [`PROGRAMS`].
const SOURCES: [&str; 7] = [
    "crates",
    "fixtures",
    "operator",
    "rte",
    "scheduler",
    "scheduler-config",
    "testbed",
];

/// The programs cannot be had.
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
    /// A program is older than its sources.
    #[error(
        "{program} is older than {source_file}; build it again (cargo build -p operator -p scheduler -p testbed) or leave --bin-dir out"
    )]
    Stale {
        /// The program.
        program: PathBuf,
        /// The newest source.
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

/// Finds the programs: those of `given` if they are fresh, else those of [`BIN_DIR`], else freshly built ones, else those beside this program.
///
/// Lines that cargo writes go to `progress`.
pub async fn locate(given: Option<&Path>, progress: impl Fn(&str)) -> Result<PathBuf, Error> {
    let workspace = workspace();
    let existing = |dir: &Path| {
        dir.canonicalize().map_err(|source| Error::Io {
            what: format!("no directory {}", dir.display()),
            source,
        })
    };
    if let Some(dir) = given {
        return checked(existing(dir)?, workspace.as_deref());
    }
    if let Some(dir) = std::env::var_os(BIN_DIR) {
        // cargo has seen to it that they are those of the sources
        return checked(existing(dir.as_ref())?, None);
    }
    let own = std::env::current_exe().map_err(|source| Error::Io {
        what: "cannot find this program".to_owned(),
        source,
    })?;
    let beside = own
        .parent()
        .map_or_else(|| PathBuf::from("/"), Path::to_owned);
    match workspace
        .as_deref()
        .and_then(|root| profile_dir(&own).map(|dir| (root, dir)))
    {
        Some((root, dir)) => {
            build(root, &dir, progress).await?;
            checked(dir, None)
        }
        None if PROGRAMS
            .iter()
            .all(|program| beside.join(program).is_file()) =>
        {
            checked(beside, workspace.as_deref())
        }
        None => Err(Error::NoSources(own)),
    }
}

/// The workspace that this program was compiled in, if it is still there.
pub fn workspace() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    root.join("Cargo.lock").is_file().then(|| root.to_owned())
}

/// The directory with the profile's programs, when this program lies in a target directory: `target/debug/numaresources-tests` or
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

async fn build(root: &Path, profile_dir: &Path, progress: impl Fn(&str)) -> Result<(), Error> {
    let profile = profile_dir
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("debug");
    let mut cargo = Command::from(testbed::cargo::command());
    cargo.arg("build").arg("--bins").current_dir(root);
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    if profile != "debug" {
        cargo.args(["--profile", profile]);
    }
    if let Some(target) = profile_dir.parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    // only errors and progress matter here
    cargo
        .env("CARGO_TERM_COLOR", "never")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    cargo.kill_on_drop(true);
    let failed = |source| Error::Io {
        what: "cannot run cargo build".to_owned(),
        source,
    };
    let mut child = cargo.spawn().map_err(failed)?;
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await.map_err(failed)? {
            if !line.trim().is_empty() {
                progress(&line);
            }
        }
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Build(status))
    }
}

fn checked(dir: PathBuf, workspace: Option<&Path>) -> Result<PathBuf, Error> {
    let newest = workspace.and_then(newest_source);
    for program in PROGRAMS {
        let path = dir.join(program);
        let Ok(built) = modified(&path) else {
            return Err(Error::Missing { program, dir });
        };
        if let Some((changed, source_file)) = &newest
            && built < *changed
        {
            return Err(Error::Stale {
                program: path,
                source_file: source_file.clone(),
            });
        }
    }
    Ok(dir)
}

fn modified(path: &Path) -> std::io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
}

/// The source that was changed last.
fn newest_source(root: &Path) -> Option<(SystemTime, PathBuf)> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let mut folders: Vec<PathBuf> = SOURCES.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                // tests do not end up in programs
                if name != "tests" && name != "target" {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|extension| extension == "rs" || extension == "toml")
                && name != "tests.rs"
                && let Ok(changed) = modified(&path)
                && newest.as_ref().is_none_or(|(at, _)| changed > *at)
            {
                newest = Some((changed, path));
            }
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn touch(path: &Path, age: Duration) {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("directory is made");
        let file = std::fs::File::create(path).expect("file is made");
        file.set_modified(SystemTime::now() - age)
            .expect("time is set");
    }

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("temporary directory");
        for program in PROGRAMS {
            touch(
                &root.path().join("bin").join(program),
                Duration::from_secs(100),
            );
        }
        touch(
            &root.path().join("operator/src/main.rs"),
            Duration::from_secs(200),
        );
        root
    }

    #[test]
    fn fresh_programs_are_taken() {
        let root = tree();
        touch(&root.path().join("operator/tests/new.rs"), Duration::ZERO);
        let bin = root.path().join("bin");
        assert_eq!(checked(bin.clone(), Some(root.path())).expect("fresh"), bin);
    }

    #[test]
    fn programs_older_than_a_source_are_refused() {
        let root = tree();
        let source = root.path().join("scheduler/src/a/b.rs");
        touch(&source, Duration::from_secs(50));
        let error = checked(root.path().join("bin"), Some(root.path())).expect_err("stale");
        assert!(matches!(error, Error::Stale { source_file, .. } if source_file == source));
    }

    #[test]
    fn a_missing_program_is_named() {
        let root = tree();
        std::fs::remove_file(root.path().join("bin/numaresources-scheduler"))
            .expect("file is removed");
        let error = checked(root.path().join("bin"), None).expect_err("missing");
        assert!(matches!(
            error,
            Error::Missing {
                program: "numaresources-scheduler",
                ..
            }
        ));
    }
}
