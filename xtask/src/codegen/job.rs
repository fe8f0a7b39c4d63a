//! `config/tests/`: the suite as a Job in the cluster that it tests.

use api::names;
use serde_json::{Value, json};

use super::{File, kustomize};

/// Name of the namespace and of all objects.
const NAME: &str = "numaresources-tests";
/// Directory of the reports, which the containers share.
const ARTIFACTS: &str = "/artifacts";
/// The JUnit report.
const REPORT: &str = "/artifacts/junit.xml";
/// Longer than a run needs to undo what it changed after it was told to stop.
const GRACE_SECONDS: u64 = 300;

/// Renders the files.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let job = "job.yaml";
    Ok(vec![
        kustomize::kustomization("tests/", "Kustomization", &[job])?,
        File::yaml(format!("tests/{job}"), &objects(names::TESTS_IMAGE))?,
    ])
}

/// Returns the objects. The image of the tests has the stack's programs, too, so it stands for all images.
pub(super) fn objects(image: &str) -> Vec<Value> {
    let metadata = || json!({"name": NAME, "namespace": NAME});
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata()}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            // who installs the stack creates roles, and so needs all rights that these have and the right to give them away
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAME}],
        }),
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata(),
            "spec": {
                // a second run would start from what a failed one left
                "backoffLimit": 0,
                "template": {"metadata": {"labels": {"app": NAME}}, "spec": pod(image)},
            },
        }),
    ]
}

fn pod(image: &str) -> Value {
    let container = |name: &str, arguments: &[&str]| {
        json!({
            "name": name,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "args": arguments,
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
            "volumeMounts": [{"name": "artifacts", "mountPath": ARTIFACTS}],
        })
    };
    // ends after the tests, and has their report in its log, which stays
    let mut junit = container("junit", &["sidecar", REPORT]);
    junit["restartPolicy"] = json!("Always");
    let mut tests = container(
        "tests",
        &[
            "--cluster",
            "kubeconfig",
            "--setup",
            "--label",
            "tier0",
            "--artifacts",
            ARTIFACTS,
            "--report-file",
            REPORT,
        ],
    );
    tests["env"] = ["NUMARESOURCES_STACK_IMAGE", "NUMARESOURCES_TESTS_IMAGE"]
        .map(|name| json!({"name": name, "value": image}))
        .into();
    let control_plane = json!([{"key": api::labels::CONTROL_PLANE, "operator": "Exists"}]);
    json!({
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        // scenarios fill workers and taint them
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": control_plane}},
        ]}},
        "initContainers": [junit],
        "containers": [tests],
        "volumes": [{"name": "artifacts", "emptyDir": {}}],
    })
}
