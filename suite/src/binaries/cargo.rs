//! Builds the programs with cargo, when one of their sources has changed since the last call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::freshness::{complete, modified, sources};
use super::{Build, Error, PACKAGES, PROGRAMS, builds};

/// The programs at the last call of cargo. A build by others changes the programs; a change of a source changes its time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) programs: BTreeMap<String, Build>,
}

impl Stamp {
    /// Name of the stamp's file beside the programs. Its modification time is taken before cargo is called, so a source that is saved while
    /// cargo works is newer.
    pub(super) const FILE: &str = ".numaresources-tests.built";

    /// Returns whether none of cargo's inputs has changed since the last call: sources, manifests, lock file and settings.
    pub(super) fn is_current(root: &Path, dir: &Path) -> bool {
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
pub(super) async fn built(
    root: &Path,
    dir: PathBuf,
    progress: impl Fn(&str),
) -> Result<PathBuf, Error> {
    /// One at a time: clusters that start together need the same programs.
    static BUILDING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _building = BUILDING.lock().await;
    if Stamp::is_current(root, &dir) {
        return Ok(dir);
    }
    let place = dir.join(Stamp::FILE);
    let failed = |source| Error::Io {
        what: format!("cannot write {}", place.display()),
        source,
    };
    // with a name of its own: another run may have the programs built at the same time
    let draft = tempfile::NamedTempFile::new_in(&dir).map_err(failed)?;
    let called_at = modified(draft.path()).map_err(failed)?;
    build(root, &dir, progress).await?;
    let dir = complete(dir)?;
    let stamp = Stamp {
        programs: builds(&dir)?,
    };
    serde_json::to_writer(draft.as_file(), &stamp)
        .map_err(std::io::Error::other)
        .and_then(|()| draft.as_file().set_modified(called_at))
        .map_err(failed)?;
    let kept = draft.persist(&place);
    kept.map_err(|error| failed(error.error))?;
    Ok(dir)
}

async fn build(root: &Path, profile_dir: &Path, progress: impl Fn(&str)) -> Result<(), Error> {
    let profile = profile_dir
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("debug");
    let mut cargo = Command::from(programs::cargo::command());
    cargo
        .args(["build", "--locked", "--bins"])
        .current_dir(root);
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
