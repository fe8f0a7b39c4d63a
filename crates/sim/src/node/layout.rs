//! The paths of a node's files.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use cluster_spec::hardware;
use fixtures::machines::Machine;
use fs_err::os::unix::fs::symlink;

/// Longest path of a Unix socket, in bytes.
const MAX_SOCKET: usize = 107;
/// Path of a socket in a node with the longest name that is expected.
const LONGEST_SOCKET: &str =
    "/var/lib/kubelet/device-plugins/a_resource_with_a_rather_long_name.sock";
/// The kubelet's directory in a node.
pub(crate) const KUBELET: &str = "/var/lib/kubelet";

/// The directories of one node.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The directory, by a path that is short enough for the sockets below it.
    dir: PathBuf,
    /// The open directory, if its own path is too long: the short path leads through it.
    _open: Option<fs_err::File>,
}

impl Layout {
    /// Creates the directories of a node. `hardware` is written unless it exists; nodes share it.
    pub(crate) fn prepare(dir: &Path, machine: &Machine, hardware: &Path) -> io::Result<Self> {
        fs_err::create_dir_all(dir)?;
        let layout = Self::short(dir)?;
        for path in [
            "/var/lib/kubelet/device-plugins",
            "/var/lib/kubelet/pod-resources",
            "/var/lib/kubelet/pods",
            "/var/log/pods",
            "/run",
            "/etc/kubernetes/manifests",
            "/tmp",
        ] {
            fs_err::create_dir_all(layout.host(path))?;
        }
        write_hardware(machine, hardware)?;
        for (part, path) in hardware::PARTS {
            let link = layout.host(path);
            if let Some(parent) = link.parent() {
                fs_err::create_dir_all(parent)?;
            }
            if !link.is_symlink() {
                symlink(hardware.join(part), link)?;
            }
        }
        Ok(layout)
    }

    /// Creates the layout. If the directory's own path is too long for sockets, the layout has its path by a file descriptor of this
    /// process: other processes of the same user can use it, and it ends with this process however that ends.
    fn short(dir: &Path) -> io::Result<Self> {
        let layout = Self {
            dir: dir.to_owned(),
            _open: None,
        };
        if layout.host(LONGEST_SOCKET).as_os_str().len() <= MAX_SOCKET {
            return Ok(layout);
        }
        let open = fs_err::File::open(dir)?;
        Ok(Self {
            dir: format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd()).into(),
            _open: Some(open),
        })
    }

    /// Returns the path on this machine of a path of the node.
    pub(crate) fn host(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.dir
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns the path of a file below the kubelet's directory.
    pub(crate) fn kubelet(&self, name: &str) -> PathBuf {
        self.host(KUBELET).join(name)
    }

    /// Returns the directory of a pod.
    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.kubelet("pods").join(uid)
    }

    /// Returns the private directory of a container.
    pub(crate) fn container(&self, uid: &str, name: &str) -> PathBuf {
        self.dir.join("containers").join(uid).join(name)
    }

    /// Returns the directory with the private directories of all containers of a pod.
    pub(crate) fn containers(&self, uid: &str) -> PathBuf {
        self.dir.join("containers").join(uid)
    }

    /// Returns the directory of a pod's logs.
    pub(crate) fn pod_logs(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.host("/var/log/pods")
            .join(format!("{namespace}_{name}_{uid}"))
    }
}

/// Writes the simulated hardware for all nodes that share it. Concurrent calls are safe.
fn write_hardware(machine: &Machine, dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = dir.parent().unwrap_or_else(|| Path::new("/"));
    fs_err::create_dir_all(parent)?;
    let draft = tempfile::tempdir_in(parent)?;
    let tree = draft.path().join("tree");
    hardware::write_tree(machine, &tree)?;
    match fs_err::rename(&tree, dir) {
        // Another node was faster.
        Err(_) if dir.is_dir() => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    /// Prepares the layout of a node whose directory has a long path.
    fn long(parent: &Path) -> (PathBuf, Layout) {
        let dir = parent.join("node".repeat(20));
        let machine = Machine::default_profile();
        let layout = Layout::prepare(&dir, &machine, &parent.join("hardware")).unwrap();
        (dir, layout)
    }

    #[test]
    fn node_of_a_killed_process_leaves_no_link_among_the_temporary_files() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, layout) = long(parent.path());
        // a killed process drops nothing
        std::mem::forget(layout);
        let entries = std::fs::read_dir(std::env::temp_dir()).unwrap();
        let links = entries
            .flatten()
            .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == dir));
        assert_eq!(links.count(), 0);
    }

    #[test]
    fn sockets_below_a_long_directory_are_reached_from_other_processes() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, layout) = long(parent.path());
        let path = layout.host(LONGEST_SOCKET);
        let _listener = UnixListener::bind(&path).unwrap();
        let found = Command::new("test").arg("-S").arg(&path).status().unwrap();
        assert!(found.success(), "{}", path.display());
        assert!(dir.join(format!("root{LONGEST_SOCKET}")).exists());
    }
}
