//! Which clusters exist: one directory each below the state root, with a record that names its processes.
//!
//! All changes happen under an exclusive lock on `ROOT/lock`. Processes are identified by ID and start time, never by name, so foreign
//! processes are never touched. A directory without one of our records is never removed.

pub mod process;

use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster_spec::plan::{ClusterSpec, NodePlan};
use cluster_spec::subnet::Subnet;
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, Pid, access, getuid};
use serde::{Deserialize, Serialize};

use crate::process::ProcessRef;

const RECORD: &str = "cluster.json";
const LOCK: &str = "lock";
/// Longest time for the kernel to end all processes of a cluster.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to retry a removal while ending processes still write files.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to remove a directory.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// In-memory file system that every Linux has, and the bytes that must be free there for a whole run.
const MEMORY_ROOT: &str = "/dev/shm";
const MIN_FREE_BYTES: u64 = 256 << 20;
/// Longest path that fits into the address of a unix socket, with its terminating zero.
const MAX_SOCKET_PATH: usize = 108;

/// The stored record of a cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// The process that brought it up.
    pub owner: ProcessRef,
    /// The ancestor of all other processes; none before it is started.
    pub holder: Option<ProcessRef>,
    /// Whether the cluster outlives its owner.
    pub detached: bool,
    /// Number of nodes.
    pub nodes: usize,
    /// Fields that only a cluster of real Kubernetes parts has.
    pub local: Option<Local>,
}

/// The part of the record that only a cluster of real Kubernetes parts has.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Local {
    /// Its network; none until the holder has found a free one.
    pub subnet: Option<Subnet>,
    /// The spec that it was brought up from.
    pub spec: ClusterSpec,
}

/// A request to take a name for a cluster.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Directory of all clusters.
    pub root: &'a Path,
    /// The name.
    pub name: &'a str,
    /// The nodes.
    pub nodes: &'a [NodePlan],
    /// The longest path of a socket below a node's directory, relative to that directory.
    pub longest_socket: &'a str,
    /// The spec of a cluster of real Kubernetes parts.
    pub spec: Option<&'a ClusterSpec>,
}

impl Record {
    fn holder_runs(&self) -> bool {
        self.holder.as_ref().is_some_and(ProcessRef::is_alive)
    }

    /// Returns whether nobody can use the cluster any more, so that its remains may be removed.
    fn is_stale(&self) -> bool {
        if self.detached {
            !self.holder_runs()
        } else {
            !self.owner.is_alive()
        }
    }
}

/// Why the state of clusters could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory could not be used.
    #[error("cannot use the state directory")]
    Io(#[from] std::io::Error),
    /// The name is not valid for a cluster and its directory.
    #[error("cluster name {0:?} must be 1 to 32 lower-case letters, digits and hyphens")]
    Name(String),
    /// Sockets below the directory would have longer paths than the kernel accepts.
    #[error("the state directory {} is {excess} characters too long for unix sockets: choose a shorter one", dir.display())]
    TooLong {
        /// Directory of the cluster.
        dir: PathBuf,
        /// Number of characters over the limit.
        excess: usize,
    },
    /// A cluster of this name is in use.
    #[error("cluster {name:?} exists already and belongs to process {pid}")]
    Exists {
        /// Name of the cluster.
        name: String,
        /// ID of the holder, or of the owner if the holder does not run.
        pid: i32,
    },
    /// There is no cluster of this name.
    #[error("no cluster {name:?} below {}", root.display())]
    Absent {
        /// Name of the cluster.
        name: String,
        /// The state root.
        root: PathBuf,
    },
    /// A directory of this name exists, but it is not a cluster's.
    #[error("{} exists and is not a cluster's directory: remove it or choose another name", .0.display())]
    Foreign(PathBuf),
    /// A record could not be parsed.
    #[error("the record {} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The holder of a cluster did not end after SIGKILL.
    #[error("the holder of the cluster, process {0}, does not end")]
    HolderSurvived(i32),
}

/// Returns the default state root: `$XDG_STATE_HOME/numaresources`, or `~/.local/state/numaresources`; if that is not writable, this user's
/// directory below the one for temporary files.
pub fn default_root() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
    let root = std::env::var_os("XDG_STATE_HOME")
        .filter(|dir| !dir.is_empty())
        .map_or_else(|| home().join(".local/state"), PathBuf::from)
        .join("numaresources");
    if fs_err::create_dir_all(&root).is_ok() && access(&root, AccessFlags::W_OK).is_ok() {
        root
    } else {
        std::env::temp_dir().join(format!("numaresources-{}", getuid()))
    }
}

/// Returns the state root for a cluster that ends with this process: in memory if there is enough room, otherwise the default one.
///
/// Each pod has a dozen directories. A disk takes milliseconds to remove one, and the pods of a run would spend most of their time on that.
pub fn temporary_root() -> PathBuf {
    let root = Path::new(MEMORY_ROOT).join(format!("numaresources-{}", getuid()));
    if has_free_memory() && is_own(&root) {
        root
    } else {
        default_root()
    }
}

