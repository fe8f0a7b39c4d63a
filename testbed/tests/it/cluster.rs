//! Whole clusters: what they do, and what they leave behind.

pub(crate) mod harness;
mod outside;
mod promises;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use harness::{HELPER, eventually, kubectl, small, state_root};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use local_cluster::{LocalCluster, cluster};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use outside::{HostState, KernelTraces};
use wait_timeout::ChildExt as _;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root, the Kubernetes programs and nftables"]
async fn cluster_keeps_its_promises_to_pods() {
    let state_root = state_root();
    let cluster = LocalCluster::up(small(&state_root, "promises", 2), &|_| {})
        .await
        .unwrap();
    promises::another_user_of_the_machine_reaches_nothing(&cluster);
    promises::guaranteed_pods_get_cpus_of_one_zone_and_the_third_is_refused(&cluster).await;
    promises::pods_reach_the_api_server_by_its_cluster_ip(&cluster).await;
    promises::daemon_sets_run_on_every_worker(&cluster).await;
    promises::network_policies_open_and_close_ways(&cluster).await;
    promises::restarted_kubelet_has_its_new_settings_and_its_containers_live_on(&cluster).await;
    promises::device_pins_the_zone_of_the_cpus_right_after_a_restart(&cluster).await;
    cluster.down().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root and the Kubernetes programs"]
async fn removed_cluster_leaves_nothing_and_its_neighbours_live() {
    let state_root = state_root();
    let host = HostState::capture();
    // A foreign process whose name alone looks like a kubelet. A careless clean-up would kill it.
    let imposter = state_root.path().join("kubelet");
    fs_err::copy("/bin/sleep", &imposter).unwrap();
    let mut foreign = Command::new(&imposter).arg("1000").spawn().unwrap();

    let first = LocalCluster::up(small(&state_root, "first", 1), &|_| {})
        .await
        .unwrap();
    let second = LocalCluster::up(small(&state_root, "second", 1), &|_| {})
        .await
        .unwrap();
    assert_ne!(first.subnet(), second.subnet());
    let traces = KernelTraces::of(&first);
    assert!(traces.processes() > 5, "{traces:?}");
    let ours = fs_err::read_to_string("/proc/self/cgroup").unwrap();
    assert_eq!(traces.control_groups().iter().collect::<Vec<_>>(), [&ours]);

    first.down().unwrap();
    eventually("the first cluster is gone", || traces.is_gone());
    assert!(!state_root.path().join("first").exists());
    assert!(
        foreign.try_wait().unwrap().is_none(),
        "the foreign process was killed"
    );
    let nodes = kubectl(&second, &["get", "nodes", "-o", "name"]);
    assert_eq!(nodes, "node/control-plane-0\nnode/worker-0\n");

    let traces = KernelTraces::of(&second);
    drop(second);
    eventually("the second cluster is gone", || traces.is_gone());
    foreign.kill().unwrap();
    foreign.wait().unwrap();
    host.assert_unchanged();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root and the Kubernetes programs"]
async fn broken_kubelet_fails_the_start_with_the_end_of_its_log() {
    let state_root = state_root();
    let mut spec = small(&state_root, "broken", 1);
    let kubelet = &mut spec.nodes[1].kubelet;
    kubelet
        .extra
        .insert("topologyManagerPolicy".to_owned(), "nonsense".into());
    let error = LocalCluster::up(spec.clone(), &|_| {})
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("kubelet/worker-0 ended"), "{error}");
    assert!(error.contains("nonsense"), "{error}");
    let log = state_root.path().join("broken/logs/kubelet-worker-0.log");
    assert!(error.contains(&log.display().to_string()), "{error}");
    assert!(log.exists());
    assert!(
        cluster_state::find(state_root.path(), "broken").is_err(),
        "processes are left"
    );

    // The same process may try again with the same name.
    spec.nodes[1].kubelet.extra.clear();
    LocalCluster::up(spec, &|_| {})
        .await
        .unwrap()
        .down()
        .unwrap();
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn killed_owner_leaves_a_directory_that_the_next_start_removes() {
    let state_root = state_root();
    let host = HostState::capture();
    let mut owner = run_in_cluster(&state_root, "killed", &["sleep", "1000"]);
    let mut command = None;
    eventually("the cluster is up and the command runs", || {
        command = child_named(owner.id(), "sleep");
        cluster_state::find(state_root.path(), "killed").is_ok() && command.is_some()
    });
    let traces = KernelTraces::in_dir(state_root.path(), "killed");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The command belongs to the user and not to the cluster, so nothing but this test ends it.
    kill(Pid::from_raw(command.unwrap()), Signal::SIGKILL).unwrap();
    eventually("the cluster ended with its owner", || traces.is_gone());
    host.assert_unchanged();
    assert!(state_root.path().join("killed").is_dir());

    let mut next = run_in_cluster(&state_root, "next", &["true"]);
    assert!(ended(&mut next).success());
    let left: Vec<_> = fs_err::read_dir(state_root.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"]);
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn interrupted_start_removes_what_it_began() {
    let state_root = state_root();
    let mut owner = run_in_cluster(&state_root, "interrupted", &["sleep", "1000"]);
    eventually("the holder runs", || {
        cluster_state::find(state_root.path(), "interrupted").is_ok()
    });
    kill(Pid::from_raw(owner.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(ended(&mut owner).code(), Some(130));
    let records = cluster_state::list(state_root.path()).unwrap();
    // If the interrupt came before the cluster object existed, a dead record is left, which the next start removes.
    assert!(records.iter().all(|(_, _, runs)| !runs), "{records:?}");
}

#[test]
#[ignore = "real: root and the Kubernetes programs"]
fn cluster_of_another_process_is_attached_to_and_removed_by_name() {
    let state_root = state_root();
    let output = Command::new(HELPER)
        .args([
            "cluster",
            "up",
            "--cluster",
            "local",
            "--workers",
            "1",
            "--name",
            "kept",
            "--state-root",
        ])
        .arg(state_root.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("/kept/kubeconfig"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let attached = runtime
        .block_on(LocalCluster::attach(state_root.path(), "kept"))
        .unwrap();
    assert_eq!(
        attached.node("worker-0").unwrap().machine().total_cpus(),
        48
    );
    drop(attached);
    assert!(
        cluster_state::find(state_root.path(), "kept").is_ok(),
        "an attached cluster ended with its handle"
    );
    assert!(cluster::down(state_root.path(), "kept").unwrap());
    assert!(!cluster::down(state_root.path(), "kept").unwrap());
}

#[test]
fn ordinary_user_is_told_what_is_missing_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    // The copy is in a directory where the user may execute it; the build directory may not allow that.
    let helper = dir.path().join("helper");
    fs_err::copy(HELPER, &helper).unwrap();
    open_to_all(dir.path());
    let mut up = Command::new(&helper);
    up.args(["cluster", "up", "--cluster", "local", "--state-root"])
        .arg(dir.path().join("state"));
    let mut user = nix::unistd::geteuid().as_raw();
    // Anybody but root is an ordinary user already.
    if user == 0 {
        user = 65534;
        up.uid(user).gid(user);
    }
    let output = up.output().unwrap();
    let missing = format!("root, this is user {user}");
    assert_refused(&output, &[&missing, "CAP_SYS_ADMIN"]);
    assert!(!dir.path().join("state").exists());
}

#[test]
#[ignore = "real: root, to take something from it"]
fn root_without_a_capability_is_told_which() {
    let state_root = state_root();
    let state = state_root.path().join("state");
    let output = Command::new("setpriv")
        .args([
            "--bounding-set",
            "-net_admin,-sys_chroot",
            "--",
            HELPER,
            "cluster",
            "up",
            "--cluster",
            "local",
            "--state-root",
        ])
        .arg(&state)
        .output()
        .expect("this test needs setpriv of util-linux");
    assert_refused(&output, &["CAP_NET_ADMIN", "CAP_SYS_CHROOT"]);
    assert!(!state.exists());
}

#[test]
#[ignore = "real: root, which this is checked for first"]
fn wrong_machine_profile_starts_nothing() {
    let state_root = state_root();
    let profile = state_root.path().join("machine.yaml");
    fs_err::write(
        &profile,
        "{name: x, zones: [{cores: 1, memory: 1Gi, hugepages1Gi: 2}]}",
    )
    .unwrap();
    let state = state_root.path().join("state");
    let output = Command::new(HELPER)
        .args(["cluster", "up", "--cluster", "local", "--machine"])
        .arg(&profile)
        .arg("--state-root")
        .arg(&state)
        .output()
        .unwrap();
    assert_refused(
        &output,
        &["hugepages take 2048 MiB but the zone has 1024 MiB"],
    );
    assert!(!state.exists());
}

#[tokio::test]
async fn light_nodes_stand_beside_the_others() {
    let state_root = tempfile::tempdir().unwrap();
    let cluster = |command: &str| {
        let mut cluster = Command::new(HELPER);
        cluster.args(["cluster", command, "--name", "light", "--state-root"]);
        cluster.arg(state_root.path());
        cluster
    };
    let up = cluster("up")
        .args(["--workers", "1", "--light-nodes", "30"])
        .output()
        .unwrap();
    assert!(up.status.success(), "{up:?}");
    let printed = String::from_utf8(up.stdout).unwrap();
    let kubeconfig = printed.trim().strip_prefix("export KUBECONFIG=").unwrap();
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let client = kube::Client::try_from(config.await.unwrap()).unwrap();
    let light = ListParams::default().labels(sim::light::LABEL);
    let listed = Api::<Node>::all(client).list(&light).await;
    let down = cluster("down").output().unwrap();
    assert!(down.status.success(), "{down:?}");
    assert_eq!(listed.unwrap().items.len(), 30);
}

#[test]
#[ignore = "real: root, which this is checked for first"]
fn light_nodes_are_refused_where_nobody_keeps_them_alive() {
    let state_root = state_root();
    let output = Command::new(HELPER)
        .args(["cluster", "up", "--cluster", "local", "--light-nodes", "1"])
        .arg("--state-root")
        .arg(state_root.path().join("state"))
        .output()
        .unwrap();
    assert_refused(&output, &["--light-nodes needs the embedded lane"]);
    assert!(!state_root.path().join("state").exists());
}

/// Starts `cluster run` with a small cluster.
fn run_in_cluster(state_root: &tempfile::TempDir, name: &str, command: &[&str]) -> Child {
    Command::new(HELPER)
        .args([
            "cluster",
            "run",
            "--cluster",
            "local",
            "--workers",
            "1",
            "--name",
            name,
            "--state-root",
        ])
        .arg(state_root.path())
        .arg("--")
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until a process has ended.
fn ended(process: &mut Child) -> ExitStatus {
    let status = process.wait_timeout(harness::DEADLINE).unwrap();
    status.expect("the process ends in time")
}

/// Returns a child of any thread of a process that has this command name.
fn child_named(parent: u32, name: &str) -> Option<i32> {
    tasks_of(parent)
        .iter()
        .filter_map(|task| {
            fs_err::read_to_string(format!("/proc/{parent}/task/{task}/children")).ok()
        })
        .flat_map(|children| {
            children
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .find(|pid| {
            fs_err::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|comm| comm.trim() == name)
        })
        .and_then(|pid| pid.parse().ok())
}

fn tasks_of(pid: u32) -> Vec<String> {
    let Ok(entries) = fs_err::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn open_to_all(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs_err::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
}

#[track_caller]
fn assert_refused(output: &std::process::Output, expected: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    for expected in expected {
        assert!(text.contains(expected), "{text}");
    }
}
