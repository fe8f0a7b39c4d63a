//! Scenarios on nodes with containerd, runc and CNI plugins: real containers of a real image in a real pod network. Afterwards nothing of the
//! cluster is on the machine.

mod job;
mod network;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reports::event::Verdict;
use suite::run::Outcome;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use testbed::lane::{Cluster, Lane};

use crate::harness::{describe, eventually, run_scenarios, runtime};

/// Containers with exclusive CPUs, init containers, notification files, status files, conditions, pods that come and go, images that change and
/// that cannot be pulled.
const SCENARIOS: [&str; 8] = [
    "hostlevel/gu-multi",
    "fundamentals/all-gu",
    "cache/overreserve-corrected",
    "rte/notify",
    "rte/pfp-status",
    "sched/image-change",
    "sched/image-pull-error",
    "install/deploy-available",
];
/// The scenarios of network policies.
const POLICIES: &str = "netpol/";
/// Those that are skipped on plain Kubernetes, because no policy selects either end.
const UNSELECTED: [&str; 2] = ["netpol/operator-prom", "netpol/prom-operator-health"];
/// Longer than the kernel needs until a removed link is gone.
const REMOVAL_TIMEOUT: Duration = Duration::from_mins(2);

#[test]
#[ignore = "real: root, the Kubernetes programs, containerd and nftables"]
fn scenarios_pass_on_real_containers_and_leave_nothing_behind() {
    let before = tables();
    let dir = tempfile::tempdir().expect("temporary directory");
    let flags = ["--runtime", "containerd", "--workers", "2"];
    let options = Options {
        state_root: Some(dir.path().join("state")),
        ..Options::own(Lane::Local, &flags).expect("the flags exist")
    };
    let policies = suite::scenarios::all();
    let policies = policies.iter().map(|scenario| scenario.id);
    let policies = policies.filter(|id| id.starts_with(POLICIES) && !UNSELECTED.contains(id));
    let selection = Selection {
        ids: SCENARIOS
            .into_iter()
            .chain(policies)
            .map(str::to_owned)
            .collect(),
        ..Selection::default()
    };
    let names = std::cell::OnceCell::new();
    let prepare = async |session: &Session| {
        let cluster = session
            .own()
            .and_then(Cluster::local)
            .expect("a local cluster");
        let group = cluster.spec().control_group();
        let group = group.expect("a cluster with containerd has a control group");
        let _ = names.set((Link::of(&cluster.subnet().host_link()), group));
        network::answers(cluster).await;
        job::runs_the_tests(cluster).await;
        Ok(())
    };
    let runtime = runtime();
    let completed = runtime.block_on(run_scenarios("containerd", &options, &selection, prepare));
    let not_passed: Vec<String> = completed
        .verdicts
        .iter()
        .filter(|(_, verdict)| **verdict != Verdict::Passed)
        .map(|(id, verdict)| format!("{id}: {}", describe(verdict)))
        .collect();
    assert_eq!(not_passed, Vec::<String>::new());
    assert_eq!(completed.verdicts.len(), selection.ids.len());
    assert_eq!(
        completed.outcome,
        Outcome::Passed,
        "{:?}",
        completed.phase_failure
    );

    let (link, group) = names
        .into_inner()
        .expect("the cluster had a link to this machine");
    runtime.block_on(eventually(
        "nothing of the cluster is left",
        REMOVAL_TIMEOUT,
        async || {
            let left: Vec<String> = tables()
                .difference(&before)
                .cloned()
                .chain(control_groups(&group))
                .chain(processes_of(dir.path()))
                .chain(mounts_below(dir.path()))
                .chain(link.is_there().then(|| link.name.clone()))
                .collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(left.join(", "))
            }
        },
    ));
}

/// A link of this machine. Another cluster may have one with the same name later, but not with the same index.
struct Link {
    name: String,
    index: String,
}

impl Link {
    fn of(name: &str) -> Self {
        let index = fs::read_to_string(Self::file(name)).expect("the link exists");
        let name = name.to_owned();
        Self { name, index }
    }

    fn file(name: &str) -> PathBuf {
        Path::new("/sys/class/net").join(name).join("ifindex")
    }

    fn is_there(&self) -> bool {
        fs::read_to_string(Self::file(&self.name)).is_ok_and(|index| index == self.index)
    }
}

/// Returns the tables of this machine's network, which a cluster could leave without a name of its own.
fn tables() -> BTreeSet<String> {
    let output = Command::new("nft").args(["list", "tables"]).output();
    let tables = output.expect("nft is missing: install nftables").stdout;
    let tables = String::from_utf8_lossy(&tables);
    tables.lines().map(str::to_owned).collect()
}

/// Returns the control groups with a name, in every hierarchy. Other clusters have others.
fn control_groups(name: &str) -> Vec<String> {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    let places = hierarchies
        .map(|entry| entry.path())
        .chain([top.to_owned()]);
    places
        .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
        .filter(|entry| entry.file_name() == name)
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// Returns the command lines of processes that name a directory.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&dir))
        .collect()
}

/// Returns the mounts below a directory.
fn mounts_below(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    mounts
        .lines()
        .filter(|line| line.contains(&dir))
        .map(str::to_owned)
        .collect()
}
