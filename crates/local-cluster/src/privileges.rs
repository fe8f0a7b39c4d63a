//! What a machine must allow before a local cluster can start.
//!
//! Gathering the facts starts and changes nothing, and the check depends only on the gathered facts.

use std::path::Path;
use std::time::Duration;

use programs::path::find_program;

/// Capabilities that the local lane uses: number (`linux/capability.h`), name, purpose.
const CAPABILITIES: [(u32, &str, &str); 9] = [
    (0, "CAP_CHOWN", "files of containers"),
    (1, "CAP_DAC_OVERRIDE", "files of containers"),
    (5, "CAP_KILL", "stopping containers of other users"),
    (6, "CAP_SETGID", "users of containers"),
    (7, "CAP_SETUID", "users of containers"),
    (10, "CAP_NET_BIND_SERVICE", "the API server's port 443"),
    (12, "CAP_NET_ADMIN", "the network of the cluster"),
    (18, "CAP_SYS_CHROOT", "roots of nodes and containers"),
    (21, "CAP_SYS_ADMIN", "namespaces and mounts"),
];

/// Namespaces by their names in `/proc/self/ns`.
const NAMESPACES: [&str; 5] = ["mnt", "net", "pid", "ipc", "uts"];

/// Paths that must exist because simulated hardware is bound over them, and what provides each.
const MOUNT_POINTS: [(&str, &str); 3] = [
    ("/sys/devices/system/cpu", "sysfs mounted on /sys"),
    ("/sys/devices/system/node", "a kernel with CONFIG_NUMA"),
    ("/sys/kernel/mm/hugepages", "a kernel with CONFIG_HUGETLBFS"),
];

/// Inotify instances of a control plane (observed: 2) and one to spare.
const INOTIFY_CONTROL_PLANE: usize = 3;
/// Inotify instances of a node (observed: 5, all of the kubelet) and one to spare. Many machines allow a user 128.
const INOTIFY_NODE: usize = 6;
/// Number of counts before inotify instances are reported as too few, and the pause between two counts: another cluster that starts at the
/// same moment holds all that it needs while it counts.
const INOTIFY_COUNTS: u32 = 20;
const INOTIFY_PAUSE: Duration = Duration::from_millis(50);

/// Facts about the machine and the calling process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Operating system as in `std::env::consts::OS`.
    pub os: String,
    /// Effective user ID.
    pub uid: u32,
    /// Effective capabilities as a bit set.
    pub capabilities: u64,
    /// Namespaces that the kernel offers.
    pub namespaces: Vec<String>,
    /// Those paths that simulated hardware is bound over which exist.
    pub mount_points: Vec<String>,
    /// Whether the `ip` program of iproute2 was found on `PATH`.
    pub ip: bool,
    /// Inotify instances that this user may still open, counted only up to what the cluster needs.
    pub inotify_free: usize,
    /// Whether the `mount` program of util-linux was found on `PATH` (the kubelet calls it).
    pub mount: bool,
}

/// A missing prerequisite and the way to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is missing, in words for the user.
    pub what: String,
    /// How to get it.
    pub remedy: String,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.what, self.remedy)
    }
}

impl Facts {
    /// Gathers the facts about this machine for a cluster with this many nodes.
    pub fn gather(nodes: usize) -> Self {
        let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
        let existing = |paths: &mut dyn Iterator<Item = (String, String)>| -> Vec<String> {
            paths
                .filter(|(_, path)| Path::new(path).exists())
                .map(|(name, _)| name)
                .collect()
        };
        Self {
            os: std::env::consts::OS.to_owned(),
            uid: nix::unistd::geteuid().as_raw(),
            capabilities: effective_capabilities(&status),
            namespaces: existing(
                &mut NAMESPACES
                    .iter()
                    .map(|name| ((*name).to_owned(), format!("/proc/self/ns/{name}"))),
            ),
            mount_points: existing(
                &mut MOUNT_POINTS
                    .iter()
                    .map(|(path, _)| ((*path).to_owned(), (*path).to_owned())),
            ),
            ip: find_program("ip").is_some(),
            inotify_free: count_free_inotify(inotify_needed(nodes)),
            mount: find_program("mount").is_some(),
        }
    }
}

