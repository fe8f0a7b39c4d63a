//! Simulated hardware: the files through which a kubelet (cAdvisor) and the RTE see a machine.
//!
//! One tree serves every node with the same machine; nodes bind its parts, read-only, over the real ones (ARCHITECTURE.md 5).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fixtures::machines::{Machine, format_cpu_list};
use fs_err::os::unix::fs::symlink;

/// Parts of the tree and the path of each in a node.
pub const PARTS: [(&str, &str); 5] = [
    ("cpu", "/sys/devices/system/cpu"),
    ("node", "/sys/devices/system/node"),
    ("hugepages", "/sys/kernel/mm/hugepages"),
    ("cpuinfo", "/proc/cpuinfo"),
    ("meminfo", "/proc/meminfo"),
];

const KIB: u64 = 1024;
const PAGE_2MI_KIB: u64 = 2048;
const PAGE_1GI_KIB: u64 = 1_048_576;
/// A cache: index directory, level, type, size.
type Cache = (u32, u32, &'static str, &'static str);
/// Caches of one core.
const CORE_CACHES: [Cache; 3] = [
    (0, 1, "Data", "32K"),
    (1, 1, "Instruction", "32K"),
    (2, 2, "Unified", "1024K"),
];
/// Cache that several cores share.
const LAST_CACHE: Cache = (3, 3, "Unified", "32768K");

/// Writes the whole tree into a new directory.
pub fn write_tree(machine: &Machine, dir: &Path) -> std::io::Result<()> {
    let mut tree = Tree {
        machine,
        dir: dir.to_owned(),
        files: Files::default(),
    };
    tree.cpus()?;
    tree.zones()?;
    let files = &mut tree.files;
    let sum = |count: fn(&fixtures::machines::Zone) -> u64| machine.zones().iter().map(count).sum();
    write_hugepages(
        files,
        &dir.join("hugepages"),
        sum(|zone| zone.hugepages_2mi),
        sum(|zone| zone.hugepages_1gi),
        true,
    )?;
    files.put(&dir.join("cpuinfo"), &cpuinfo(machine))?;
    files.put(&dir.join("meminfo"), &meminfo(machine))
}

struct Tree<'a> {
    machine: &'a Machine,
    dir: PathBuf,
    files: Files,
}

