//! The machine around a cluster: what must not change, and what must disappear.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use local_cluster::LocalCluster;

/// Kernel parameters that a kubelet would set.
const SYSCTLS: [&str; 8] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
    "net/bridge/bridge-nf-call-iptables",
];
/// Directories whose entries must not change.
const QUIET: [&str; 4] = ["/etc", "/var/lib/kubelet", "/var/lib/cni", "/usr/libexec"];
/// Directories that other programs change all the time. Only entries that look like ours count there.
const BUSY: [&str; 3] = ["/run", "/var/log", "/sys/fs/cgroup"];
/// Prefixes of names that we, a kubelet or a container runtime create.
const OURS: [&str; 9] = [
    "cni",
    "containers",
    "crio",
    "kube",
    "netns",
    "nrop",
    "numaresources",
    "pods",
    "worker-",
];

/// Everything outside a cluster that it could change by mistake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostState {
    mounts: String,
    sysctls: BTreeMap<&'static str, Option<String>>,
    entries: BTreeSet<PathBuf>,
    firewall_tables: Option<String>,
}

impl HostState {
    pub(super) fn capture() -> Self {
        let mut entries = BTreeSet::new();
        for dir in QUIET {
            list(Path::new(dir), 0, &mut entries);
        }
        for dir in BUSY {
            let mut all = BTreeSet::new();
            list(Path::new(dir), 0, &mut all);
            let ours = all.into_iter().filter(|path| looks_like_ours(path));
            entries.extend(ours.filter(|path| !is_of_another_runtime(path)));
        }
        Self {
            mounts: fs_err::read_to_string("/proc/self/mountinfo").unwrap(),
            sysctls: SYSCTLS
                .into_iter()
                .map(|name| {
                    (
                        name,
                        fs_err::read_to_string(Path::new("/proc/sys").join(name)).ok(),
                    )
                })
                .collect(),
            entries,
            firewall_tables: fs_err::read_to_string("/proc/net/ip_tables_names").ok(),
        }
    }

    #[track_caller]
    pub(super) fn assert_unchanged(&self) {
        let now = Self::capture();
        assert_eq!(now.mounts, self.mounts);
        assert_eq!(now.sysctls, self.sysctls);
        assert_eq!(now.firewall_tables, self.firewall_tables);
        let added: Vec<_> = now.entries.difference(&self.entries).collect();
        let removed: Vec<_> = self.entries.difference(&now.entries).collect();
        assert!(
            added.is_empty() && removed.is_empty(),
            "added {added:?}, removed {removed:?}"
        );
    }
}

fn looks_like_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    OURS.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether this is in the control group of a cluster with containerd. Such clusters may come and go meanwhile; those with our own
/// runtime have none, as their processes show.
fn is_of_another_runtime(path: &Path) -> bool {
    path.starts_with(cluster_state::control_groups::ROOT)
        && path.components().any(|part| {
            let name = part.as_os_str().to_string_lossy();
            name.starts_with("numaresources-")
        })
}

/// Lists entries four levels deep; symbolic links are not followed.
fn list(dir: &Path, depth: usize, entries: &mut BTreeSet<PathBuf>) {
    let Ok(children) = std::fs::read_dir(dir) else {
        return;
    };
    for child in children.filter_map(Result::ok) {
        let path = child.path();
        if child.file_type().is_ok_and(|kind| kind.is_dir()) && depth < 3 {
            list(&path, depth + 1, entries);
        }
        entries.insert(path);
    }
}

/// The traces of one cluster in the kernel: its namespaces, the processes in them, and its link.
#[derive(Debug)]
pub(super) struct KernelTraces {
    namespaces: BTreeSet<PathBuf>,
    /// The PID namespace. While it is open, the kernel does not reuse its number.
    pid_namespace: (PathBuf, File),
    /// All processes of the machine at the time of the capture. Later processes may be in other namespaces with reused numbers.
    known: BTreeSet<(String, String)>,
    processes: usize,
    control_groups: BTreeSet<String>,
    /// The link and its index. Another cluster may use the same name for its own link.
    link: (PathBuf, String),
}

impl KernelTraces {
    pub(super) fn of(cluster: &LocalCluster) -> Self {
        Self::in_dir(&cluster.spec().state_root, &cluster.spec().name)
    }

    pub(super) fn in_dir(state_root: &Path, name: &str) -> Self {
        let record = cluster_state::find(state_root, name).unwrap();
        let holder = record.holder.unwrap().pid;
        let cluster = namespaces_of(&holder.to_string());
        let own = namespaces_of("self");
        let pid_namespace = cluster
            .iter()
            .find(|name| name.to_string_lossy().starts_with("pid:"))
            .unwrap()
            .clone();
        let opened = File::open(format!("/proc/{holder}/ns/pid")).unwrap();
        let all = all_processes();
        let known = all.iter().map(|pid| identity(pid)).collect();
        let pids: Vec<String> = all
            .into_iter()
            .filter(|pid| namespaces_of(pid).contains(&pid_namespace))
            .collect();
        let members: Vec<BTreeSet<PathBuf>> = pids.iter().map(|pid| namespaces_of(pid)).collect();
        let namespaces = members
            .iter()
            .flatten()
            .filter(|name| !own.contains(*name))
            .cloned()
            .collect();
        let subnet = record.local.and_then(|local| local.subnet).unwrap();
        let link = Path::new("/sys/class/net").join(subnet.host_link());
        let index = index_of(&link).unwrap();
        Self {
            namespaces,
            pid_namespace: (pid_namespace, opened),
            known,
            processes: members.len(),
            control_groups: pids
                .iter()
                .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok())
                .collect(),
            link: (link, index),
        }
    }

    pub(super) fn processes(&self) -> usize {
        self.processes
    }

    /// Returns the control groups of its processes, one text for each combination.
    pub(super) fn control_groups(&self) -> &BTreeSet<String> {
        &self.control_groups
    }

    /// Returns whether no process is in any of the namespaces and the link is gone.
    pub(super) fn is_gone(&self) -> bool {
        let is_inside = |pid: &String| {
            let its = namespaces_of(pid);
            its.contains(&self.pid_namespace.0)
                || self.known.contains(&identity(pid)) && !its.is_disjoint(&self.namespaces)
        };
        let (link, index) = &self.link;
        !all_processes().iter().any(is_inside) && index_of(link).as_ref() != Some(index)
    }
}

/// Returns the id of a process and its start time, in clock ticks since boot.
fn identity(pid: &str) -> (String, String) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let started = fields.split_whitespace().nth(19).unwrap_or_default();
    (pid.to_owned(), started.to_owned())
}

/// Returns the index of a link. The kernel never reuses an index.
fn index_of(link: &Path) -> Option<String> {
    std::fs::read_to_string(link.join("ifindex")).ok()
}

fn all_processes() -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect()
}

/// Returns the names of the namespaces of a process, such as `net:[4026532001]`; empty if the process is gone.
fn namespaces_of(pid: &str) -> BTreeSet<PathBuf> {
    ["mnt", "net", "pid", "ipc", "uts"]
        .iter()
        .filter_map(|kind| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok())
        .collect()
}
