//! The settings of kubelets reach the exporters through ConfigMaps.

use api::openshift::machine_config::KubeletConfig;
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use super::{OpenShift, groups, paused};
use crate::cluster::Cluster;
use crate::exporters::{DS_A, DS_B};

fn file(map: &ConfigMap) -> String {
    map.data.as_ref().unwrap()["config.yaml"].clone()
}

/// Waits until the pool's ConfigMap has that text.
async fn map_has(cluster: &Cluster, maps: &Api<ConfigMap>, name: &str, text: &str) -> ConfigMap {
    cluster
        .eventually(|| async {
            let map = maps.get_opt(name).await.unwrap();
            match map {
                Some(map) if file(&map) == text => Ok(map),
                other => Err(format!("{:?}", other.as_ref().map(file))),
            }
        })
        .await
}

async fn map_goes(cluster: &Cluster, maps: &Api<ConfigMap>, name: &str) {
    cluster
        .eventually(|| async {
            match maps.get_opt(name).await.unwrap() {
                Some(map) => Err(file(&map)),
                None => Ok(()),
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_config_of_a_pool_reaches_its_exporters() {
    let openshift = OpenShift::start(Flavour::Openshift, &groups()).await;
    openshift.becomes_available().await;
    let (cluster, maps) = (&openshift.cluster, openshift.cluster.namespaced());
    openshift
        .pods_carry(DS_A, "configmap.hash", str::is_empty)
        .await;
    let configs: Api<KubeletConfig> = Api::all(cluster.client.clone());
    let config = |name: &str, pool: &str, payload: Value| -> KubeletConfig {
        let label = format!("pools.operator.machineconfiguration.openshift.io/{pool}");
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {label: ""}}, "kubeletConfig": payload},
        }))
        .unwrap()
    };
    let aligned = config(
        "aligned",
        "numa-a",
        json!({"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod", "maxPods": 7}),
    );
    let params = PostParams::default();
    configs.create(&params, &aligned).await.unwrap();
    let text = "kubelet:\n  topologyManagerPolicy: single-numa-node\n  topologyManagerScope: pod\n";
    let map = map_has(cluster, &maps, DS_A, text).await;
    let owner = &map.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.controller),
        ("KubeletConfig", "aligned", Some(true))
    );
    assert_eq!(
        map.labels()["nodegroup.nodetopology.openshift.io/machineconfigpool"],
        "numa-a"
    );
    // the pods of this pool get a rollout, those of the other pool do not
    let hash = openshift
        .pods_carry(DS_A, "configmap.hash", |hash| hash.starts_with("SHA256:"))
        .await;
    openshift
        .pods_carry(DS_B, "configmap.hash", str::is_empty)
        .await;

    // the file follows edits of the configuration, and of the excluded pods
    let scope = json!({"spec": {"kubeletConfig": {"topologyManagerScope": "container"}}});
    cluster.merge(&configs, "aligned", scope).await;
    let text = text.replace("pod", "container");
    map_has(cluster, &maps, DS_A, &text).await;
    openshift
        .pods_carry(DS_A, "configmap.hash", |new| !new.is_empty() && new != hash)
        .await;
    openshift
        .edit(json!({"podExcludes": [{"namespace": "ns", "name": "a-*"}]}))
        .await;
    let text = format!("{text}podExclude:\n- namePattern: a-*\n  namespacePattern: ns\n");
    map_has(cluster, &maps, DS_A, &text).await;

    // changes by others are reverted
    let wrong = json!({"data": {"config.yaml": "kubelet: {}\n"}});
    cluster.merge(&maps, DS_A, wrong).await;
    map_has(cluster, &maps, DS_A, &text).await;
    maps.delete(DS_A, &DeleteParams::default()).await.unwrap();
    map_has(cluster, &maps, DS_A, &text).await;

    // without the object the settings are unknown
    configs
        .delete("aligned", &DeleteParams::default())
        .await
        .unwrap();
    map_goes(cluster, &maps, DS_A).await;
    openshift
        .pods_carry(DS_A, "configmap.hash", str::is_empty)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosted_pools_are_selected_by_label_and_configured_by_config_maps() {
    let spec = json!({"nodeGroups": [{"poolName": "numa-a"}, {"poolName": "numa-b"}]});
    let openshift = OpenShift::start(Flavour::Hypershift, &spec).await;
    let live = openshift.becomes_available().await;
    assert_eq!(paused(&live), ("Unknown".to_owned(), String::new()));
    assert!(live.status.unwrap().machineconfigpools.is_empty());
    let set = openshift.sets.get(DS_A).await.unwrap();
    let pods = set.spec.unwrap().template.spec.unwrap();
    let label = (
        "hypershift.openshift.io/nodePool".to_owned(),
        "numa-a".to_owned(),
    );
    assert_eq!(pods.node_selector.unwrap(), [label].into());

    let cluster = &openshift.cluster;
    let (maps, sources): (Api<ConfigMap>, Api<ConfigMap>) = (
        cluster.namespaced(),
        Api::namespaced(cluster.client.clone(), "openshift-config-managed"),
    );
    let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: aligned}\n\
                spec: {kubeletConfig: {topologyManagerPolicy: restricted}}\n";
    let source = json!({
        "metadata": {"name": "aligned-numa-a", "labels": {
            "hypershift.openshift.io/kubeletconfig-config": "true",
            "hypershift.openshift.io/nodePool": "numa-a",
        }},
        "data": {"config": text},
    });
    sources
        .create(
            &PostParams::default(),
            &serde_json::from_value(source).unwrap(),
        )
        .await
        .unwrap();
    let wanted = "kubelet:\n  topologyManagerPolicy: restricted\n";
    let map = map_has(cluster, &maps, DS_A, wanted).await;
    assert!(map.owner_references().is_empty());
    openshift
        .pods_carry(DS_A, "configmap.hash", |hash| hash.starts_with("SHA256:"))
        .await;
    let text = text.replace("restricted", "best-effort");
    cluster
        .merge(
            &sources,
            "aligned-numa-a",
            json!({"data": {"config": text}}),
        )
        .await;
    let wanted = "kubelet:\n  topologyManagerPolicy: best-effort\n";
    map_has(cluster, &maps, DS_A, wanted).await;
    sources
        .delete("aligned-numa-a", &DeleteParams::default())
        .await
        .unwrap();
    map_goes(cluster, &maps, DS_A).await;

    openshift.edit(groups()).await;
    openshift
        .reports(
            "Degraded",
            "ValidationErrorUnderNodeGroups",
            "node group 0 specifies MachineConfigPoolSelector on Hypershift platform; Should specify PoolName only",
        )
        .await;
}
