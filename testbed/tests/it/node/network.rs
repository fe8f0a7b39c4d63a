//! Addresses and network namespaces of pods.

use std::net::{TcpListener, TcpStream};

use nix::sched::{CloneFlags, setns};
use podresources::cri::v1 as cri;

use super::harness::{DEADLINE, NODE_ADDRESS, Node, children_of};
use super::namespaces;

/// Runs `work` in a thread in the network namespace of `pid`.
pub(super) fn in_network_of<T: Send + 'static>(
    pid: i32,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let namespace = fs_err::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    std::thread::spawn(move || {
        setns(namespace.file(), CloneFlags::CLONE_NEWNET).unwrap();
        work()
    })
    .join()
    .unwrap()
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn pod_is_reached_at_its_reported_address_from_the_node() {
    let mut node = Node::start().await;
    let sandbox = node.sandbox(node.mk_sandbox("p")).await;
    node.run(&sandbox, &["/pause"]).await;
    let address = node.sandbox_status(&sandbox).await.network.unwrap().ip;
    assert_eq!(address, "10.244.7.2");
    let pod = children_of(node.pid())[0];
    let listener = in_network_of(pod, || TcpListener::bind("0.0.0.0:8080").unwrap());
    let target = format!("{address}:8080").parse().unwrap();
    let connected = in_network_of(node.pid(), move || {
        TcpStream::connect_timeout(&target, DEADLINE)
    });
    connected.unwrap();
    // The pod's own loopback device is up, too.
    let target = "127.0.0.1:8080".parse().unwrap();
    in_network_of(pod, move || TcpStream::connect_timeout(&target, DEADLINE)).unwrap();
    drop(listener);
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn pods_have_addresses_of_their_own_and_give_them_back() {
    let mut node = Node::start().await;
    let first = node.sandbox(node.mk_sandbox("p1")).await;
    let second = node.sandbox(node.mk_sandbox("p2")).await;
    let mut addresses = Vec::new();
    for sandbox in [&first, &second] {
        addresses.push(node.sandbox_status(sandbox).await.network.unwrap().ip);
    }
    assert_eq!(addresses, ["10.244.7.2", "10.244.7.3"]);
    let links = || {
        fs_err::read_to_string(format!("/proc/{}/net/dev", node.pid()))
            .unwrap()
            .matches("pod")
            .count()
    };
    // The bridge is counted, too.
    assert_eq!(links(), 3);
    node.runtime
        .stop_pod_sandbox(cri::StopPodSandboxRequest {
            pod_sandbox_id: first,
        })
        .await
        .unwrap();
    let links = fs_err::read_to_string(format!("/proc/{}/net/dev", node.pid())).unwrap();
    assert_eq!(links.matches("pod").count(), 2, "{links}");
}

#[tokio::test]
#[ignore = "real: root, for namespaces and mounts"]
async fn host_network_pod_reports_the_address_of_the_node() {
    let mut node = Node::start().await;
    let mut config = node.mk_sandbox("p");
    config.linux = Some(namespaces(cri::NamespaceOption {
        network: cri::NamespaceMode::Node.into(),
        pid: cri::NamespaceMode::Container.into(),
        ..Default::default()
    }));
    let sandbox = node.sandbox(config).await;
    let status = node.sandbox_status(&sandbox).await;
    assert_eq!(status.network.unwrap().ip, NODE_ADDRESS);
    let container = node.run(&sandbox, &["/pause"]).await;
    let (_, devices) = node.exec(&container, &["cat", "/proc/net/dev"]).await;
    assert!(devices.contains("pods0:"), "{devices}");
}
