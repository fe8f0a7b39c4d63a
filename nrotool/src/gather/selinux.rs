//! What SELinux says about the kubelet's socket on the nodes of an OpenShift (scenarios-other.md 5). The files of a node are reached through the
//! pod of the Machine Config Operator there, so that nothing has to be created.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;

use super::folder::name;
use super::{Gather, namespaces};
use crate::cluster::{self, is_running};
use crate::exec;

/// Where the Machine Config Operator runs, the label of its pods on nodes, and their container.
const NAMESPACE: &str = "openshift-machine-config-operator";
const DAEMON: &str = "k8s-app=machine-config-daemon";
const CONTAINER: &str = "machine-config-daemon";
/// Root directory of the node in that container.
const ROOT: &str = "/rootfs";
/// Number of nodes that are asked at a time.
const CONCURRENT: usize = 8;
/// The files, and the commands on the node that print them. The end of a log is enough: what is wrong goes on.
const FILES: [(&str, &[&str]); 5] = [
    (
        "contexts",
        &[
            "ls",
            "-dZ",
            "/var/lib/kubelet",
            "/var/lib/kubelet/pod-resources",
            "/var/lib/kubelet/pod-resources/kubelet.sock",
        ],
    ),
    (
        "kubelet_systemctl_show",
        &["systemctl", "show", "kubelet.service"],
    ),
    (
        "kubelet_systemctl_cat",
        &["systemctl", "cat", "kubelet.service"],
    ),
    (
        "audit_selinux.log",
        &[
            "sh",
            "-c",
            "grep -aE 'type=(AVC|USER_AVC|SELINUX_ERR)' /var/log/audit/audit.log | tail -n 5000",
        ],
    ),
    (
        "audit_podresources.log",
        &[
            "sh",
            "-c",
            "grep -aE 'pod-?resources' /var/log/audit/audit.log | tail -n 5000",
        ],
    ),
];

/// Collects from each node with an exporter.
pub(super) async fn collect(gather: &Gather) {
    let exporters = namespaces::exporters();
    let pods: Api<Pod> = Api::all(gather.client.clone());
    let listed = gather
        .limits
        .request(cluster::list(&pods, &exporters))
        .await;
    let exporters = gather.folder.or_error("nodes for SELinux data", listed);
    let nodes: BTreeSet<String> = exporters.iter().flatten().filter_map(node).collect();
    let pods: Api<Pod> = Api::namespaced(gather.client.clone(), NAMESPACE);
    let listed = gather.limits.request(cluster::list(&pods, DAEMON)).await;
    let Some(daemons) = gather.folder.or_error("pods for SELinux data", listed) else {
        return;
    };
    let daemons: Vec<(String, &Pod)> = daemons
        .iter()
        .filter(|pod| is_running(pod))
        .filter_map(|pod| Some((node(pod)?, pod)))
        .filter(|(node, _)| nodes.contains(node))
        .collect();
    for node in &nodes {
        if !daemons.iter().any(|(reached, _)| reached == node) {
            let what = format!("SELinux data of {node}");
            gather.folder.failed(&what, &NoDaemon);
        }
    }
    stream::iter(&daemons)
        .for_each_concurrent(CONCURRENT, |(node, pod)| of_node(gather, node, pod))
        .await;
}

/// The files of a node cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("no pod {DAEMON} runs there in namespace {NAMESPACE}: look at the node with oc debug")]
struct NoDaemon;

fn node(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

async fn of_node(gather: &Gather, node: &str, pod: &Pod) {
    for (file, command) in FILES {
        let words = [&["chroot", ROOT], command].concat();
        let text = exec::run(&gather.client, pod, CONTAINER, &words);
        let text = gather.limits.request(text).await;
        let what = format!("SELinux data of {node}, {file}");
        if let Some(text) = gather.folder.or_error(&what, text) {
            let path = format!("selinux_info/{}/{file}", name(node));
            gather.folder.text(&path, &text);
        }
    }
}
