//! Reads the machine from sysfs: NUMA nodes with their CPUs, memory, hugepages and distances (rte.md 4.3).
//!
//! Unlike upstream, memory and hugepages are read below the same root as everything else, an unreadable or invalid file is an error instead
//! of a missing zone, and the ids of NUMA nodes may have gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The NUMA nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Every online NUMA node, by id.
    pub nodes: BTreeMap<u32, NumaNode>,
    /// Number of CPUs of a core, if the machine reports it.
    pub threads_per_core: Option<u16>,
    /// Whether the machine reports that no NUMA node has CPUs of several sockets.
    pub nodes_are_within_sockets: bool,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Ids of its online logical CPUs.
    pub cpus: BTreeSet<u32>,
    /// Memory in bytes, hugepages included.
    pub memory: u64,
    /// Total size in bytes of the hugepages, by page size in bytes.
    pub hugepages: BTreeMap<u64, u64>,
    /// Distance to each NUMA node, itself included.
    pub distances: BTreeMap<u32, i64>,
}

impl Machine {
    /// Returns the NUMA node of a CPU.
    pub fn node_of_cpu(&self, cpu: i64) -> Option<u32> {
        let cpu = u32::try_from(cpu).ok()?;
        self.nodes
            .iter()
            .find(|(_, node)| node.cpus.contains(&cpu))
            .map(|(id, _)| *id)
    }
}

/// The machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file does not have the expected content.
    #[error("{}: expected {expected}, found \"{found}\"", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
        /// The actual content.
        found: String,
    },
    /// There is no NUMA node, so the directory is not a sysfs.
    #[error("no NUMA nodes in {}", .0.display())]
    NoNodes(PathBuf),
}

/// Reads the machine below `sysfs`, usually `/sys`.
pub fn read(sysfs: &Path) -> Result<Machine, Error> {
    let root = sysfs.join("devices/system/node");
    let ids = numbered(&root, "node")?;
    if ids.is_empty() {
        return Err(Error::NoNodes(root));
    }
    let mut machine = Machine::default();
    for id in &ids {
        let dir = root.join(format!("node{id}"));
        let node = NumaNode {
            cpus: online_cpus(&dir)?,
            memory: memory(&dir)?,
            hugepages: hugepages(&dir)?,
            distances: distances(&dir, &ids)?,
        };
        machine.nodes.insert(*id, node);
    }
    let cpus = machine.nodes.values().flat_map(|node| &node.cpus);
    let core = cpus
        .min()
        .and_then(|cpu| beside(sysfs, *cpu, "thread_siblings_list"));
    machine.threads_per_core = core.and_then(|cpus| u16::try_from(cpus.len()).ok());
    machine.nodes_are_within_sockets = machine.nodes.values().all(|node| {
        let Some(first) = node.cpus.first() else {
            return true;
        };
        beside(sysfs, *first, "core_siblings_list")
            .is_some_and(|socket| node.cpus.is_subset(&socket))
    });
    Ok(machine)
}

/// Returns the CPUs that share something with this one, from a list of its topology. `None` if the machine does not report it, like some
/// virtual machines.
fn beside(sysfs: &Path, cpu: u32, list: &str) -> Option<BTreeSet<u32>> {
    let path = format!("devices/system/cpu/cpu{cpu}/topology/{list}");
    let text = fs::read_to_string(sysfs.join(path)).ok()?;
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first > last {
            return None;
        }
        cpus.extend((first..=last).map(u32::from));
    }
    Some(cpus)
}

fn online_cpus(node: &Path) -> Result<BTreeSet<u32>, Error> {
    let mut cpus = BTreeSet::new();
    for cpu in numbered(node, "cpu")? {
        let online = node.join(format!("cpu{cpu}/online"));
        // CPUs that cannot be taken offline have no such file
        let offline = match fs::read_to_string(&online) {
            Ok(text) => match text.trim() {
                "0" => true,
                "1" => false,
                _ => return Err(content(online, "0 or 1", &text)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(source) => {
                return Err(Error::Read {
                    path: online,
                    source,
                });
            }
        };
        if !offline {
            cpus.insert(cpu);
        }
    }
    Ok(cpus)
}

/// Parses `Node 0 MemTotal:  1024 kB` and returns bytes.
fn memory(node: &Path) -> Result<u64, Error> {
    let path = node.join("meminfo");
    let text = text(&path)?;
    let found = text
        .lines()
        .find_map(|line| {
            let (_, rest) = line.split_once("MemTotal:")?;
            rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .and_then(|kilobytes| kilobytes.checked_mul(1024));
    found.ok_or_else(|| content(path, "a line with MemTotal in kB", &text))
}

fn hugepages(node: &Path) -> Result<BTreeMap<u64, u64>, Error> {
    let mut sizes = BTreeMap::new();
    let dir = node.join("hugepages");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        // the kernel has no hugepages
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(sizes),
        Err(source) => return Err(Error::Read { path: dir, source }),
    };
    for entry in entries {
        let entry = entry.map_err(|source| Error::Read {
            path: dir.clone(),
            source,
        })?;
        let name = entry.file_name();
        let Some(kilobytes) = name
            .to_str()
            .and_then(|name| {
                name.strip_prefix("hugepages-")?
                    .strip_suffix("kB")?
                    .parse::<u64>()
                    .ok()
            })
            .and_then(|kilobytes| kilobytes.checked_mul(1024))
        else {
            continue;
        };
        let path = entry.path().join("nr_hugepages");
        let text = text(&path)?;
        let total = text
            .trim()
            .parse::<u64>()
            .ok()
            .and_then(|pages| pages.checked_mul(kilobytes));
        sizes.insert(
            kilobytes,
            total.ok_or_else(|| content(path, "a number of pages", &text))?,
        );
    }
    Ok(sizes)
}

/// Reads the distances: the kernel writes one for each online NUMA node, in the order of their ids.
fn distances(node: &Path, ids: &BTreeSet<u32>) -> Result<BTreeMap<u32, i64>, Error> {
    let path = node.join("distance");
    let text = text(&path)?;
    let values: Result<Vec<i64>, _> = text.split_whitespace().map(str::parse).collect();
    match values {
        Ok(values) if values.len() == ids.len() => Ok(ids.iter().copied().zip(values).collect()),
        _ => Err(content(path, "one distance for each NUMA node", &text)),
    }
}

/// Returns the numbers of all entries whose name is `prefix` and a number.
fn numbered(dir: &Path, prefix: &str) -> Result<BTreeSet<u32>, Error> {
    let read = |source| Error::Read {
        path: dir.to_owned(),
        source,
    };
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let name = entry.map_err(read)?.file_name();
        let number: Option<u32> = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix))
            .and_then(|digits| digits.parse().ok());
        numbers.extend(number);
    }
    Ok(numbers)
}

