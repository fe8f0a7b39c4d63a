//! Lists the steps that build the root of a container.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cluster_spec::images::Image;
use podresources::cri::v1 as cri;

use super::host::{HostFacts, SystemEntry};
use super::step::{Access, Bind, Missing, Step};

#[cfg(test)]
mod tests;

/// Parts of the node's `/etc` that ordinary programs read.
const SHARED_ETC: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "localtime",
    "nsswitch.conf",
    "pki",
    "protocols",
    "services",
    "ssl",
];
/// Devices of every container.
const DEVICES: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];
/// Paths below `/proc` that are never writable, because they change the machine.
const PROTECTED_PROC: &[&str] = &["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"];

/// Contents of files in the container's `/etc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcFiles {
    /// Users.
    pub passwd: String,
    /// Groups.
    pub group: String,
    /// The host name.
    pub hostname: String,
    /// The `hosts` file, unless the kubelet mounts its own.
    pub hosts: String,
    /// The resolver's settings.
    pub resolv_conf: String,
}

/// The inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The node's root.
    pub host: &'a HostFacts,
    /// The image.
    pub image: &'a Image,
    /// Contents of files in `/etc`.
    pub etc: &'a EtcFiles,
    /// Directory with the files that stand in for the container's cgroup.
    pub cgroup: &'a Path,
    /// The kubelet's configuration of the container.
    pub config: &'a cri::ContainerConfig,
    /// Host paths that are replaced by others, for faults.
    pub host_path_overrides: &'a BTreeMap<PathBuf, PathBuf>,
}

/// Returns the steps that build the root of a container, in order.
pub fn plan(inputs: &Inputs<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    base(inputs, &mut steps);
    programs(inputs, &mut steps);
    etc(inputs, &mut steps);
    kernel_file_systems(inputs, &mut steps);
    for mount in &inputs.config.mounts {
        steps.push(Step::Bind(requested(mount, inputs.host_path_overrides)));
    }
    for device in &inputs.config.devices {
        steps.push(bind(
            &device.host_path,
            &device.container_path,
            Access::ReadWrite,
            Missing::Fail,
        ));
    }
    let security = inputs
        .config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref());
    if let Some(security) = security {
        let read_only = security
            .readonly_paths
            .iter()
            .filter(|path| !PROTECTED_PROC.contains(&path.as_str()));
        steps.extend(read_only.map(|path| Step::Protect(path.into())));
        let masked = security.masked_paths.iter();
        steps.extend(masked.map(|path| Step::Mask(path.into())));
    }
    steps
}

fn base(inputs: &Inputs<'_>, steps: &mut Vec<Step>) {
    for (path, mode) in [
        ("/bin", 0o755),
        ("/dev", 0o755),
        ("/etc", 0o755),
        ("/home", 0o755),
        ("/mnt", 0o755),
        ("/opt", 0o755),
        ("/proc", 0o555),
        ("/root", 0o700),
        ("/run", 0o755),
        ("/srv", 0o755),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
        ("/var/lib", 0o755),
        ("/var/log", 0o755),
        ("/var/tmp", 0o1777),
    ] {
        steps.push(Step::Directory(path.into(), mode));
    }
    steps.push(Step::Link("/var/run".into(), "../run".into()));
    steps.push(bind(
        "/usr",
        "/usr",
        Access::ReadOnlyRecursive,
        Missing::Fail,
    ));
    for (name, entry) in &inputs.host.system {
        let path = Path::new("/").join(name);
        steps.push(match entry {
            // Relative, so that a path through it stays inside the root while that is being built.
            SystemEntry::Link(target) => {
                Step::Link(path, target.strip_prefix("/").unwrap_or(target).to_owned())
            }
            SystemEntry::Directory => bind(&path, &path, Access::ReadOnlyRecursive, Missing::Fail),
        });
    }
}

