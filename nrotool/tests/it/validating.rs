//! `nrovalidate` on recorded objects and on kubelets that only tell their settings.

use serde_json::{Value, json};
use testbed::configz::ConfigzKubelet;
use testbed::lane::Lane;

use crate::server::{Ended, Server, node, topology};

fn tuned() -> Value {
    json!({
        "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "5s", "reservedSystemCPUs": "0", "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}], "topologyManagerPolicy": "single-numa-node",
    })
}

fn errors(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    let errors = result["errors"].as_array().unwrap().clone();
    assert_eq!(result["succeeded"], errors.is_empty());
    errors
}

#[tokio::test]
async fn a_cluster_is_validated_by_what_its_kubelets_and_exporters_say() {
    let server = Server::start_on(Lane::Embedded).await;
    let kubelet = ConfigzKubelet::start(tuned()).await.unwrap();
    server
        .record(&[node("worker-0", &kubelet.node_status())])
        .await;

    // the nodes come from a resource that is not there
    let ended = server.tool(&["nrovalidate", "--what=nrt"]).await;
    assert_eq!(ended.code, Some(2));
    assert!(
        ended
            .stderr
            .contains("cannot read NUMAResourcesOperator numaresourcesoperator"),
        "{ended:?}"
    );

    let worker = "node-role.kubernetes.io/worker";
    let ended = server
        .tool(&["nrovalidate", "--what=nrt", "--json", "--labels", worker])
        .await;
    assert_eq!(
        ended.stderr,
        "INFO>>>>: enabled validators: nrt\nINFO>>>>: inspecting nodes: worker-0\n"
    );
    assert_eq!(
        errors(&ended),
        [json!({
            "node": "", "area": "cluster", "component": "NodeResourceTopology", "setting": "installed", "expected": "true", "detected": "false",
        })]
    );
    let ended = server
        .tool(&["nrovalidate", "--what=k8scfg", "--labels", worker])
        .await;
    assert_eq!(
        ended.stdout, "PASSED>>: cluster configuration looks ok!\n",
        "{ended:?}"
    );

    let definition = api::crd::numa_resources_operator();
    server
        .define(
            &manifests::to_value(&definition),
            "numaresourcesoperators.nodetopology.openshift.io",
        )
        .await;
    let definition = api::crd::node_resource_topology();
    server
        .define(
            &manifests::to_value(&definition),
            "noderesourcetopologies.topology.node.k8s.io",
        )
        .await;
    server
        .record(&[json!({
            "apiVersion": "nodetopology.openshift.io/v1", "kind": "NUMAResourcesOperator", "metadata": {"name": "numaresourcesoperator"},
            "spec": {"nodeGroups": [{"poolName": "worker"}]},
        })])
        .await;
    let ended = server.tool(&["nrovalidate", "--what=NRT", "--json"]).await;
    assert_eq!(errors(&ended)[0]["expected"], "> 0");
    server.record(&[topology("worker-0", &[8], &[])]).await;
    let ended = server.tool(&["nrovalidate"]).await;
    assert_eq!(
        ended.stdout, "PASSED>>: cluster configuration looks ok!\n",
        "{ended:?}"
    );

    let mut settings = tuned();
    settings["topologyManagerPolicy"] = json!("restricted");
    kubelet.set(settings);
    let ended = server
        .tool(&["nrovalidate", "--verbose", "--what", "k8scfg,podst"])
        .await;
    assert_eq!(
        ended.stdout,
        "FAILED>>: cluster configuration does NOT look ok!\nERROR#000: Incorrect configuration of node \"worker-0\" area \"kubelet\" component \
         \"topology manager\" setting \"policy\": expected \"single-numa-node\" detected \"restricted\"\n"
    );
    let ended = server.tool(&["nrovalidate", "--quiet"]).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (Some(0), "", "")
    );
}