fn text(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

fn content(path: PathBuf, expected: &'static str, found: &str) -> Error {
    let found = found.trim().chars().take(80).collect();
    Error::Content {
        path,
        expected,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join("devices/system/node").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Creates the nodes 0 and 2, with CPUs 0 and 1 on the first, and 4 and 5 on the second. CPU 5 is offline.
    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (node, cpus) in [(0, [0, 1]), (2, [4, 5])] {
            let path = |rest: &str| format!("node{node}/{rest}");
            for cpu in cpus {
                write(root, &path(&format!("cpu{cpu}/topology/core_id")), "0\n");
            }
            write(root, &path("cpulist"), "\n");
            write(
                root,
                &path("meminfo"),
                &format!("Node {node} MemTotal:        8388608 kB\nNode {node} MemFree: 1 kB\n"),
            );
            write(
                root,
                &path("hugepages/hugepages-2048kB/nr_hugepages"),
                "16\n",
            );
            write(
                root,
                &path("hugepages/hugepages-1048576kB/nr_hugepages"),
                "0\n",
            );
        }
        write(root, "node0/cpu0/online", "1\n");
        write(root, "node2/cpu5/online", "0\n");
        write(root, "node0/distance", "10 21\n");
        write(root, "node2/distance", "21 10\n");
        write(root, "online", "0,2\n");
        dir
    }

    #[test]
    fn machine_is_read_with_holes_in_its_node_ids() {
        let machine = read(machine().path()).unwrap();
        let node = |cpus: &[u32], own, other: (u32, u32)| NumaNode {
            cpus: cpus.iter().copied().collect(),
            memory: 8 << 30,
            hugepages: [(2 << 20, 32 << 20), (1 << 30, 0)].into(),
            distances: [(other.0, own), (other.1, 31 - own)].into(),
        };
        let expected = [(0, node(&[0, 1], 10, (0, 2))), (2, node(&[4], 21, (0, 2)))];
        assert_eq!(machine.nodes, expected.into());
        assert_eq!(machine.node_of_cpu(4), Some(2));
        assert_eq!(machine.node_of_cpu(5), None, "offline");
        assert_eq!(machine.node_of_cpu(-1), None);
    }

    #[rstest::rstest]
    #[case::listed("0,12\n", Some(2))]
    #[case::range("0-3\n", Some(4))]
    #[case::alone("0\n", Some(1))]
    #[case::nonsense("a,b\n", None)]
    #[case::backwards("3-0\n", None)]
    fn threads_of_a_core_are_counted(#[case] list: &str, #[case] expected: Option<u16>) {
        let dir = machine();
        assert_eq!(read(dir.path()).unwrap().threads_per_core, None);
        write(
            dir.path(),
            "../cpu/cpu0/topology/thread_siblings_list",
            list,
        );
        assert_eq!(read(dir.path()).unwrap().threads_per_core, expected);
    }

    #[rstest::rstest]
    #[case::one_socket(Some("0-7\n"), Some("0-7\n"), true)]
    #[case::two_sockets(Some("0,1\n"), Some("4,5\n"), true)]
    #[case::node_of_two_sockets(Some("0,4\n"), Some("0,4\n"), false)]
    #[case::not_reported(Some("0-7\n"), None, false)]
    fn nodes_within_sockets_are_told(
        #[case] of_first: Option<&str>,
        #[case] of_second: Option<&str>,
        #[case] expected: bool,
    ) {
        let dir = machine();
        for (cpu, list) in [(0, of_first), (4, of_second)] {
            if let Some(list) = list {
                let path = format!("../cpu/cpu{cpu}/topology/core_siblings_list");
                write(dir.path(), &path, list);
            }
        }
        assert_eq!(read(dir.path()).unwrap().nodes_are_within_sockets, expected);
    }

    #[test]
    fn unreadable_parts_are_errors_and_no_missing_zones() {
        let dir = machine();
        write(dir.path(), "node2/meminfo", "nothing\n");
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(
            error
                .ends_with("node2/meminfo: expected a line with MemTotal in kB, found \"nothing\""),
            "{error}"
        );

        let dir = machine();
        write(dir.path(), "node0/distance", "10\n");
        let error = read(dir.path()).unwrap_err().to_string();
        assert!(error.contains("one distance for each NUMA node"), "{error}");

        let dir = machine();
        fs::remove_file(dir.path().join("devices/system/node/node0/meminfo")).unwrap();
        assert!(matches!(read(dir.path()), Err(Error::Read { .. })));
        assert!(matches!(
            read(Path::new("/nowhere")),
            Err(Error::Read { .. })
        ));
    }
}