impl Tree<'_> {
    fn cpus(&mut self) -> std::io::Result<()> {
        let machine = self.machine;
        let base = self.dir.join("cpu");
        let all: Vec<u32> = (0..machine.total_cpus()).collect();
        let online = line(&format_cpu_list(&all));
        for name in ["online", "possible", "present"] {
            self.files.put(&base.join(name), &online)?;
        }
        for name in ["offline", "isolated", "nohz_full"] {
            self.files.put(&base.join(name), "\n")?;
        }
        self.files.put(
            &base.join("kernel_max"),
            &line(&machine.total_cpus().saturating_sub(1).to_string()),
        )?;
        for cpu in all {
            self.cpu(&base, cpu)?;
        }
        Ok(())
    }

    fn cpu(&mut self, base: &Path, cpu: u32) -> std::io::Result<()> {
        let machine = self.machine;
        let dir = base.join(format!("cpu{cpu}"));
        let core = machine.core_of(cpu);
        let zone = machine.zone_of(cpu);
        let siblings = machine.core_cpus(core);
        let socket = machine.socket_of(zone);
        let package = machine.socket_cpus(socket);
        self.files.put(&dir.join("online"), "1\n")?;
        let topology = dir.join("topology");
        // Linux numbers the cores of each package from 0.
        let first = machine
            .zone_cores(socket * machine.zones_per_socket())
            .start;
        let core_id = core - first;
        for (name, value) in [
            ("core_id", core_id.to_string()),
            ("physical_package_id", socket.to_string()),
            ("die_id", "0".to_owned()),
            ("cluster_id", "65535".to_owned()),
            ("book_id", "-1".to_owned()),
            ("drawer_id", "-1".to_owned()),
            ("thread_siblings_list", format_cpu_list(&siblings)),
            ("core_cpus_list", format_cpu_list(&siblings)),
            ("core_siblings_list", format_cpu_list(&package)),
            ("package_cpus_list", format_cpu_list(&package)),
            ("die_cpus_list", format_cpu_list(&package)),
            ("thread_siblings", cpu_mask(&siblings)),
            ("core_cpus", cpu_mask(&siblings)),
            ("core_siblings", cpu_mask(&package)),
            ("package_cpus", cpu_mask(&package)),
        ] {
            self.files.put(&topology.join(name), &line(&value))?;
        }
        for cache in CORE_CACHES {
            self.cache(&dir, cache, core, &siblings)?;
        }
        let (id, sharing) = machine.cache_of(core);
        let sharing: Vec<u32> = sharing.flat_map(|core| machine.core_cpus(core)).collect();
        self.cache(&dir, LAST_CACHE, id, &sharing)?;
        symlink(
            format!("../../node/node{zone}"),
            dir.join(format!("node{zone}")),
        )
    }

    /// Writes the cache with this id, which these CPUs share, into the directory of one of them.
    fn cache(
        &mut self,
        cpu_dir: &Path,
        (index, level, kind, size): Cache,
        id: u32,
        shared: &[u32],
    ) -> std::io::Result<()> {
        let dir = cpu_dir.join(format!("cache/index{index}"));
        for (name, value) in [
            ("level", level.to_string()),
            ("type", kind.to_owned()),
            ("size", size.to_owned()),
            ("id", id.to_string()),
            ("shared_cpu_list", format_cpu_list(shared)),
            ("shared_cpu_map", cpu_mask(shared)),
        ] {
            self.files.put(&dir.join(name), &line(&value))?;
        }
        Ok(())
    }

    fn zones(&mut self) -> std::io::Result<()> {
        let machine = self.machine;
        let base = self.dir.join("node");
        let ids: Vec<u32> = (0..machine.zones().len() as u32).collect();
        let list = line(&format_cpu_list(&ids));
        for name in [
            "online",
            "possible",
            "has_cpu",
            "has_memory",
            "has_normal_memory",
        ] {
            self.files.put(&base.join(name), &list)?;
        }
        for (index, zone) in machine.zones().iter().enumerate() {
            let dir = base.join(format!("node{index}"));
            let cpus = machine.zone_cpus(index);
            self.files
                .put(&dir.join("cpulist"), &line(&format_cpu_list(&cpus)))?;
            self.files
                .put(&dir.join("cpumap"), &line(&cpu_mask(&cpus)))?;
            let distances: Vec<String> = machine.distances()[index]
                .iter()
                .map(ToString::to_string)
                .collect();
            self.files
                .put(&dir.join("distance"), &line(&distances.join(" ")))?;
            self.files
                .put(&dir.join("meminfo"), &zone_meminfo(index, zone))?;
            self.files.put(
                &dir.join("numastat"),
                "numa_hit 0\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\nlocal_node 0\nother_node 0\n",
            )?;
            self.files.put(&dir.join("vmstat"), "nr_free_pages 0\n")?;
            write_hugepages(
                &mut self.files,
                &dir.join("hugepages"),
                zone.hugepages_2mi,
                zone.hugepages_1gi,
                false,
            )?;
            for cpu in cpus {
                symlink(format!("../../cpu/cpu{cpu}"), dir.join(format!("cpu{cpu}")))?;
            }
        }
        Ok(())
    }
}

/// Writes the pools of both page sizes; the pools of the whole machine have two more files than those of a zone.
fn write_hugepages(
    files: &mut Files,
    dir: &Path,
    small: u64,
    large: u64,
    whole_machine: bool,
) -> std::io::Result<()> {
    for (kib, count) in [(PAGE_2MI_KIB, small), (PAGE_1GI_KIB, large)] {
        let pool = dir.join(format!("hugepages-{kib}kB"));
        files.put(&pool.join("nr_hugepages"), &line(&count.to_string()))?;
        files.put(&pool.join("free_hugepages"), &line(&count.to_string()))?;
        files.put(&pool.join("surplus_hugepages"), "0\n")?;
        if whole_machine {
            files.put(&pool.join("resv_hugepages"), "0\n")?;
            files.put(&pool.join("nr_overcommit_hugepages"), "0\n")?;
        }
    }
    Ok(())
}

fn zone_meminfo(index: usize, zone: &fixtures::machines::Zone) -> String {
    let total = zone.memory / KIB;
    let free = (zone.memory - zone.hugepages_bytes()) / KIB;
    let used = total - free;
    let mut text = String::new();
    for (key, value) in [("MemTotal", total), ("MemFree", free), ("MemUsed", used)] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "Node {index} {key}:       {value} kB");
    }
    for (key, value) in [
        ("HugePages_Total", zone.hugepages_2mi),
        ("HugePages_Free", zone.hugepages_2mi),
        ("HugePages_Surp", 0),
    ] {
        let _ = writeln!(text, "Node {index} {key}:  {value}");
    }
    text
}

