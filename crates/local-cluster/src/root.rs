//! The root of a node: host programs read-only, simulated hardware, everything writable private to the node.
//!
//! [`prepare`] lays out the directory from the harness; `enter` mounts and pivots inside the node's own mount namespace.

use std::path::{Path, PathBuf};

use cluster_spec::hardware;
use cluster_state::control_groups;
use fs_err::os::unix::fs::symlink;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sched::{CloneFlags, unshare};
use serde::{Deserialize, Serialize};

use super::mounts::{self, bind, bind_alone, make_read_only, mount_kernel};

/// Top-level directories of the host that hold programs and libraries; read-only in a node.
const PROGRAM_DIRS: [&str; 9] = [
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu",
];
/// Directories that are private to the node.
const PRIVATE_DIRS: [&str; 14] = [
    "dev",
    "etc",
    "home",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "var/log",
    "var/lib/kubelet",
];
/// Parts of the host's `/etc` that programs need but never change. A directory is bound, a file is copied: a package manager replaces files, and
/// what is bound to a file that is gone can be bound no further, so no container would start any more.
const SHARED_ETC: [&str; 9] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "os-release",
    "pki",
    "ssl",
];
const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "kmsg"];
/// Kernel parameters that a kubelet sets at start; each gets a private file with the host's value.
const SYSCTLS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// The parts of a node's root; all paths are the host's.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Root {
    /// Directory that becomes `/`.
    pub dir: PathBuf,
    /// Directory with the private files for kernel parameters.
    pub sysctls: PathBuf,
    /// Tree that [`hardware::write_tree`] wrote.
    pub hardware: PathBuf,
    /// The cluster's directory, which the node sees, writable, at the same path.
    pub state_dir: PathBuf,
    /// Directories of programs that the node sees, read-only, at the same path.
    pub program_dirs: Vec<PathBuf>,
    /// Control group of the node, if its containers need one.
    #[serde(default)]
    pub control_group: Option<ControlGroup>,
}

/// The control group of a node: the part of every hierarchy that the node may change.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ControlGroup {
    /// Name of the cluster's group.
    pub cluster: String,
    /// Name of the node.
    pub node: String,
}

/// Lays out the directories and the private `/etc` of a node.
pub fn prepare(root: &Root, node: &str, address: std::net::Ipv4Addr) -> std::io::Result<()> {
    let dir = &root.dir;
    for name in PRIVATE_DIRS {
        fs_err::create_dir_all(dir.join(name))?;
    }
    open_to_all(&dir.join("tmp"))?;
    symlink("../run", dir.join("var/run"))?;
    fs_err::create_dir_all(dir.join("var/tmp"))?;
    open_to_all(&dir.join("var/tmp"))?;
    for name in PROGRAM_DIRS {
        let host = Path::new("/").join(name);
        match fs_err::symlink_metadata(&host) {
            Ok(meta) if meta.is_symlink() => symlink(fs_err::read_link(&host)?, dir.join(name))?,
            Ok(meta) if meta.is_dir() => fs_err::create_dir_all(dir.join(name))?,
            _ => {}
        }
    }
    write_etc(&dir.join("etc"), node, address)?;
    for name in SYSCTLS {
        let file = root.sysctls.join(name);
        if let Some(parent) = file.parent() {
            fs_err::create_dir_all(parent)?;
        }
        if let Ok(value) = fs_err::read(Path::new("/proc/sys").join(name)) {
            fs_err::write(file, value)?;
        }
    }
    for same in same_paths(root) {
        fs_err::create_dir_all(below(dir, same))?;
    }
    Ok(())
}

/// Returns the directories that a node sees at the host's path, except those below `/usr`, which it sees anyway.
fn same_paths(root: &Root) -> impl Iterator<Item = &Path> {
    std::iter::once(root.state_dir.as_path())
        .chain(root.program_dirs.iter().map(PathBuf::as_path))
        .filter(|path| !path.starts_with("/usr"))
}