fn has_free_memory() -> bool {
    let is_in_memory = statfs(MEMORY_ROOT).is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC);
    let free = statvfs(MEMORY_ROOT).map_or(0, |it| it.blocks_available() * it.fragment_size());
    is_in_memory && free >= MIN_FREE_BYTES
}

/// Returns whether a directory belongs to this user, because anybody could have made it; makes it when it is missing.
fn is_own(dir: &Path) -> bool {
    let _ = std::fs::DirBuilder::new().mode(0o700).create(dir);
    std::fs::symlink_metadata(dir).is_ok_and(|it| it.is_dir() && it.uid() == getuid().as_raw())
}

/// Returns the directory of a cluster.
pub fn dir(root: &Path, name: &str) -> PathBuf {
    root.join(name)
}

/// Takes the name for a cluster of this process and removes what dead clusters left below the root.
///
/// Returns the new directory and the names of the removed clusters.
pub fn claim(claim: &Claim<'_>) -> Result<(PathBuf, Vec<String>), Error> {
    check_name(claim.name)?;
    let root = claim.root;
    let dir = dir(root, claim.name);
    check_length(&dir, claim)?;
    fs_err::create_dir_all(root)?;
    let _lock = lock(root)?;
    let swept = sweep(root)?;
    if let Some(record) = read(&dir)? {
        let process = record
            .holder
            .filter(ProcessRef::is_alive)
            .unwrap_or(record.owner);
        return Err(Error::Exists {
            name: claim.name.to_owned(),
            pid: process.pid,
        });
    }
    match fs_err::create_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // A start that was killed before it wrote its record left the directory.
            fs_err::remove_dir(&dir).map_err(|_| Error::Foreign(dir.clone()))?;
            fs_err::create_dir(&dir)?;
        }
        outcome => outcome?,
    }
    let owner = ProcessRef::current().ok_or_else(|| std::io::Error::other("cannot read /proc"))?;
    let record = Record {
        owner,
        holder: None,
        detached: false,
        nodes: claim.nodes.len(),
        local: claim.spec.map(|spec| Local {
            subnet: None,
            spec: spec.clone(),
        }),
    };
    write(&dir, &record)?;
    Ok((dir, swept))
}

/// Changes the record of a cluster.
pub fn update(root: &Path, name: &str, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
    let _lock = lock(root)?;
    let dir = dir(root, name);
    let mut record = read(&dir)?.ok_or_else(|| absent(root, name))?;
    change(&mut record);
    write(&dir, &record)
}

/// Returns the record of a cluster whose holder runs.
pub fn find(root: &Path, name: &str) -> Result<Record, Error> {
    check_name(name)?;
    match read(&dir(root, name))? {
        Some(record) if record.holder_runs() => Ok(record),
        _ => Err(absent(root, name)),
    }
}

/// Returns the record of a cluster, whether its holder runs or not.
pub fn recorded(root: &Path, name: &str) -> Result<Record, Error> {
    check_name(name)?;
    read(&dir(root, name))?.ok_or_else(|| absent(root, name))
}

/// Returns the names and records of all clusters below the root, and whether the holder of each runs.
pub fn list(root: &Path) -> Result<Vec<(String, Record, bool)>, Error> {
    let mut clusters = Vec::new();
    for (name, dir) in directories(root)? {
        if let Some(record) = read(&dir)? {
            let runs = record.holder_runs();
            clusters.push((name, record, runs));
        }
    }
    clusters.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(clusters)
}

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
    let mut record = read(&dir)?.ok_or_else(|| absent(root, name))?;
    kill_holder(&record)?;
    // The owner may live on and try again. Marked as detached, the cluster counts as stale although its owner is alive.
    record.detached = true;
    write(&dir, &record)
}

/// Removes what dead clusters left and returns their names.
fn sweep(root: &Path) -> Result<Vec<String>, Error> {
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
    kill_holder(record)?;
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

fn directories(root: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    if !root.exists() {
        return Ok(Vec::new());
    }
    let mut list = Vec::new();
    for entry in fs_err::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list.push((
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            ));
        }
    }
    Ok(list)
}

