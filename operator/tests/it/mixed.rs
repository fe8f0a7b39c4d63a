//! Plain Kubernetes, where the kubelets report their own settings. Runs on the embedded server, which can reach simulated kubelets.

use api::operator::v1::NumaResourcesOperator;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use testbed::configz::ConfigzKubelet;
use testbed::lane::Lane;

use crate::cluster::Cluster;
use crate::exporters::{CR, DS_A, conditions, cr};
use crate::installation::simulate_controllers;

fn policy(policy: &str) -> Value {
    json!({"topologyManagerPolicy": policy, "topologyManagerScope": "container", "maxPods": 110})
}

/// Reports a restarted kubelet in the status of its node.
async fn report_restart(cluster: &Cluster, node: &str, kubelet: &ConfigzKubelet, boot: &str) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mut status = kubelet.node_status();
    status["nodeInfo"] = json!({"bootID": boot, "architecture": "", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""});
    cluster.report(&nodes, node, status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_of_unlike_kubelets_is_served_and_degraded_until_they_are_alike() {
    let cluster = Cluster::start_with(Lane::Embedded, None).await;
    let aligned = ConfigzKubelet::start(policy("single-numa-node"))
        .await
        .unwrap();
    let other = ConfigzKubelet::start(policy("restricted")).await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for name in ["worker-2", "worker-3"] {
        let labels = json!({"node-role.kubernetes.io/numa-a": ""});
        let node = json!({"metadata": {"name": name, "labels": labels}});
        let node = serde_json::from_value(node).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    report_restart(&cluster, "worker-0", &aligned, "1").await;
    report_restart(&cluster, "worker-2", &other, "1").await;
    report_restart(&cluster, "worker-3", &aligned, "1").await;
    let crs: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
    let spec = json!({"nodeGroups": [{"poolName": "numa-a"}]});
    crs.create(&PostParams::default(), &cr(&spec))
        .await
        .unwrap();
    tokio::spawn(simulate_controllers(cluster.client.clone()));
    let message = "kubelets of the pool \"numa-a\" have different settings: \
                   worker-2 (topologyManagerPolicy \"restricted\" instead of \"single-numa-node\")";
    let mixed = ("Degraded", "MixedKubeletSettings", message);
    let live = cluster.condition(&crs, CR, conditions, mixed).await;
    assert_eq!(live.status.unwrap().daemonsets.len(), 1, "it is served");
    let maps: Api<ConfigMap> = cluster.namespaced();
    let config_text = |map: ConfigMap| map.data.unwrap()["config.yaml"].clone();
    let map = config_text(maps.get(DS_A).await.unwrap());
    assert!(map.contains("single-numa-node"), "{map}");

    // a kubelet that no longer answers counts with its last settings
    drop(other);
    aligned
        .set(json!({"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}));
    report_restart(&cluster, "worker-3", &aligned, "2").await;
    let message = "worker-2 (topologyManagerPolicy \"restricted\" instead of \"single-numa-node\", \
                   topologyManagerScope \"container\" instead of \"pod\")";
    let message = format!("kubelets of the pool \"numa-a\" have different settings: {message}");
    let mixed = ("Degraded", "MixedKubeletSettings", message.as_str());
    cluster.condition(&crs, CR, conditions, mixed).await;

    // all equal again, with other settings than before
    let other = ConfigzKubelet::start(policy("best-effort")).await.unwrap();
    aligned.set(policy("best-effort"));
    report_restart(&cluster, "worker-2", &other, "2").await;
    cluster
        .eventually(|| async {
            let map = config_text(maps.get(DS_A).await.unwrap());
            if map.contains("best-effort") {
                Ok(())
            } else {
                Err(map)
            }
        })
        .await;
    let available = ("Available", "Available", "");
    cluster.condition(&crs, CR, conditions, available).await;
}
