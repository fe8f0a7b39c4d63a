//! `kubectl describe` and `kubectl explain`.

use cluster_spec::kubernetes::KUBERNETES_VERSION;
use serde_json::json;

use super::harness::{TestCluster, deployment};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn descriptions_tell_what_is_there_and_what_happened() {
    let cluster = TestCluster::up(1).await;
    let mut web = deployment("web", 2);
    web["spec"]["template"]["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": "2", "memory": "64Mi"}});
    cluster.apply(&web).await;
    cluster
        .ok(&["rollout", "status", "deployment/web", "--timeout=50s"])
        .await;

    let has = |text: &str, lines: &[&str]| {
        let squeezed: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for wanted in lines {
            assert!(
                squeezed.iter().any(|line| line.starts_with(wanted)),
                "no {wanted:?} in {text}"
            );
        }
    };
    let described = cluster.ok(&["describe", "deployment/web"]).await;
    has(
        &described,
        &[
            "Replicas: 2 desired | 2 updated | 2 total | 2 available | 0 unavailable",
            "StrategyType: RollingUpdate",
            "Available True MinimumReplicasAvailable",
            "Progressing True NewReplicaSetAvailable",
            "OldReplicaSets: <none>",
            "NewReplicaSet: web-",
            "Normal ScalingReplicaSet",
        ],
    );
    let pod = cluster
        .ok(&["get", "pods", "-l", "app=web", "-o", "name"])
        .await;
    let described = cluster.ok(&["describe", pod.lines().next().unwrap()]).await;
    has(
        &described,
        &[
            "Node: worker-0/127.",
            "Status: Running",
            "Controlled By: ReplicaSet/web-",
            "State: Running",
            "Ready True",
            "QoS Class: Guaranteed",
            "Normal Scheduled",
            "Normal Started",
        ],
    );
    let described = cluster.ok(&["describe", "node", "worker-0"]).await;
    has(
        &described,
        &[
            "Roles: numa-container,worker",
            "Unschedulable: false",
            "HolderIdentity: worker-0",
            "Ready True",
            "InternalIP: 127.",
            "example.com/deviceA: 10",
            &format!("Kubelet Version: {KUBERNETES_VERSION}"),
            "Non-terminated Pods: (2 in total)",
            "default web-",
            "cpu 4 (9%) 4 (9%)",
            "memory 128Mi (0%) 128Mi (0%)",
            "Normal NodeReady",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: kubectl"]
async fn explain_knows_the_fields_of_built_in_and_custom_kinds() {
    let cluster = TestCluster::up(1).await;
    let explained = cluster
        .ok(&["explain", "pod.spec.containers.resources"])
        .await;
    assert!(
        explained.starts_with(
            "KIND:       Pod\nVERSION:    v1\n\nFIELD: resources <ResourceRequirements>\n"
        ),
        "{explained}"
    );
    for field in [
        "  claims\t<[]ResourceClaim>",
        "  limits\t<map[string]Quantity>",
    ] {
        assert!(explained.contains(field), "{explained}");
    }
    let explained = cluster.ok(&["explain", "deployment", "--recursive"]).await;
    assert!(
        explained.starts_with("GROUP:      apps\nKIND:       Deployment\nVERSION:    v1\n"),
        "{explained}"
    );
    assert!(
        explained.contains("maxUnavailable\t<IntOrString>"),
        "{explained}"
    );
    let refused = cluster.refused(&["explain", "pod.spec.nothing"]).await;
    assert_eq!(refused, "error: field \"nothing\" does not exist\n");

    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "description": "What is wanted.", "required": ["size"],
        "properties": {"size": {"type": "integer", "description": "How many."}},
    }}});
    cluster
        .apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "gadgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }))
        .await;
    cluster
        .ok(&[
            "wait",
            "--for=condition=Established",
            "crd/gadgets.example.com",
            "--timeout=30s",
        ])
        .await;
    let explained = cluster
        .eventually(&["explain", "gadgets.spec"], |_| true)
        .await;
    assert!(
        explained.starts_with(
            "GROUP:      example.com\nKIND:       Gadget\nVERSION:    v1\n\nFIELD: spec <Object>\n"
        ),
        "{explained}"
    );
    assert!(
        explained.contains("  size\t<integer> -required-\n    How many.\n"),
        "{explained}"
    );
}