fn open_to_all(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs_err::set_permissions(dir, std::fs::Permissions::from_mode(0o1777))
}

fn write_etc(etc: &Path, node: &str, address: std::net::Ipv4Addr) -> std::io::Result<()> {
    let put = |name: &str, text: &str| fs_err::write(etc.join(name), text);
    put(
        "passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )?;
    put("group", "root:x:0:\nnogroup:x:65534:\n")?;
    put("hosts", &format!("127.0.0.1 localhost\n{address} {node}\n"))?;
    put("hostname", &format!("{node}\n"))?;
    // The resolver asks this machine, which has no name server, so each query is refused at once.
    put(
        "resolv.conf",
        "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
    )?;
    put(
        "nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    )?;
    put(
        "machine-id",
        &format!("{}\n", uuid::Uuid::new_v4().simple()),
    )?;
    for name in SHARED_ETC {
        let host = Path::new("/etc").join(name);
        match fs_err::metadata(&host) {
            Ok(meta) if meta.is_dir() => fs_err::create_dir_all(etc.join(name))?,
            Ok(_) => {
                fs_err::copy(&host, etc.join(name))?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the directories of the host's `/etc` that a node sees, by name.
fn shared_dirs() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let all = SHARED_ETC.map(|name| (name, Path::new("/etc").join(name)));
    all.into_iter().filter(|(_, host)| host.is_dir())
}

/// Mounts the prepared root and makes it `/` of this process, which must be alone in a new mount namespace without
/// propagation to the host.
pub(crate) fn enter(root: &Root) -> Result<(), mounts::Error> {
    let dir = &root.dir;
    bind_alone(dir, dir)?;
    for name in PROGRAM_DIRS {
        let host = Path::new("/").join(name);
        if host.is_dir() && !host.is_symlink() {
            bind_read_only(&host, &dir.join(name))?;
        }
    }
    for (name, host) in shared_dirs() {
        bind_read_only(&host, &dir.join("etc").join(name))?;
    }
    for programs in root
        .program_dirs
        .iter()
        .filter(|path| !path.starts_with("/usr"))
    {
        bind_read_only(programs, &below(dir, programs))?;
    }
    // Bound last, so that it is writable even below a directory of programs.
    bind_alone(&root.state_dir, &below(dir, &root.state_dir))?;
    mount_devices(&dir.join("dev"))?;
    mount_proc(root)?;
    mount_sys(root)?;
    pivot(dir)
}

fn bind_read_only(source: &Path, target: &Path) -> Result<(), mounts::Error> {
    bind(source, target)?;
    make_read_only(target)
}

fn mount_devices(dev: &Path) -> Result<(), mounts::Error> {
    mount_kernel("tmpfs", dev, MsFlags::MS_NOSUID, Some("mode=755"))?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| mounts::Error::new("make", &path, error)
    };
    for name in DEVICES {
        let host = Path::new("/dev").join(name);
        if host.exists() {
            let target = dev.join(name);
            fs_err::write(&target, "").map_err(failed(&target))?;
            bind_alone(&host, &target)?;
        }
    }
    for (link, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        let link = dev.join(link);
        symlink(target, &link).map_err(failed(&link))?;
    }
    for (name, kind, data) in [
        ("shm", "tmpfs", "mode=1777"),
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620"),
    ] {
        let target = dev.join(name);
        fs_err::create_dir(&target).map_err(failed(&target))?;
        mount_kernel(
            kind,
            &target,
            MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
            Some(data),
        )?;
    }
    Ok(())
}

/// Mounts `/proc` of the cluster's PID namespace, with the simulated machine and private kernel parameters.
fn mount_proc(root: &Root) -> Result<(), mounts::Error> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount_kernel("proc", &root.dir.join("proc"), flags, None)?;
    for name in SYSCTLS {
        let file = root.sysctls.join(name);
        let target = root.dir.join("proc/sys").join(name);
        if file.exists() && target.exists() {
            bind_alone(&file, &target)?;
        }
    }
    bind_hardware(root, "/proc")
}

/// Binds the host's `/sys`, read-only with its control groups, and the simulated machine over it.
fn mount_sys(root: &Root) -> Result<(), mounts::Error> {
    let target = root.dir.join("sys");
    bind(Path::new("/sys"), &target)?;
    make_read_only(&target)?;
    bind_hardware(root, "/sys")?;
    match &root.control_group {
        Some(group) => mount_control_group(group, &root.dir),
        None => Ok(()),
    }
}

/// Makes the node's control group, moves this process into it, and makes it the only one that the node sees, writable.
fn mount_control_group(group: &ControlGroup, dir: &Path) -> Result<(), mounts::Error> {
    let top = Path::new(control_groups::ROOT);
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| mounts::Error::new(action, &path, error)
    };
    let hierarchies =
        control_groups::hierarchies(top).map_err(failed("list control groups in", top))?;
    for hierarchy in &hierarchies {
        let own = control_groups::make(hierarchy, &group.cluster, &group.node)
            .map_err(failed("make a control group in", hierarchy))?;
        control_groups::join(&own).map_err(failed("join the control group", &own))?;
    }
    // The group is the root of what /proc tells the runtime of its own groups, as it is the root of what is mounted.
    unshare(CloneFlags::CLONE_NEWCGROUP)
        .map_err(|errno| mounts::Error::new("make a namespace for", top, errno))?;
    for hierarchy in &hierarchies {
        let own = hierarchy.join(&group.cluster).join(&group.node);
        bind_alone(&own, &below(dir, hierarchy))?;
    }
    Ok(())
}

fn bind_hardware(root: &Root, below_path: &str) -> Result<(), mounts::Error> {
    for (part, place) in hardware::PARTS {
        if place.starts_with(below_path) {
            bind_read_only(
                &root.hardware.join(part),
                &below(&root.dir, Path::new(place)),
            )?;
        }
    }
    Ok(())
}

/// Makes `dir` the root of the mount namespace and unmounts the old one.
fn pivot(dir: &Path) -> Result<(), mounts::Error> {
    let failed = |errno: nix::Error| mounts::Error::new("change the root to", dir, errno);
    nix::unistd::chdir(dir).map_err(failed)?;
    nix::unistd::pivot_root(".", ".").map_err(failed)?;
    umount2(".", MntFlags::MNT_DETACH).map_err(failed)?;
    nix::unistd::chdir("/").map_err(failed)
}

/// Returns the place of an absolute path below another root.
fn below(dir: &Path, path: &Path) -> PathBuf {
    dir.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_hosts_etc_are_copies_so_that_it_may_replace_them() {
        let state = tempfile::tempdir().unwrap();
        let root = Root {
            dir: state.path().join("root"),
            sysctls: state.path().join("sysctls"),
            hardware: state.path().join("hardware"),
            state_dir: state.path().to_owned(),
            program_dirs: Vec::new(),
            control_group: None,
        };
        prepare(&root, "n", std::net::Ipv4Addr::LOCALHOST).unwrap();
        let mut compared = Vec::new();
        for name in SHARED_ETC {
            let host = Path::new("/etc").join(name);
            let own = root.dir.join("etc").join(name);
            if host.is_file() {
                assert_eq!(
                    fs_err::read(&own).unwrap(),
                    fs_err::read(&host).unwrap(),
                    "{name}"
                );
                compared.push(name);
            }
        }
        assert!(compared.contains(&"ld.so.cache"), "{compared:?}");
        let bound: Vec<&str> = shared_dirs().map(|(name, _)| name).collect();
        assert!(
            bound.iter().all(|name| !compared.contains(name)),
            "{bound:?}"
        );
    }
}