fn meminfo(machine: &Machine) -> String {
    let hugepages: u64 = machine
        .zones()
        .iter()
        .map(fixtures::machines::Zone::hugepages_bytes)
        .sum();
    let small: u64 = machine.zones().iter().map(|zone| zone.hugepages_2mi).sum();
    let total = machine.total_memory() / KIB;
    let free = (machine.total_memory() - hugepages) / KIB;
    format!(
        "MemTotal:       {total} kB\nMemFree:        {free} kB\nMemAvailable:   {free} kB\nBuffers:        0 kB\n\
         Cached:         0 kB\nSwapCached:     0 kB\nActive:         0 kB\nInactive:       0 kB\nSwapTotal:      0 kB\n\
         SwapFree:       0 kB\nDirty:          0 kB\nShmem:          0 kB\nHugePages_Total: {small}\n\
         HugePages_Free: {small}\nHugePages_Rsvd: 0\nHugePages_Surp: 0\nHugepagesize:   {PAGE_2MI_KIB} kB\n\
         Hugetlb:        {} kB\n",
        hugepages / KIB
    )
}

fn cpuinfo(machine: &Machine) -> String {
    let mut text = String::new();
    for cpu in 0..machine.total_cpus() {
        let zone = machine.zone_of(cpu);
        let socket = machine.socket_of(zone);
        let package = machine.socket_cpus(socket);
        let first = machine
            .zone_cores(socket * machine.zones_per_socket())
            .start;
        let core_id = machine.core_of(cpu) - first;
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nmodel name\t: Simulated CPU\n\
             stepping\t: 6\ncpu MHz\t\t: 2400.000\ncache size\t: 32768 KB\nphysical id\t: {socket}\nsiblings\t: {}\n\
             core id\t\t: {core_id}\ncpu cores\t: {}\nflags\t\t: fpu sse sse2\n\n",
            package.len(),
            package.len() as u32 / machine.threads_per_core(),
        );
    }
    text
}

/// Formats a CPU set as Linux prints masks: 32-bit words in hexadecimal, highest first, comma separated.
fn cpu_mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |index: u32| {
        cpus.iter()
            .filter(|cpu| **cpu / 32 == index)
            .fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let texts: Vec<String> = (0..words)
        .rev()
        .map(|index| format!("{:08x}", word(index)))
        .collect();
    texts.join(",")
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

/// The files of one tree. Those that say the same are one file with several names: a machine has thousands of names, few contents, and
/// a file system takes far longer for a file than for a name. Nothing writes to a tree that is complete.
#[derive(Default)]
struct Files {
    by_content: HashMap<String, PathBuf>,
}

impl Files {
    fn put(&mut self, path: &Path, content: &str) -> std::io::Result<()> {
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent)?;
        }
        if let Some(same) = self.by_content.get(content)
            && fs_err::hard_link(same, path).is_ok()
        {
            return Ok(());
        }
        // The first of its content, or a file system without links or with too many to this file.
        fs_err::write(path, content)?;
        self.by_content.insert(content.to_owned(), path.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one(&[0], "00000001")]
    #[case::two_words(&[0, 36], "00000010,00000001")]
    #[case::none(&[], "00000000")]
    fn masks_are_written_highest_word_first(#[case] cpus: &[u32], #[case] expected: &str) {
        assert_eq!(cpu_mask(cpus), expected);
    }

    #[test]
    fn tree_shows_the_machine_through_the_links_that_readers_follow() {
        let dir = tempfile::tempdir().unwrap();
        write_tree(&Machine::default_profile(), dir.path()).unwrap();
        let read = |path: &str| fs_err::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(read("cpu/online"), "0-47\n");
        assert_eq!(read("cpu/cpu36/topology/thread_siblings_list"), "12,36\n");
        assert_eq!(read("cpu/cpu36/topology/core_id"), "0\n");
        assert_eq!(read("cpu/cpu36/topology/physical_package_id"), "1\n");
        assert_eq!(
            read("cpu/cpu5/cache/index3/shared_cpu_list"),
            "0-11,24-35\n"
        );
        assert_eq!(read("node/online"), "0-1\n");
        assert_eq!(read("node/node1/cpulist"), "12-23,36-47\n");
        assert_eq!(read("node/node1/distance"), "21 10\n");
        assert_eq!(
            read("node/node0/hugepages/hugepages-1048576kB/nr_hugepages"),
            "4\n"
        );
        assert_eq!(read("hugepages/hugepages-2048kB/nr_hugepages"), "1024\n");
        assert!(read("node/node0/meminfo").contains("Node 0 MemTotal:       67108864 kB"));
        assert!(read("meminfo").starts_with("MemTotal:       134217728 kB"));
        assert_eq!(read("cpuinfo").matches("processor\t:").count(), 48);
        // In a node both parts lie below /sys/devices/system, here below one directory: the links resolve the same way.
        assert!(dir.path().join("cpu/cpu36/node1").is_symlink());
        assert!(dir.path().join("node/node1/cpu36").is_symlink());
    }
}
