//! The pod network of nodes with containerd: addresses, Services, network policies, and the streams of the API.

use std::time::Duration;

use api::names::TESTS_IMAGE;
use cri_runtime::control::Target;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, DeleteParams, LogParams, PostParams};
use local_cluster::{LocalCluster, NodeHandle};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::eventually;

/// Longer than a pod needs to start, or rules need to follow.
pub(super) const LIMIT: Duration = Duration::from_mins(1);
const KUBECTL: &str = "/usr/local/bin/kubectl";
const SERVER_PORT: u16 = 8001;
const SERVICE_PORT: &str = "80";

/// Checks what pods reach and what reaches pods, and leaves the cluster as it was.
pub(super) async fn answers(cluster: &LocalCluster) {
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let node = |name| cluster.node(name).expect("a node of the cluster");
    let (here, there) = (node("worker-0"), node("worker-1"));
    create(&pods, "caller", here, &["/bin/sleep", "infinity"]).await;
    let server = [KUBECTL, "proxy", "--address=0.0.0.0"];
    create(&pods, "server", there, &server).await;
    let caller = Caller(here, Target::new("default", "caller", "main"));
    let own = Caller(there, Target::new("default", "server", "main"));
    runs(&pods, "caller").await;
    let address = runs(&pods, "server").await;
    caller
        .connects(true, &address, &SERVER_PORT.to_string())
        .await;

    let services = Api::<Service>::default_namespaced(cluster.client());
    let service = json!({"metadata": {"name": "server"}, "spec": {
        "selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": SERVER_PORT}],
    }});
    let service = serde_json::from_value(service).expect("a Service");
    let service = services.create(&PostParams::default(), &service).await;
    let ip = service.expect("the Service is accepted").spec;
    let ip = ip
        .and_then(|spec| spec.cluster_ip)
        .expect("it has a ClusterIP");
    caller.connects(true, &ip, SERVICE_PORT).await;
    // a pod may be its own server
    own.connects(true, &ip, SERVICE_PORT).await;

    policies_see_the_pod_behind_a_service(cluster, &caller, &ip).await;
    streams_reach_the_pod(&pods, "server").await;

    delete(&pods, "server").await;
    caller.connects(false, &ip, SERVICE_PORT).await;
    create(&pods, "server", here, &server).await;
    runs(&pods, "server").await;
    caller.connects(true, &ip, SERVICE_PORT).await;

    let deleted = services.delete("server", &DeleteParams::default()).await;
    deleted.expect("the Service is deleted");
    caller.connects(false, &ip, SERVICE_PORT).await;
    for name in ["caller", "server"] {
        delete(&pods, name).await;
    }
}

/// The address of a Service is translated before policies apply: a policy that lets a pod out to the pods behind it lets it out to the Service.
async fn policies_see_the_pod_behind_a_service(
    cluster: &LocalCluster,
    caller: &Caller<'_>,
    service: &str,
) {
    let api_server = cluster_spec::subnet::KUBERNETES_SERVICE.to_string();
    caller.connects(true, &api_server, "443").await;
    let policies = Api::<NetworkPolicy>::default_namespaced(cluster.client());
    let policy = json!({"metadata": {"name": "caller"}, "spec": {
        "podSelector": {"matchLabels": {"app": "caller"}}, "policyTypes": ["Egress"],
        "egress": [{
            "to": [{"podSelector": {"matchLabels": {"app": "server"}}}],
            "ports": [{"port": SERVER_PORT}],
        }],
    }});
    let policy = serde_json::from_value(policy).expect("a NetworkPolicy");
    let created = policies.create(&PostParams::default(), &policy).await;
    created.expect("the policy is accepted");
    caller.connects(false, &api_server, "443").await;
    caller.connects(true, service, SERVICE_PORT).await;
    let deleted = policies.delete("caller", &DeleteParams::default()).await;
    deleted.expect("the policy is deleted");
    caller.connects(true, &api_server, "443").await;
}

/// Checks port-forward and logs; exec is what the scenarios of policies use.
async fn streams_reach_the_pod(pods: &Api<Pod>, name: &str) {
    let mut forwarder = pods
        .portforward(name, &[SERVER_PORT])
        .await
        .expect("port-forward");
    let mut stream = forwarder.take_stream(SERVER_PORT).expect("a stream");
    let request = b"GET /version HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream
        .write_all(request)
        .await
        .expect("the request is sent");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("the server answers");
    assert!(answer.contains("\"gitVersion\""), "{answer}");
    let log = pods.logs(name, &LogParams::default()).await;
    let log = log.expect("the log is there");
    assert!(log.contains("Starting to serve"), "{log}");
}

/// A container that opens connections.
struct Caller<'a>(&'a NodeHandle, Target);

impl Caller<'_> {
    /// Waits until connections to a place open or do not open.
    async fn connects(&self, expected: bool, host: &str, port: &str) {
        let what = format!("{} reaches {host}:{port}: {expected}", self.1);
        eventually(&what, LIMIT, async || {
            let (runtime, target) = (self.0.runtime(), &self.1);
            let output = runtime.exec(target, &["/bin/connect", host, port, "1"], LIMIT);
            let output = output.map_err(|error| error.to_string())?;
            if (output.exit_code == 0) == expected {
                return Ok(());
            }
            Err(format!("{output:?}"))
        })
        .await;
    }
}

async fn create(pods: &Api<Pod>, name: &str, node: &NodeHandle, command: &[&str]) {
    let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "nodeName": node.name(), "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": TESTS_IMAGE, "command": command}],
    }});
    let pod = serde_json::from_value(pod).expect("a pod");
    let created = pods.create(&PostParams::default(), &pod).await;
    created.expect("the pod is accepted");
}

/// Waits until a pod runs; returns its address.
async fn runs(pods: &Api<Pod>, name: &str) -> String {
    eventually(&format!("{name} runs"), LIMIT, async || {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.unwrap_or_default();
        match (&status.pod_ip, status.phase.as_deref()) {
            (Some(address), Some("Running")) => Ok(address.clone()),
            _ => Err(format!("{status:?}")),
        }
    })
    .await
}

pub(super) async fn delete(pods: &Api<Pod>, name: &str) {
    let deleted = pods.delete(name, &DeleteParams::default()).await;
    deleted.expect("the pod is deleted");
    eventually(&format!("{name} is gone"), LIMIT, async || {
        match pods.get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(pod)) => Err(format!("{:?}", pod.status)),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}