fn programs(inputs: &Inputs<'_>, steps: &mut Vec<Step>) {
    if inputs.host.has_local_bin {
        steps.push(Step::Tmpfs("/usr/local/bin".into(), 0o755));
    }
    let of_image: BTreeSet<&Path> = inputs.image.programs.keys().map(PathBuf::as_path).collect();
    for (name, tool) in &inputs.host.tools {
        let path = Path::new("/bin").join(name);
        if !of_image.contains(path.as_path()) {
            steps.push(Step::Link(path, tool.clone()));
        }
    }
    for (path, program) in &inputs.image.programs {
        steps.push(bind(program, path, Access::ReadOnly, Missing::Fail));
    }
}

fn etc(inputs: &Inputs<'_>, steps: &mut Vec<Step>) {
    let files = [
        ("passwd", &inputs.etc.passwd),
        ("group", &inputs.etc.group),
        ("hostname", &inputs.etc.hostname),
        ("hosts", &inputs.etc.hosts),
        ("resolv.conf", &inputs.etc.resolv_conf),
    ];
    for (name, content) in files {
        steps.push(Step::File(Path::new("/etc").join(name), content.clone()));
    }
    for name in SHARED_ETC {
        let path = Path::new("/etc").join(name);
        steps.push(bind(&path, &path, Access::ReadOnlyRecursive, Missing::Skip));
    }
}

fn kernel_file_systems(inputs: &Inputs<'_>, steps: &mut Vec<Step>) {
    steps.push(Step::Proc("/proc".into()));
    // The simulated hardware of the node.
    for path in ["/proc/cpuinfo", "/proc/meminfo"] {
        steps.push(bind(path, path, Access::ReadOnly, Missing::Skip));
    }
    steps.extend(PROTECTED_PROC.iter().map(|path| Step::Protect(path.into())));
    steps.push(bind(
        "/sys",
        "/sys",
        Access::ReadOnlyRecursive,
        Missing::Fail,
    ));
    steps.push(bind(
        inputs.cgroup,
        "/sys/fs/cgroup",
        Access::ReadOnlyRecursive,
        Missing::Fail,
    ));
    steps.push(Step::Tmpfs("/dev".into(), 0o755));
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        steps.push(bind(&path, &path, Access::ReadWrite, Missing::Skip));
    }
    steps.push(Step::Devpts("/dev/pts".into()));
    steps.push(Step::Tmpfs("/dev/shm".into(), 0o1777));
    for (path, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
    ] {
        steps.push(Step::Link(path.into(), target.into()));
    }
}

fn bind(
    source: impl Into<PathBuf>,
    target: impl Into<PathBuf>,
    access: Access,
    missing: Missing,
) -> Step {
    Step::Bind(Bind {
        source: source.into(),
        target: target.into(),
        access,
        follow_node: false,
        missing,
    })
}

/// Returns the bind mount for a mount of the CRI.
fn requested(mount: &cri::Mount, overrides: &BTreeMap<PathBuf, PathBuf>) -> Bind {
    Bind {
        source: overridden(Path::new(&mount.host_path), overrides),
        target: PathBuf::from(&mount.container_path),
        access: match (mount.readonly, mount.recursive_read_only) {
            (false, _) => Access::ReadWrite,
            (true, false) => Access::ReadOnly,
            (true, true) => Access::ReadOnlyRecursive,
        },
        follow_node: mount.propagation() != cri::MountPropagation::PropagationPrivate,
        missing: Missing::CreateDirectory,
    }
}

/// Returns the path with its longest overridden prefix replaced.
fn overridden(path: &Path, overrides: &BTreeMap<PathBuf, PathBuf>) -> PathBuf {
    path.ancestors()
        .find_map(|prefix| Some((prefix, overrides.get(prefix)?)))
        .map_or_else(
            || path.to_owned(),
            |(prefix, replacement)| match path.strip_prefix(prefix) {
                Ok(rest) if rest.as_os_str().is_empty() => replacement.clone(),
                Ok(rest) => replacement.join(rest),
                // Impossible, because the prefix is an ancestor of the path.
                Err(_) => path.to_owned(),
            },
        )
}
