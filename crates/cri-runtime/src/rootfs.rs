//! The root file system of a container: [`plan`] lists its parts, [`apply`] builds it.
//!
//! A container sees an empty tmpfs that contains the programs and libraries of the node's `/usr` (read-only), the programs of its image at
//! the image's paths, its own `/etc`, `/proc`, `/dev` and `/tmp`, the (simulated) `/sys`, and the mounts and devices that the kubelet asked
//! for. `/bin` and `/usr/local/bin` contain only the image's programs and, in `/bin`, a few ordinary tools.
//!
//! Differences from a real runtime: every container has `/usr`, capabilities are not restricted, privileged containers get no more devices
//! than others and no writable `/sys` or `/proc/sys` (these belong to the host), and a bidirectional mount propagates only to the
//! container.

pub mod apply;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cluster_spec::images::Image;
use podresources::cri::v1 as cri;
use serde::{Deserialize, Serialize};

/// Tools in the `/bin` of containers, as far as the node has them.
const TOOLS: &[&str] = &[
    "[", "cat", "chmod", "cp", "curl", "date", "echo", "env", "false", "grep", "head", "hostname",
    "id", "kill", "ls", "mkdir", "mv", "nproc", "printenv", "ps", "pwd", "readlink", "rm", "sed",
    "seq", "sh", "sleep", "stat", "tail", "tee", "test", "touch", "true", "wc",
];
/// Top-level entries of the node that programs need. `/bin` is not among them, because each container has its own.
const SYSTEM_ENTRIES: &[&str] = &["lib", "lib32", "lib64", "libx32", "sbin"];
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

/// The kind of a top-level entry of the node's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemEntry {
    /// A link, nearly always into `/usr`.
    Link(PathBuf),
    /// A directory.
    Directory,
}

/// The parts of the node's root that containers use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Entries besides `/usr` that contain programs or libraries.
    pub system: BTreeMap<String, SystemEntry>,
    /// Tools by name, with their paths below `/usr`.
    pub tools: BTreeMap<String, PathBuf>,
    /// Whether `/usr/local/bin` exists, so that an image's programs can be mounted over it.
    pub has_local_bin: bool,
}

impl HostFacts {
    /// Reads the root that the calling process sees.
    pub fn probe() -> Self {
        let system = SYSTEM_ENTRIES
            .iter()
            .filter_map(|name| {
                let path = Path::new("/").join(name);
                let entry = match std::fs::read_link(&path) {
                    Ok(target) => SystemEntry::Link(target),
                    Err(_) if path.is_dir() => SystemEntry::Directory,
                    Err(_) => return None,
                };
                Some(((*name).to_owned(), entry))
            })
            .collect();
        let tools = TOOLS
            .iter()
            .filter_map(|name| {
                let path = Path::new("/usr/bin").join(name);
                path.exists().then(|| ((*name).to_owned(), path))
            })
            .collect();
        Self {
            system,
            tools,
            has_local_bin: Path::new("/usr/local/bin").is_dir(),
        }
    }
}

/// Access through a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The same as that of the source.
    ReadWrite,
    /// The mount itself is read-only, mounts below it keep their access: the meaning of `readOnly` in Kubernetes.
    ReadOnly,
    /// The mount and all mounts below it are read-only.
    ReadOnlyRecursive,
}

/// What happens if the source of a bind mount does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// The container cannot start.
    Fail,
    /// Nothing is mounted.
    Skip,
    /// A directory is created, as runtimes do for host paths.
    CreateDirectory,
}

/// A recursive bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// Path in the node's root.
    pub source: PathBuf,
    /// Path in the container.
    pub target: PathBuf,
    /// Access through the mount.
    pub access: Access,
    /// Whether later mounts of the node below the source appear in the container.
    pub follow_node: bool,
    /// What happens if the source does not exist.
    pub missing: Missing,
}

