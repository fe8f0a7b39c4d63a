//! Packages of Debian, unpacked into a directory and not installed: their scripts never run, so no system service starts, and nothing of the
//! system changes but the lists of packages.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::child::output_within;

/// Longest time for a download, and for unpacking.
const LIMIT: Duration = Duration::from_mins(5);

/// Why packages cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command could not be run, or failed.
    #[error("`{command}` failed: {problem}")]
    Command {
        /// The command line.
        command: String,
        /// What it wrote.
        problem: String,
    },
    /// A directory could not be used.
    #[error("cannot keep the packages {}", packages.join(", "))]
    Directory {
        /// The packages.
        packages: Vec<String>,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
}

/// Downloads packages and unpacks them into a directory, which is made. A machine that has no lists of packages yet gets them.
///
/// # Errors
/// Returns an error if a package cannot be downloaded or unpacked.
pub fn unpack(packages: &[&str], into: &Path) -> Result<(), Error> {
    let failed = |source| Error::Directory {
        packages: packages.iter().copied().map(str::to_owned).collect(),
        source,
    };
    let place = tempfile::tempdir().map_err(failed)?;
    let fetch = || {
        let mut download = Command::new("apt-get");
        run(download
            .arg("download")
            .args(packages)
            .current_dir(place.path()))
    };
    if fetch().is_err() {
        run(Command::new("apt-get").arg("update"))?;
        fetch()?;
    }
    fs_err::create_dir_all(into).map_err(failed)?;
    for entry in fs_err::read_dir(place.path()).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb")
                .arg("--extract")
                .args([file.as_path(), into]))?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<(), Error> {
    let line = format!("{command:?}");
    let problem = match output_within(command, LIMIT) {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Error::Command {
        command: line,
        problem,
    })
}
