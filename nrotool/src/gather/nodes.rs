//! What each node says: the settings of its kubelet, and the picture of its zones.

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::Api;

use super::Gather;
use super::folder::name;
use crate::cluster;
use crate::nrt::observe;
use crate::nrt::picture::{FORMAT, Picture};

/// Number of kubelets that are asked at a time.
const CONCURRENT: usize = 8;

/// Collects from all nodes.
pub(super) async fn collect(gather: &Gather) {
    let nodes: Api<Node> = Api::all(gather.client.clone());
    let listed = gather.limits.request(cluster::list(&nodes, "")).await;
    let nodes = gather.folder.or_error("kubelets", listed);
    stream::iter(nodes.unwrap_or_default())
        .for_each_concurrent(CONCURRENT, |node| async move {
            let node = node.name_any();
            let answer = gather
                .limits
                .request(cluster::configz(&gather.client, &node))
                .await;
            let what = format!("settings of the kubelet of {node}");
            if let Some(answer) = gather.folder.or_error(&what, answer) {
                let path = format!("kubelets/{}/configz.json", name(&node));
                gather.folder.json(&path, &answer);
            }
        })
        .await;
    let snapshot = gather.limits.request(observe::look(&gather.client)).await;
    let Some(snapshot) = gather.folder.or_error("picture of the zones", snapshot) else {
        return;
    };
    let Some(picture) = gather
        .folder
        .or_error("picture of the zones", Picture::new(&snapshot, &[]))
    else {
        return;
    };
    gather.folder.text("nrt.txt", &crate::nrt::plain(&picture));
    match serde_json::to_value(&picture) {
        Ok(value) => gather.folder.json("nrt.json", &value),
        Err(error) => gather.folder.failed(FORMAT, &error),
    }
}
