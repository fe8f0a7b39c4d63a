//! Ends clusters and removes what they leave.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::control_groups;
use crate::error::Error;
use crate::layout::{check_name, dir, directories, lock};
use crate::record::{RECORD, Record, read, write};

/// Longest time for the kernel to end all processes of a cluster.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to retry a removal while ending processes still write files.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to remove a directory.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Ends all processes of a cluster and removes its directory; returns whether there was one.
pub fn remove(root: &Path, name: &str) -> Result<bool, Error> {
    check_name(name)?;
    if !root.exists() {
        return Ok(false);
    }
    let _lock = lock(root)?;
    let dir = dir(root, name);
    let Some(record) = read(&dir)? else {
        return Ok(false);
    };
    destroy(&dir, &record)?;
    Ok(true)
}

/// Ends all processes of a cluster but keeps its directory, so that the logs can be read; the next start removes it.
pub fn abandon(root: &Path, name: &str) -> Result<(), Error> {
    let _lock = lock(root)?;
    let dir = dir(root, name);
    let mut record = read(&dir)?.ok_or_else(|| Error::absent(root, name))?;
    end(&record)?;
    // The owner may live on and try again. Marked as detached, the cluster counts as stale although its owner is alive.
    record.detached = true;
    write(&dir, &record)
}

/// Removes what dead clusters left and returns their names.
pub(crate) fn sweep(root: &Path) -> Result<Vec<String>, Error> {
    let mut swept = Vec::new();
    for (name, dir) in directories(root)? {
        // A damaged record of another cluster must not prevent this one from starting.
        if let Ok(Some(record)) = read(&dir)
            && record.is_stale()
        {
            destroy(&dir, &record)?;
            swept.push(name);
        }
    }
    Ok(swept)
}

fn destroy(dir: &Path, record: &Record) -> Result<(), Error> {
    end(record)?;
    // The record is removed last: as long as it exists, the next start finishes an interrupted removal.
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == RECORD {
            continue;
        }
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        } else {
            fs_err::remove_file(entry.path())?;
        }
    }
    remove_tree(dir)?;
    Ok(())
}

/// Removes a directory. Processes that are ending may still write files there, so it retries for a while.
fn remove_tree(dir: &Path) -> std::io::Result<()> {
    let deadline = Instant::now() + REMOVAL_TIMEOUT;
    loop {
        match fs_err::remove_dir_all(dir) {
            Err(error)
                if error.kind() == ErrorKind::DirectoryNotEmpty && Instant::now() < deadline =>
            {
                std::thread::sleep(RETRY_PAUSE);
            }
            other => return other,
        }
    }
}

/// Ends all processes of a cluster, and removes its control groups, which outlive them.
fn end(record: &Record) -> Result<(), Error> {
    kill_holder(record)?;
    let local = record.local.as_ref();
    if let Some(group) = local.and_then(|local| local.spec.control_group()) {
        control_groups::remove(Path::new(control_groups::ROOT), &group)?;
    }
    Ok(())
}

fn kill_holder(record: &Record) -> Result<(), Error> {
    let Some(holder) = record.holder.as_ref().filter(|holder| holder.is_alive()) else {
        return Ok(());
    };
    // the keeper of an embedded cluster takes the cluster down itself before it ends
    if holder.pid.cast_unsigned() == std::process::id() {
        return Ok(());
    }
    // A failure means that the process has ended, which the loop notices.
    let _ = kill(Pid::from_raw(holder.pid), Signal::SIGKILL);
    let deadline = Instant::now() + KILL_TIMEOUT;
    while holder.is_alive() {
        if Instant::now() > deadline {
            return Err(Error::HolderSurvived(holder.pid));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
