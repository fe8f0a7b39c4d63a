//! The tools on an API server that is an OpenShift.

use cluster_spec::flavour::Flavour;
use rstest::rstest;
use serde_json::{Value, json};

use crate::server::{Server, node};

/// Settings in which only the period of the CPU manager is missing.
fn settings() -> Value {
    json!({
        "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0}],
        "topologyManagerPolicy": "single-numa-node",
    })
}

/// The object that has the settings of the workers.
fn configuration(flavour: Flavour, name: &str) -> Value {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig", "metadata": {"name": name},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}},
            "kubeletConfig": settings(),
        },
    });
    match flavour {
        Flavour::Openshift => config,
        Flavour::Hypershift => json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("kubeletconfig-{name}"), "namespace": "openshift-config-managed",
                "labels": {"hypershift.openshift.io/kubeletconfig-config": "true", "hypershift.openshift.io/nodePool": "worker"},
            },
            "data": {"config": config.to_string()},
        }),
    }
}

#[rstest]
#[case::openshift(Flavour::Openshift, "OpenShift")]
#[case::hypershift(Flavour::Hypershift, "HyperShift")]
#[tokio::test]
async fn settings_are_those_of_the_platforms_own_objects(
    #[case] flavour: Flavour,
    #[case] platform: &str,
) {
    let server = Server::start().await.with_definitions().await;
    openshift::install(&server.client, flavour, openshift::VERSION, &["worker"])
        .await
        .unwrap();
    let ended = server.tool(&["lsplatform"]).await;
    assert_eq!(ended.stdout, format!("{platform}\n"), "{ended:?}");

    let mut worker = node("worker-0", &json!({}));
    worker["metadata"]["labels"]["hypershift.openshift.io/nodePool"] = json!("worker");
    server
        .record(&[
            worker,
            json!({
                "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "metadata": {"name": "numaresourcesoperator"},
                "spec": {"nodeGroups": [{"poolName": "worker"}]},
            }),
        ])
        .await;
    let validate = async || {
        server
            .tool(&["nrovalidate", "--what=k8scfg", "--json"])
            .await
    };
    let ended = validate().await;
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        result["errors"],
        json!([{
            "node": "worker-0", "area": "kubelet", "component": "configuration", "setting": "", "expected": "any value", "detected": "no configuration",
        }]),
        "{ended:?}"
    );
    server.record(&[configuration(flavour, "one")]).await;
    let result: Value = serde_json::from_str(&validate().await.stdout).unwrap();
    assert_eq!(result["errors"].as_array().unwrap().len(), 1, "{result}");
    assert_eq!(result["errors"][0]["detected"], "0s");

    let exporter = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "rte-x", "namespace": "default", "labels": {"name": "resource-topology"}},
        "spec": {"nodeName": "worker-0", "containers": [{"name": "main", "image": "x"}]}, "status": {"phase": "Running"},
    });
    server.record(&[exporter]).await;
    let (ended, root) = server.gather("gathered", &[]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // the files of a node are asked for where the platform has a pod that reaches them; no kubelet answers here
    let errors = fs_err::read_to_string(root.join("errors.txt")).unwrap();
    let about: Vec<&str> = errors
        .lines()
        .filter(|line| line.starts_with("SELinux data of worker-0"))
        .collect();
    match flavour {
        Flavour::Openshift => {
            assert_eq!(about.len(), 1, "{errors}");
            assert!(
                about[0].contains("no pod k8s-app=machine-config-daemon runs there"),
                "{errors}"
            );
        }
        Flavour::Hypershift => assert!(about.is_empty(), "{errors}"),
    }
    let collected = match flavour {
        Flavour::Openshift => {
            "cluster-scoped-resources/machineconfiguration.openshift.io/machineconfigpools/worker.yaml"
        }
        Flavour::Hypershift => {
            "namespaces/openshift-config-managed/core/configmaps/kubeletconfig-one.yaml"
        }
    };
    assert!(root.join(collected).is_file(), "{collected}");

    server.record(&[configuration(flavour, "two")]).await;
    let ended = validate().await;
    assert_eq!(
        ended.code,
        Some(2),
        "two configurations of one node: {ended:?}"
    );
}
