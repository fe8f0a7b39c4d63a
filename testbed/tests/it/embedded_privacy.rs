//! What of a running embedded cluster another user of the machine reaches or reads: nothing. Its ports are on loopback, where every user can
//! connect, so each of them has to demand a token.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster_spec::kubelet::TopologyScope;
use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::client::Body;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use serde_json::json;
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};
use testbed::eventually;

use crate::cluster::harness::HELPER;

const PATIENCE: Duration = Duration::from_mins(1);
/// ID of a user and a group without rights.
const NOBODY: u32 = 65534;
/// Port of the socket that marks the addresses of a cluster as taken; nobody accepts connections there.
const MARK: u16 = 47_000;
/// What API servers and kubelets serve.
const PATHS: [&str; 9] = [
    "/",
    "/api/v1/secrets",
    "/metrics",
    "/pods",
    "/configz",
    "/logs/",
    "/exec/default/secret/main?command=id&output=1",
    "/containerLogs/default/secret/main",
    "/testing/faults",
];

/// Starts a cluster of one node with a pod that has a token and the secret of its account.
async fn mk_cluster(root: &Path) -> EmbeddedCluster {
    let nodes = vec![NodePlan::worker(
        0,
        TopologyScope::Container,
        &Machine::default_profile(),
    )];
    let bin_dir = Path::new(HELPER).parent().unwrap();
    let spec = EmbeddedSpec::new("privacy", root, bin_dir, nodes);
    let cluster = Box::pin(EmbeddedCluster::up(spec, &|_| {})).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let pod = serde_json::from_value(json!({"metadata": {"name": "secret"}, "spec": {
        "nodeName": "worker-0",
        "containers": [{"name": "main", "image": api::names::STACK_IMAGE, "command": ["/bin/sleep", "infinity"]}],
    }}))
    .unwrap();
    let runs = eventually(PATIENCE, async || {
        // admission needs the service account, which is created soon after the namespace
        drop(pods.create(&PostParams::default(), &pod).await);
        let status = pods.get("secret").await.ok().and_then(|pod| pod.status);
        let phase = status.and_then(|status| status.phase);
        if phase.as_deref() == Some("Running") {
            return Ok(());
        }
        Err(format!("phase {phase:?}"))
    });
    runs.await.unwrap();
    cluster
}

/// Returns the files and directories from a directory on that another user can list. Needs root, to become that user.
pub(crate) fn seen_by_another_user(dir: &Path) -> Vec<PathBuf> {
    let found = Command::new("find")
        .arg(dir)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let listed = String::from_utf8(found.stdout).unwrap();
    listed.lines().map(PathBuf::from).collect()
}

/// Returns where somebody listens in the block of loopback addresses of a cluster.
fn listeners(cluster: &EmbeddedCluster) -> Vec<SocketAddr> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let server = kubeconfig.clusters[0]
        .cluster
        .as_ref()
        .unwrap()
        .server
        .clone();
    let server: http::Uri = server.unwrap().parse().unwrap();
    let server: Ipv4Addr = server.host().unwrap().parse().unwrap();
    let [first, second, ..] = server.octets();
    let sockets = procfs::net::tcp().unwrap().into_iter();
    sockets
        .filter(|socket| socket.state == procfs::net::TcpState::Listen)
        .map(|socket| socket.local_address)
        .filter(|address| address.port() != MARK)
        .filter(|address| match address.ip() {
            IpAddr::V4(ip) => ip.octets()[..2] == [first, second],
            IpAddr::V6(_) => false,
        })
        .collect()
}

/// Asks without credentials. Returns the status of the answer; `None` if there is none.
async fn status(scheme: &str, address: SocketAddr, path: &str) -> Option<u16> {
    let mut config = Config::new(format!("{scheme}://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.default_retry = false;
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let answer = tokio::time::timeout(PATIENCE, client.send(request)).await;
    // whoever hangs instead of refusing fails the test
    answer.unwrap().ok().map(|answer| answer.status().as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_port_of_a_cluster_demands_a_token() {
    let root = tempfile::tempdir().unwrap();
    let cluster = mk_cluster(root.path()).await;
    let listeners = listeners(&cluster);
    // the API server and the kubelet
    assert!(listeners.len() >= 2, "{listeners:?}");
    for address in &listeners {
        for path in PATHS {
            let secure = status("https", *address, path).await;
            assert!(
                matches!(secure, Some(401 | 403)),
                "https://{address}{path}: {secure:?}"
            );
            let plain = status("http", *address, path).await;
            assert!(
                matches!(plain, None | Some(400)),
                "http://{address}{path}: {plain:?}"
            );
        }
    }
    cluster.down().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root, for a second user"]
async fn another_user_reads_no_file_of_a_cluster() {
    let root = tempfile::tempdir().unwrap();
    let cluster = mk_cluster(root.path()).await;
    fs_err::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
    let dir = cluster.spec().dir();
    assert_eq!(seen_by_another_user(&dir), [dir]);
    let mode = fs_err::metadata(cluster.kubeconfig())
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "mode of the kubeconfig");
    cluster.down().unwrap();
}
