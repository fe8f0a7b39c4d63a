//! Files that stand in for the cgroup of a container.
//!
//! CPU sets and limits are recorded but never applied, because the CPUs are simulated. The container, and every command executed in it,
//! sees the recorded values below `/sys/fs/cgroup`, under the names of both versions of cgroups: `cpuset.cpus`, `cpuset.cpus.effective`,
//! `cpuset.mems`, `cpuset.mems.effective`, `memory.max`, `cpu.max`, and `cpuset/cpuset.cpus`, `cpuset/cpuset.mems`. A container without a
//! CPU set of its own sees all CPUs of the node.

use std::io;
use std::path::Path;

use podresources::cri::v1::LinuxContainerResources;

/// Default period of the CPU quota, in microseconds.
const DEFAULT_PERIOD: i64 = 100_000;

/// The node's online CPUs and NUMA nodes, as lists (`0-31`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Online {
    /// CPUs.
    pub cpus: String,
    /// NUMA nodes.
    pub mems: String,
}

impl Online {
    /// Reads the lists from the node's `/sys`; a list that cannot be read stays empty.
    pub fn read() -> Self {
        let read = |path| {
            std::fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        Self {
            cpus: read("/sys/devices/system/cpu/online"),
            mems: read("/sys/devices/system/node/online"),
        }
    }
}

/// Writes the files into `directory`. They are written in place, so that running containers see the change.
pub fn write(
    directory: &Path,
    resources: &LinuxContainerResources,
    online: &Online,
) -> io::Result<()> {
    std::fs::create_dir_all(directory.join("cpuset"))?;
    for (name, content) in files(resources, online) {
        std::fs::write(directory.join(name), format!("{content}\n"))?;
    }
    Ok(())
}

fn files(resources: &LinuxContainerResources, online: &Online) -> Vec<(&'static str, String)> {
    let or_online = |own: &str, online: &str| if own.is_empty() { online } else { own }.to_owned();
    let cpus = or_online(&resources.cpuset_cpus, &online.cpus);
    let mems = or_online(&resources.cpuset_mems, &online.mems);
    let memory = match resources.memory_limit_in_bytes {
        limit @ 1.. => limit.to_string(),
        _ => "max".to_owned(),
    };
    let quota = match resources.cpu_quota {
        quota @ 1.. => quota.to_string(),
        _ => "max".to_owned(),
    };
    let period = match resources.cpu_period {
        period @ 1.. => period,
        _ => DEFAULT_PERIOD,
    };
    vec![
        ("cpuset.cpus", resources.cpuset_cpus.clone()),
        ("cpuset.cpus.effective", cpus.clone()),
        ("cpuset.mems", resources.cpuset_mems.clone()),
        ("cpuset.mems.effective", mems.clone()),
        ("memory.max", memory),
        ("cpu.max", format!("{quota} {period}")),
        ("cpuset/cpuset.cpus", cpus),
        ("cpuset/cpuset.mems", mems),
    ]
}

/// Records an update; fields that it does not set keep their values.
pub fn merge(resources: &mut LinuxContainerResources, update: LinuxContainerResources) {
    let number = |own: &mut i64, update: i64| {
        if update != 0 {
            *own = update;
        }
    };
    number(&mut resources.cpu_period, update.cpu_period);
    number(&mut resources.cpu_quota, update.cpu_quota);
    number(&mut resources.cpu_shares, update.cpu_shares);
    number(
        &mut resources.memory_limit_in_bytes,
        update.memory_limit_in_bytes,
    );
    number(
        &mut resources.memory_swap_limit_in_bytes,
        update.memory_swap_limit_in_bytes,
    );
    number(&mut resources.oom_score_adj, update.oom_score_adj);
    let text = |own: &mut String, update: String| {
        if !update.is_empty() {
            *own = update;
        }
    };
    text(&mut resources.cpuset_cpus, update.cpuset_cpus);
    text(&mut resources.cpuset_mems, update.cpuset_mems);
    if !update.hugepage_limits.is_empty() {
        resources.hugepage_limits = update.hugepage_limits;
    }
    resources.unified.extend(update.unified);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_resources(cpus: &str, mems: &str) -> LinuxContainerResources {
        LinuxContainerResources {
            cpuset_cpus: cpus.to_owned(),
            cpuset_mems: mems.to_owned(),
            ..Default::default()
        }
    }

    fn mk_online() -> Online {
        Online {
            cpus: "0-31".to_owned(),
            mems: "0-1".to_owned(),
        }
    }

    #[test]
    fn container_without_a_cpu_set_sees_all_cpus() {
        let files = files(&mk_resources("", ""), &mk_online());
        assert!(files.contains(&("cpuset.cpus", String::new())));
        assert!(files.contains(&("cpuset.cpus.effective", "0-31".to_owned())));
        assert!(files.contains(&("cpuset/cpuset.mems", "0-1".to_owned())));
        assert!(files.contains(&("memory.max", "max".to_owned())));
        assert!(files.contains(&("cpu.max", "max 100000".to_owned())));
    }

    #[test]
    fn recorded_sets_and_limits_are_shown() {
        let resources = LinuxContainerResources {
            memory_limit_in_bytes: 4096,
            cpu_quota: 50_000,
            cpu_period: 100_000,
            ..mk_resources("2-5", "1")
        };
        let files = files(&resources, &mk_online());
        assert!(files.contains(&("cpuset.cpus.effective", "2-5".to_owned())));
        assert!(files.contains(&("cpuset/cpuset.cpus", "2-5".to_owned())));
        assert!(files.contains(&("cpuset.mems", "1".to_owned())));
        assert!(files.contains(&("memory.max", "4096".to_owned())));
        assert!(files.contains(&("cpu.max", "50000 100000".to_owned())));
    }

    #[test]
    fn update_of_the_cpu_set_keeps_the_rest() {
        let mut resources = LinuxContainerResources {
            cpu_shares: 2048,
            memory_limit_in_bytes: 4096,
            ..mk_resources("0-31", "0-1")
        };
        merge(&mut resources, mk_resources("2-3", ""));
        assert_eq!(resources.cpuset_cpus, "2-3");
        assert_eq!(resources.cpuset_mems, "0-1");
        assert_eq!(resources.cpu_shares, 2048);
        assert_eq!(resources.memory_limit_in_bytes, 4096);
    }

    #[test]
    fn files_are_written_in_place() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cpuset.cpus");
        write(directory.path(), &mk_resources("1", ""), &mk_online()).unwrap();
        let inode = fs_err::metadata(&path).unwrap().ino();
        write(directory.path(), &mk_resources("2-3", ""), &mk_online()).unwrap();
        assert_eq!(fs_err::metadata(&path).unwrap().ino(), inode);
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "2-3\n");
    }
}
