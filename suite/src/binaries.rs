//! The programs under test: built from the workspace when there is one, and never older than their sources.
//!
//! The dep-info file that cargo writes beside a program (`<program>.d`) lists the sources of the program; changes of other files do not
//! matter. In a source tree, cargo is called only when one of the sources has changed since the last call (`Stamp`), because the call alone
//! takes 0.6 s. Programs that were built elsewhere are judged by their own time. A program without a dep-info file was installed and is
//! used as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The operator. Under the exporter's name the same program is the exporter.
pub const OPERATOR: &str = "numaresources-operator";
/// The scheduler.
pub const SCHEDULER: &str = "numaresources-scheduler";
/// The program for the inner processes of our clusters.
pub const TESTBED: &str = "numaresources-testbed";
/// File names of the programs that a run on our own cluster starts.
pub const PROGRAMS: [&str; 3] = [OPERATOR, SCHEDULER, TESTBED];
/// Packages of [`PROGRAMS`].
const PACKAGES: [&str; 3] = ["operator", "scheduler", "testbed"];
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
        "{} is older than its source {}; build it again (cargo build -p operator -p scheduler -p testbed) or leave --bin-dir out",
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
        "{} was built from {}, which is missing; build it again (cargo build -p operator -p scheduler -p testbed) or leave --bin-dir out",
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

/// Returns the workspace that this program was compiled in, if it still exists.
pub fn workspace() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
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

/// The programs at the last call of cargo. A build by others changes the programs; a change of a source changes its time.
#[derive(Debug, Serialize, Deserialize)]
struct Stamp {
    programs: BTreeMap<String, Build>,
}

impl Stamp {
    /// Name of the stamp's file beside the programs. Its modification time is taken before cargo is called, so a source that is saved while
    /// cargo works is newer.
    const FILE: &str = ".numaresources-tests.built";

    /// Returns whether none of cargo's inputs has changed since the last call: sources, manifests, lock file and settings.
    fn is_current(root: &Path, dir: &Path) -> bool {
        let path = dir.join(Self::FILE);
        let Ok(called_at) = modified(&path) else {
            return false;
        };
        let stamp = std::fs::read_to_string(&path).ok();
        let stamp = stamp.and_then(|text| serde_json::from_str::<Self>(&text).ok());
        let programs = builds(dir).ok();
        if programs.is_none() || stamp.map(|stamp| stamp.programs) != programs {
            return false;
        }
        let mut inputs = BTreeSet::new();
        for program in PROGRAMS {
            let Ok(dep_info) = std::fs::read_to_string(dir.join(program).with_extension("d"))
            else {
                return false;
            };
            inputs.extend(sources(&dep_info));
        }
        let is_older = |path: &Path| modified(path).is_ok_and(|changed| changed < called_at);
        let folders: BTreeSet<&Path> = inputs
            .iter()
            .flat_map(|path| path.ancestors().skip(1))
            .filter(|folder| folder.starts_with(root))
            .chain([root])
            .collect();
        let settings = [
            "Cargo.toml",
            "Cargo.lock",
            "rust-toolchain.toml",
            ".cargo/config.toml",
        ];
        let mut settings = folders
            .iter()
            .flat_map(|folder| settings.map(|name| folder.join(name)));
        inputs.iter().all(|source| is_older(source))
            && settings.all(|file| !file.exists() || is_older(&file))
    }
}