fn lock(root: &Path) -> Result<std::fs::File, Error> {
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(root.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

fn read(dir: &Path) -> Result<Option<Record>, Error> {
    let path = dir.join(RECORD);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| Error::Damaged { path, source }),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn write(dir: &Path, record: &Record) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(record).map_err(std::io::Error::other)?;
    let draft = dir.join(format!("{RECORD}.new"));
    fs_err::write(&draft, text)?;
    fs_err::rename(draft, dir.join(RECORD))?;
    Ok(())
}

fn absent(root: &Path, name: &str) -> Error {
    Error::Absent {
        name: name.to_owned(),
        root: root.to_owned(),
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    let valid = (1..=32).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && name != LOCK;
    if valid {
        Ok(())
    } else {
        Err(Error::Name(name.to_owned()))
    }
}

fn check_length(dir: &Path, claim: &Claim<'_>) -> Result<(), Error> {
    let longest_node = claim
        .nodes
        .iter()
        .map(|node| node.name.len())
        .max()
        .unwrap_or_default();
    let length =
        dir.as_os_str().len() + "/nodes/".len() + longest_node + claim.longest_socket.len() + 1;
    match length.checked_sub(MAX_SOCKET_PATH) {
        None | Some(0) => Ok(()),
        Some(excess) => Err(Error::TooLong {
            dir: dir.to_owned(),
            excess,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_spec::kubernetes::Assets;

    /// Takes a name like the default local cluster.
    fn claim(root: &Path, name: &str) -> Result<(PathBuf, Vec<String>), Error> {
        let spec = ClusterSpec::default_workers(
            name,
            root,
            Assets::in_dir(Path::new("/assets")),
            Path::new("/bin"),
        );
        super::claim(&Claim {
            root,
            name,
            nodes: &spec.nodes,
            longest_socket: "/control.sock",
            spec: Some(&spec),
        })
    }

    /// A process that no longer exists.
    fn ended_process() -> ProcessRef {
        let mut process = ProcessRef::current().unwrap();
        process.start_ticks += 1;
        process
    }

    #[test]
    fn a_root_in_memory_is_a_directory_of_ours_that_nobody_else_reads() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("ours");
        assert!(is_own(&dir), "it is made");
        assert!(is_own(&dir), "it is there");
        let mode = fs_err::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let link = place.path().join("link");
        fs_err::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(!is_own(&link), "it may lead anywhere");
        assert!(!is_own(&place.path().join("none/ours")));
    }

    #[test]
    fn name_in_use_is_refused_until_removed() {
        let root = tempfile::tempdir().unwrap();
        claim(root.path(), "one").unwrap();
        assert!(
            matches!(claim(root.path(), "one"), Err(Error::Exists { pid, .. }) if pid.cast_unsigned() == std::process::id())
        );
        assert!(remove(root.path(), "one").unwrap());
        assert!(!remove(root.path(), "one").unwrap());
        claim(root.path(), "one").unwrap();
    }

    #[test]
    fn dead_clusters_are_swept_and_living_ones_and_strangers_stay() {
        let root = tempfile::tempdir().unwrap();
        for name in ["killed", "ended", "living", "kept"] {
            claim(root.path(), name).unwrap();
        }
        fs_err::create_dir(root.path().join("stranger")).unwrap();
        fs_err::write(root.path().join("stranger/data"), "x").unwrap();
        update(root.path(), "killed", |record| {
            record.owner = ended_process();
        })
        .unwrap();
        update(root.path(), "ended", |record| {
            record.detached = true;
            record.holder = Some(ended_process());
        })
        .unwrap();
        update(root.path(), "kept", |record| {
            record.owner = ended_process();
            record.detached = true;
            record.holder = ProcessRef::current();
        })
        .unwrap();
        let (_, mut swept) = claim(root.path(), "next").unwrap();
        swept.sort();
        assert_eq!(swept, ["ended", "killed"]);
        let names: Vec<String> = list(root.path())
            .unwrap()
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(names, ["kept", "living", "next"]);
        assert!(root.path().join("stranger/data").exists());
        assert!(matches!(
            claim(root.path(), "stranger"),
            Err(Error::Foreign(_))
        ));
    }

    #[test]
    fn abandoned_cluster_keeps_its_directory_until_its_living_owner_tries_again() {
        let root = tempfile::tempdir().unwrap();
        let (dir, _) = claim(root.path(), "one").unwrap();
        fs_err::write(dir.join("log"), "why").unwrap();
        abandon(root.path(), "one").unwrap();
        assert!(dir.join("log").exists());
        claim(root.path(), "one").unwrap();
        assert!(!dir.join("log").exists());
    }

    #[test]
    fn files_that_come_while_a_cluster_is_removed_are_removed_too() {
        let root = tempfile::tempdir().unwrap();
        let (dir, _) = claim(root.path(), "one").unwrap();
        let node = dir.join("nodes/worker-0");
        fs_err::create_dir_all(&node).unwrap();
        let (sender, first) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let started = Instant::now();
            let mut number = 0;
            while started.elapsed() < Duration::from_millis(200) {
                number += 1;
                // the directory may already be removed
                let _ = std::fs::write(node.join(number.to_string()), "x");
                let _ = sender.send(());
            }
        });
        first.recv().unwrap();
        assert!(remove(root.path(), "one").unwrap());
        assert!(!dir.exists());
        writer.join().unwrap();
    }

    #[test]
    fn holder_id_that_another_process_has_now_is_not_killed() {
        let root = tempfile::tempdir().unwrap();
        claim(root.path(), "one").unwrap();
        // This is our own ID with another start time: killing by ID alone would end this test.
        update(root.path(), "one", |record| {
            record.holder = Some(ended_process());
        })
        .unwrap();
        assert!(remove(root.path(), "one").unwrap());
    }

    #[test]
    fn names_that_are_no_directory_names_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for name in ["", "..", "a/b", "Upper", "lock"] {
            assert!(
                matches!(claim(root.path(), name), Err(Error::Name(_))),
                "{name}"
            );
        }
        let deep = root.path().join("d".repeat(100));
        assert!(matches!(claim(&deep, "one"), Err(Error::TooLong { .. })));
    }
}