/// One step of building a root; paths are those inside the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A directory with these permission bits.
    Directory(PathBuf, u32),
    /// A file with this text.
    File(PathBuf, String),
    /// A symbolic link: path and target.
    Link(PathBuf, PathBuf),
    /// An empty file system in memory with these permission bits.
    Tmpfs(PathBuf, u32),
    /// The `proc` file system of the container's PID namespace.
    Proc(PathBuf),
    /// A file system of pseudo terminals.
    Devpts(PathBuf),
    /// A bind mount of a path of the node.
    Bind(Bind),
    /// Makes the path read-only, if it exists.
    Protect(PathBuf),
    /// Hides the path, if it exists.
    Mask(PathBuf),
}

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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_host() -> HostFacts {
        HostFacts {
            system: [
                ("lib".to_owned(), SystemEntry::Link("usr/lib".into())),
                ("lib64".to_owned(), SystemEntry::Link("/usr/lib64".into())),
                ("sbin".to_owned(), SystemEntry::Directory),
            ]
            .into(),
            tools: ["cat", "sleep"]
                .map(|name| (name.to_owned(), Path::new("/usr/bin").join(name)))
                .into(),
            has_local_bin: true,
        }
    }

    fn mk_image() -> Image {
        Image {
            programs: [("/bin/sleep".into(), "/target/testbed".into())].into(),
            ..Default::default()
        }
    }

    fn plan_with(
        config: &cri::ContainerConfig,
        overrides: &BTreeMap<PathBuf, PathBuf>,
    ) -> Vec<Step> {
        plan(&Inputs {
            host: &mk_host(),
            image: &mk_image(),
            etc: &EtcFiles::default(),
            cgroup: Path::new("/state/c/cgroup"),
            config,
            host_path_overrides: overrides,
        })
    }

    fn plan_of(config: &cri::ContainerConfig) -> Vec<Step> {
        plan_with(config, &BTreeMap::new())
    }

    fn mk_mount(host: &str, container: &str) -> cri::Mount {
        cri::Mount {
            host_path: host.to_owned(),
            container_path: container.to_owned(),
            ..Default::default()
        }
    }

    fn position(steps: &[Step], wanted: impl Fn(&Step) -> bool) -> usize {
        steps.iter().position(wanted).expect("the step is planned")
    }

    fn binds(step: &Step, wanted: &str) -> bool {
        matches!(step, Step::Bind(bind) if bind.target == Path::new(wanted))
    }

    #[test]
    fn program_of_the_image_wins_over_a_tool_of_that_name() {
        let steps = plan_of(&cri::ContainerConfig::default());
        assert!(steps.contains(&Step::Link("/bin/cat".into(), "/usr/bin/cat".into())));
        assert!(
            !steps
                .iter()
                .any(|step| matches!(step, Step::Link(path, _) if path == Path::new("/bin/sleep")))
        );
        let Step::Bind(program) = &steps[position(&steps, |step| binds(step, "/bin/sleep"))] else {
            panic!("not a bind mount");
        };
        assert_eq!(program.source, Path::new("/target/testbed"));
        assert_eq!(program.access, Access::ReadOnly);
    }

    #[test]
    fn links_of_the_node_become_relative() {
        let steps = plan_of(&cri::ContainerConfig::default());
        assert!(steps.contains(&Step::Link("/lib64".into(), "usr/lib64".into())));
        assert!(steps.iter().any(|step| binds(step, "/sbin")));
    }

    #[test]
    fn mounts_come_after_everything_that_could_hide_them() {
        let config = cri::ContainerConfig {
            mounts: vec![mk_mount("/log", "/dev/termination-log")],
            ..Default::default()
        };
        let steps = plan_of(&config);
        let dev = position(
            &steps,
            |step| matches!(step, Step::Tmpfs(path, _) if path == Path::new("/dev")),
        );
        assert!(dev < position(&steps, |step| binds(step, "/dev/termination-log")));
    }

    #[test]
    fn stand_in_for_the_cgroup_covers_the_one_of_the_node() {
        let steps = plan_of(&cri::ContainerConfig::default());
        let sys = position(&steps, |step| binds(step, "/sys"));
        assert!(sys < position(&steps, |step| binds(step, "/sys/fs/cgroup")));
    }

    #[rstest]
    #[case::writable(false, false, Access::ReadWrite)]
    #[case::read_only(true, false, Access::ReadOnly)]
    #[case::recursive(true, true, Access::ReadOnlyRecursive)]
    fn access_is_as_requested(
        #[case] readonly: bool,
        #[case] recursive_read_only: bool,
        #[case] expected: Access,
    ) {
        let mount = cri::Mount {
            readonly,
            recursive_read_only,
            ..mk_mount("/sys", "/host-sys")
        };
        assert_eq!(requested(&mount, &BTreeMap::new()).access, expected);
    }

    #[rstest]
    #[case::directory_itself("/var/lib/kubelet/pod-resources", "/fault")]
    #[case::below("/var/lib/kubelet/pod-resources/kubelet.sock", "/fault/kubelet.sock")]
    #[case::longest_prefix("/var/lib/kubelet/pod-resources/deep/x", "/other/x")]
    #[case::elsewhere("/var/lib/kubelet", "/var/lib/kubelet")]
    #[case::only_whole_names("/var/lib/kubelet/pod-resources2", "/var/lib/kubelet/pod-resources2")]
    fn host_paths_are_overridden_by_prefix(#[case] path: &str, #[case] expected: &str) {
        let overrides = [
            ("/var/lib/kubelet/pod-resources".into(), "/fault".into()),
            (
                "/var/lib/kubelet/pod-resources/deep".into(),
                "/other".into(),
            ),
        ]
        .into();
        let steps = plan_with(
            &cri::ContainerConfig {
                mounts: vec![mk_mount(path, "/x")],
                ..Default::default()
            },
            &overrides,
        );
        let Step::Bind(bind) = &steps[position(&steps, |step| binds(step, "/x"))] else {
            panic!("not a bind mount");
        };
        assert_eq!(bind.source, Path::new(expected));
    }

    #[test]
    fn masked_and_read_only_paths_come_last() {
        let config = cri::ContainerConfig {
            linux: Some(cri::LinuxContainerConfig {
                security_context: Some(cri::LinuxContainerSecurityContext {
                    masked_paths: vec!["/proc/keys".to_owned()],
                    readonly_paths: vec!["/proc/fs".to_owned()],
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let steps = plan_of(&config);
        let expected = [
            Step::Protect("/proc/fs".into()),
            Step::Mask("/proc/keys".into()),
        ];
        assert_eq!(steps[steps.len() - 2..], expected);
    }
}
