//! The control groups of a cluster whose containers need them. The kernel keeps them when their processes end, so they are made and removed
//! by name.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where every system mounts its control groups.
pub const ROOT: &str = "/sys/fs/cgroup";
/// File that every control group has, and that takes processes.
const PROCESSES: &str = "cgroup.procs";
/// Settings without which a control group of version 1 takes no process.
const SETS: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
/// Time to retry a removal while the kernel still counts processes that have ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Returns the hierarchies of the machine: the directory itself for version 2, one below it for each controller of version 1.
///
/// # Errors
/// Returns an error if the directory cannot be read.
pub fn hierarchies(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    if root.join(PROCESSES).exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs_err::read_dir(root)? {
        let entry = entry?;
        // links such as `cpu` lead to another hierarchy of the list
        if entry.file_type()?.is_dir() && entry.path().join(PROCESSES).exists() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Makes the control group `cluster/node` of one hierarchy and returns its directory.
///
/// # Errors
/// Returns an error if it cannot be made.
pub fn make(hierarchy: &Path, cluster: &str, node: &str) -> std::io::Result<PathBuf> {
    let mut parent = hierarchy.to_owned();
    for part in [cluster, node] {
        let dir = parent.join(part);
        match fs_err::create_dir(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for set in SETS {
            let (from, to) = (parent.join(set), dir.join(set));
            // Version 2 takes the parent's set by itself, and has no such file where the controller is off.
            if to.exists() && fs_err::read_to_string(&to)?.trim().is_empty() && from.exists() {
                fs_err::write(to, fs_err::read(from)?)?;
            }
        }
        parent = dir;
    }
    Ok(parent)
}

/// Moves this process into a control group.
///
/// # Errors
/// Returns an error if the kernel refuses it.
pub fn join(group: &Path) -> std::io::Result<()> {
    fs_err::write(group.join(PROCESSES), std::process::id().to_string())
}

/// Removes the control groups of a cluster whose processes have ended, in every hierarchy.
pub(crate) fn remove(root: &Path, cluster: &str) -> std::io::Result<()> {
    for hierarchy in hierarchies(root)? {
        let group = hierarchy.join(cluster);
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        while let Err(error) = remove_tree(&group) {
            if error.kind() != ErrorKind::ResourceBusy || Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }
    Ok(())
}

/// Removes a control group and those below it. Only directories can be removed; their files go with them.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    match fs_err::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(entries) => {
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    remove_tree(&entry.path())?;
                }
            }
        }
    }
    fs_err::remove_dir(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    #[test]
    fn each_controller_of_version_1_is_a_hierarchy_and_version_2_is_one() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("cpu/cgroup.procs"), "");
        write(&dir.path().join("memory/cgroup.procs"), "");
        write(&dir.path().join("other/file"), "");
        fs_err::os::unix::fs::symlink("cpu", dir.path().join("cpuacct")).unwrap();
        let found = hierarchies(dir.path()).unwrap();
        assert_eq!(found, [dir.path().join("cpu"), dir.path().join("memory")]);
        write(&dir.path().join("cgroup.procs"), "");
        assert_eq!(hierarchies(dir.path()).unwrap(), [dir.path()]);
    }

    #[test]
    fn groups_of_a_cluster_are_removed_with_all_below_them_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("cpu/cgroup.procs"), "");
        let cpu = dir.path().join("cpu");
        let group = make(&cpu, "ours", "worker-0").unwrap();
        fs_err::create_dir(group.join("container")).unwrap();
        make(&cpu, "theirs", "worker-0").unwrap();
        remove(dir.path(), "ours").unwrap();
        assert!(!cpu.join("ours").exists());
        assert!(cpu.join("theirs/worker-0").exists());
        remove(dir.path(), "ours").unwrap();
    }
}