/// Builds the programs, unless nothing has changed since they were built last.
async fn built(root: &Path, dir: PathBuf, progress: impl Fn(&str)) -> Result<PathBuf, Error> {
    /// One at a time: clusters that start together need the same programs.
    static BUILDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _building = BUILDING.lock().await;
    if Stamp::is_current(root, &dir) {
        return Ok(dir);
    }
    let draft = dir.join(format!("{}.new", Stamp::FILE));
    let failed = |source| Error::Io {
        what: format!("cannot write {}", draft.display()),
        source,
    };
    let file = std::fs::File::create(&draft).map_err(failed)?;
    let called_at = modified(&draft).map_err(failed)?;
    build(root, &dir, progress).await?;
    let dir = complete(dir)?;
    let stamp = Stamp {
        programs: builds(&dir)?,
    };
    serde_json::to_writer(&file, &stamp)
        .map_err(std::io::Error::other)
        .and_then(|()| file.set_modified(called_at))
        .and_then(|()| std::fs::rename(&draft, dir.join(Stamp::FILE)))
        .map_err(failed)?;
    Ok(dir)
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

/// Returns the directory if all programs are in it.
fn complete(dir: PathBuf) -> Result<PathBuf, Error> {
    match PROGRAMS.iter().find(|program| !dir.join(program).is_file()) {
        Some(program) => Err(Error::Missing { program, dir }),
        None => Ok(dir),
    }
}

/// Returns the directory if all programs are in it and none is older than its sources.
fn checked(dir: PathBuf) -> Result<PathBuf, Error> {
    let dir = complete(dir)?;
    for program in PROGRAMS {
        check_is_fresh(&dir.join(program))?;
    }
    Ok(dir)
}

/// Checks a program against its dep-info file. Without one, or when none of the sources is on this machine, the program was built elsewhere
/// and is used as it is.
fn check_is_fresh(program: &Path) -> Result<(), Error> {
    let failed = |source| Error::Io {
        what: format!("cannot read when {} was built", program.display()),
        source,
    };
    let dep_info = match std::fs::read_to_string(program.with_extension("d")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let built = modified(program).map_err(failed)?;
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    let mut missing = None;
    for source_file in sources(&dep_info) {
        match modified(&source_file) {
            Ok(changed) if newest.as_ref().is_none_or(|(at, _)| changed > *at) => {
                newest = Some((changed, source_file));
            }
            Ok(_) => {}
            Err(_) => missing = Some(source_file),
        }
    }
    let Some((changed, source_file)) = newest else {
        return Ok(());
    };
    let program = program.to_owned();
    match missing {
        Some(source_file) => Err(Error::Gone {
            program,
            source_file,
        }),
        None if built < changed => Err(Error::Stale {
            program,
            source_file,
        }),
        None => Ok(()),
    }
}

/// Parses the sources from a dep-info file of cargo. They follow the program and a colon, separated by blanks; a backslash escapes a blank
/// in a path.
fn sources(dep_info: &str) -> Vec<PathBuf> {
    let list = dep_info.split_once(": ").map_or("", |(_, list)| list);
    let list = list.lines().next().unwrap_or_default().trim_end();
    let mut sources = Vec::new();
    let mut path = String::new();
    for word in list.split(' ') {
        if let Some(part) = word.strip_suffix('\\') {
            path.push_str(part);
            path.push(' ');
        } else {
            path.push_str(word);
            sources.push(PathBuf::from(std::mem::take(&mut path)));
        }
    }
    sources
}

fn modified(path: &Path) -> std::io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
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
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn touch(path: &Path, age: u64) {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("directory is made");
        let file = std::fs::File::create(path).expect("file is made");
        file.set_modified(SystemTime::now() - Duration::from_secs(age))
            .expect("time is set");
    }

    /// Makes programs that are 100 s old, each built from a source in a folder of its name and from one that all share.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().expect("temporary directory");
        let bin = root.path().join("bin");
        let shared = root.path().join("shared library/lib.rs");
        touch(&shared, 300);
        for program in PROGRAMS {
            touch(&bin.join(program), 100);
            let main = root.path().join(program).join("main.rs");
            touch(&main, 200);
            let [program_path, main, shared] = [&bin.join(program), &main, &shared]
                .map(|path| path.display().to_string().replace(' ', "\\ "));
            let dep_info = format!("{program_path}: {main} {shared}\n");
            std::fs::write(bin.join(format!("{program}.d")), dep_info).expect("file is written");
        }
        (root, bin)
    }

    #[test]
    fn programs_younger_than_their_sources_are_taken_whatever_else_has_changed() {
        let (root, bin) = tree();
        touch(&root.path().join("numaresources-scheduler/tests.rs"), 0);
        touch(&root.path().join("suite/src/lib.rs"), 0);
        assert_eq!(checked(bin.clone()).expect("fresh"), bin);
    }

    #[rstest]
    #[case::own("numaresources-scheduler/main.rs", "numaresources-scheduler")]
    #[case::shared("shared library/lib.rs", "numaresources-operator")]
    fn a_program_older_than_one_of_its_sources_is_refused(
        #[case] changed: &str,
        #[case] refused: &str,
    ) {
        let (root, bin) = tree();
        let changed = root.path().join(changed);
        touch(&changed, 50);
        let error = checked(bin.clone()).expect_err("stale");
        let expected = format!(
            "{} is older than its source {};",
            bin.join(refused).display(),
            changed.display()
        );
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn a_program_with_a_source_that_is_gone_is_refused() {
        let (root, bin) = tree();
        let main = root.path().join("numaresources-testbed/main.rs");
        std::fs::remove_file(&main).expect("file is removed");
        let error = checked(bin).expect_err("stale");
        assert!(matches!(error, Error::Gone { source_file, .. } if source_file == main));
    }

    #[test]
    fn programs_that_were_built_elsewhere_are_taken_as_they_are() {
        let (root, bin) = tree();
        touch(&root.path().join("numaresources-operator/main.rs"), 0);
        std::fs::remove_file(bin.join("numaresources-operator.d")).expect("file is removed");
        checked(bin.clone()).expect("without dep-info nothing is known");
        for folder in PROGRAMS.iter().chain(&["shared library"]) {
            std::fs::remove_dir_all(root.path().join(folder)).expect("sources are removed");
        }
        checked(bin).expect("no source is on this machine");
    }

    /// Like [`tree`], with a stamp of 150 s ago and a manifest for each program.
    fn stamped() -> (tempfile::TempDir, PathBuf) {
        let (root, bin) = tree();
        touch(&root.path().join("Cargo.lock"), 300);
        for program in PROGRAMS {
            touch(&root.path().join(program).join("Cargo.toml"), 300);
        }
        stamp(&bin);
        (root, bin)
    }

    fn stamp(bin: &Path) {
        let path = bin.join(Stamp::FILE);
        touch(&path, 150);
        let called_at = modified(&path).expect("it is there");
        let programs = builds(bin).expect("programs are there");
        let text = serde_json::to_string(&Stamp { programs }).expect("it is data");
        std::fs::write(&path, text).expect("file is written");
        let file = std::fs::File::options().append(true).open(&path);
        let file = file.expect("file is there");
        file.set_modified(called_at).expect("time is set");
    }

    #[test]
    fn cargo_is_not_asked_again_while_nothing_of_the_programs_has_changed() {
        let (root, bin) = stamped();
        assert!(Stamp::is_current(root.path(), &bin));
        touch(&root.path().join("suite/src/lib.rs"), 0);
        touch(&root.path().join("suite/Cargo.toml"), 0);
        assert!(Stamp::is_current(root.path(), &bin));
    }

    #[rstest]
    #[case::source("numaresources-scheduler/main.rs")]
    #[case::manifest("numaresources-operator/Cargo.toml")]
    #[case::lock_file("Cargo.lock")]
    #[case::settings(".cargo/config.toml")]
    #[case::program("bin/numaresources-testbed")]
    fn cargo_is_asked_when_something_has_changed(#[case] changed: &str) {
        let (root, bin) = stamped();
        // includes what was saved while cargo worked, before the programs were written
        touch(&root.path().join(changed), 120);
        assert!(!Stamp::is_current(root.path(), &bin));
    }

    #[rstest]
    #[case::stamp(Stamp::FILE)]
    #[case::dep_info("numaresources-operator.d")]
    #[case::program("numaresources-scheduler")]
    #[case::source("../numaresources-scheduler/main.rs")]
    fn cargo_is_asked_when_something_is_missing(#[case] missing: &str) {
        let (root, bin) = stamped();
        std::fs::remove_file(bin.join(missing)).expect("file is removed");
        assert!(!Stamp::is_current(root.path(), &bin));
    }

    #[test]
    fn a_missing_program_is_named() {
        let (_root, bin) = tree();
        std::fs::remove_file(bin.join("numaresources-scheduler")).expect("file is removed");
        let error = checked(bin).expect_err("missing");
        assert!(matches!(
            error,
            Error::Missing {
                program: "numaresources-scheduler",
                ..
            }
        ));
    }

    #[test]
    fn another_build_has_another_size_or_time() {
        let (_root, bin) = tree();
        let program = bin.join("numaresources-scheduler");
        let build = |program: &Path| Build::of(program).expect("it is there");
        let first = build(&program);
        assert_eq!(build(&program), first);
        let text = serde_json::to_string(&first).expect("it is data");
        assert_eq!(
            serde_json::from_str::<Build>(&text).expect("it is read back"),
            first
        );
        touch(&program, 10);
        assert_ne!(build(&program), first);
    }
}