/// Returns everything that a local cluster with this many nodes lacks; empty if it can start.
pub fn missing(facts: &Facts, nodes: usize) -> Vec<Missing> {
    let item = |what: String, remedy: &str| Missing {
        what,
        remedy: remedy.to_owned(),
    };
    if facts.os != "linux" {
        return vec![item(
            format!("the local lane needs Linux, this is {}", facts.os),
            "run it in a Linux virtual machine or container, or point KUBECONFIG at a cluster",
        )];
    }
    let mut list = Vec::new();
    if facts.uid != 0 {
        list.push(item(
            format!("root, this is user {}", facts.uid),
            "run it with sudo, or point KUBECONFIG at a cluster",
        ));
    }
    for (bit, name, purpose) in CAPABILITIES {
        if facts.capabilities & (1 << bit) == 0 {
            list.push(item(
                format!("capability {name} for {purpose}"),
                "in a container: start it with --privileged or add the capability",
            ));
        }
    }
    for name in NAMESPACES {
        if !facts.namespaces.iter().any(|have| have == name) {
            list.push(item(
                format!("{name} namespaces"),
                "use a kernel that is built with them",
            ));
        }
    }
    for (path, purpose) in MOUNT_POINTS {
        if !facts.mount_points.iter().any(|have| have == path) {
            list.push(item(
                format!("{path}, over which simulated hardware is mounted"),
                &format!("use {purpose}"),
            ));
        }
    }
    if !facts.ip {
        list.push(item(
            "the program ip".to_owned(),
            "install the package iproute2 (iproute on Fedora)",
        ));
    }
    let inotify = inotify_needed(nodes);
    if facts.inotify_free < inotify {
        list.push(item(
            format!(
                "{inotify} free inotify instances, there are {}",
                facts.inotify_free
            ),
            "end other clusters, or raise the limit: sysctl fs.inotify.max_user_instances=512",
        ));
    }
    if !facts.mount {
        list.push(item(
            "the program mount".to_owned(),
            "install the package util-linux or mount",
        ));
    }
    list
}

/// Returns the number of inotify instances of a cluster with this many nodes.
fn inotify_needed(nodes: usize) -> usize {
    INOTIFY_CONTROL_PLANE + INOTIFY_NODE * nodes
}

/// Opens as many inotify instances as needed, or as possible, and closes them again: the kernel shows the limit, but not the use. It never
/// opens more than needed, because other processes that open one at the same time would fail.
fn count_free_inotify(needed: usize) -> usize {
    use nix::sys::inotify::{InitFlags, Inotify};
    let count = || {
        std::iter::from_fn(|| Inotify::init(InitFlags::IN_CLOEXEC).ok())
            .take(needed)
            .collect::<Vec<Inotify>>()
            .len()
    };
    for _ in 1..INOTIFY_COUNTS {
        if count() == needed {
            return needed;
        }
        std::thread::sleep(INOTIFY_PAUSE);
    }
    count()
}

/// Returns the `CapEff` line of `/proc/PID/status`; no capabilities if it is missing.
fn effective_capabilities(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn sufficient() -> Facts {
        Facts {
            os: "linux".to_owned(),
            uid: 0,
            capabilities: 0x1ff_feff_ffff,
            namespaces: NAMESPACES.map(str::to_owned).to_vec(),
            mount_points: MOUNT_POINTS.map(|(path, _)| path.to_owned()).to_vec(),
            ip: true,
            inotify_free: 64,
            mount: true,
        }
    }

    #[test]
    fn root_without_resource_capability_is_enough() {
        assert_eq!(missing(&sufficient(), 5), []);
    }

    #[rstest]
    #[case::macos(Facts { os: "macos".to_owned(), uid: 501, capabilities: 0, ..sufficient() }, &["needs Linux, this is macos"])]
    #[case::user(Facts { uid: 1000, ..sufficient() }, &["root, this is user 1000"])]
    #[case::no_sys_admin(Facts { capabilities: 0x1ff_feff_ffff & !(1 << 21), ..sufficient() }, &["CAP_SYS_ADMIN"])]
    #[case::no_network(Facts { capabilities: 0x1ff_feff_ffff & !(1 << 12), ip: false, ..sufficient() }, &["CAP_NET_ADMIN", "program ip"])]
    #[case::no_pid_namespaces(Facts { namespaces: vec!["mnt".into(), "net".into(), "ipc".into(), "uts".into()], ..sufficient() }, &["pid namespaces"])]
    #[case::no_numa(Facts { mount_points: vec!["/sys/devices/system/cpu".into(), "/sys/kernel/mm/hugepages".into()], ..sufficient() }, &["/sys/devices/system/node"])]
    #[case::crowded(Facts { inotify_free: 32, ..sufficient() }, &["33 free inotify instances, there are 32"])]
    #[case::no_mount(Facts { mount: false, ..sufficient() }, &["program mount"])]
    fn each_missing_fact_is_named_with_a_remedy(#[case] facts: Facts, #[case] expected: &[&str]) {
        let list = missing(&facts, 5);
        assert_eq!(list.len(), expected.len(), "{list:?}");
        for (missing, expected) in list.iter().zip(expected) {
            assert!(missing.what.contains(expected), "{missing}");
            assert!(!missing.remedy.is_empty());
        }
    }

    #[test]
    fn clusters_that_count_at_once_take_nothing_from_each_other() {
        let counted: Vec<usize> = std::thread::scope(|scope| {
            let counts: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..50).map(|_| count_free_inotify(8)).min().unwrap()))
                .collect();
            counts
                .into_iter()
                .map(|count| count.join().unwrap())
                .collect()
        });
        assert_eq!(counted, [8; 4]);
    }

    #[rstest]
    #[case::plain("Name:\tx\nCapEff:\t000001fffeffffff\n", 0x1ff_feff_ffff)]
    #[case::none("Name:\tx\nCapEff:\t0000000000000000\n", 0)]
    #[case::absent("Name:\tx\n", 0)]
    fn effective_capabilities_come_from_the_status_file(
        #[case] status: &str,
        #[case] expected: u64,
    ) {
        assert_eq!(effective_capabilities(status), expected);
    }
}
