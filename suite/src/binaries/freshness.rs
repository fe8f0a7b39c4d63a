//! Whether programs are there, and not older than their sources.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Error, PROGRAMS};

/// Returns the directory if all programs are in it.
pub(super) fn complete(dir: PathBuf) -> Result<PathBuf, Error> {
    match PROGRAMS.iter().find(|program| !dir.join(program).is_file()) {
        Some(program) => Err(Error::Missing { program, dir }),
        None => Ok(dir),
    }
}

/// Returns the directory if all programs are in it and none is older than its sources.
pub(super) fn checked(dir: PathBuf) -> Result<PathBuf, Error> {
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
pub(super) fn sources(dep_info: &str) -> Vec<PathBuf> {
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

/// Returns when a file was written.
pub(super) fn modified(path: &Path) -> std::io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
}
