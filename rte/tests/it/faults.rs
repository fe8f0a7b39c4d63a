//! Faults of the API server and of the kubelet's socket: the exporter publishes only complete and correct content, and recovers by itself.
//! Runs on the embedded server, with the permissions of the exporter's account.

use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use cluster_faults::socket::{SocketFault, SocketProxy};
use cluster_faults::{Disturbance, Fault, Faults, Rule, Selector, WatchEnd};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use manifests::platform::Platform;
use manifests::rte::{Options, Set};
use serde_json::{Value, json};
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;
use tokio::process::Child;

use crate::api_server::PATIENCE;
use crate::kubelet::Kubelet;
use crate::scene::{Metrics, condition, cpus, exporter, kubelet, node, pod, terminate, with_nrts};

const NAMESPACE: &str = "numaresources";
const NODE: &str = "worker-0";

/// A node that an API server knows, with a simulated kubelet.
struct Scene {
    dir: tempfile::TempDir,
    server: ApiServer,
    client: Client,
    kubelet: Kubelet,
}

impl Scene {
    async fn new() -> Self {
        let dir = node();
        let server = ApiServer::start(Lane::Embedded).await.unwrap();
        let client = server.client().await.unwrap();
        let applier = with_nrts(&client).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        create(&namespaces, json!({"metadata": {"name": NAMESPACE}})).await;
        let options = Options::new(NAMESPACE, Platform::Kubernetes, "i");
        for object in Set::new(&options, &[]).objects() {
            applier.apply(&object).await.unwrap();
        }
        create(
            &Api::<Node>::all(client.clone()),
            json!({"metadata": {"name": NODE}}),
        )
        .await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let own = json!({"metadata": {"name": "rte-x"}, "spec": {
            "nodeName": NODE, "serviceAccountName": api::names::RTE, "containers": [{"name": "rte", "image": "i"}]}});
        let own = create(&pods, own).await;
        // of the pod, because the admission policy lets an exporter write of its own node only
        let kubeconfig = server.pod_kubeconfig(NAMESPACE, api::names::RTE, &own);
        api_server::write(&kubeconfig.await.unwrap(), &dir.path().join("kubeconfig")).unwrap();
        let kubelet = kubelet();
        kubelet.serve(&dir.path().join("kubelet.sock")).await;
        Self {
            dir,
            server,
            client,
            kubelet,
        }
    }

    fn start(&self, flags: &[&str]) -> Child {
        exporter(self.dir.path(), flags).spawn().unwrap()
    }

    async fn faults(&self) -> Faults {
        self.server.faults().await.unwrap()
    }

    /// Waits until the NRT shows these available CPUs in the zones.
    async fn wait_for_cpus(&self, left: [&str; 2]) {
        let api: Api<NodeResourceTopology> = Api::all(self.client.clone());
        self.eventually(async || {
            let found = api.get_opt(NODE).await.map_err(|error| error.to_string())?;
            let nrt = json!(found.ok_or("there is none")?);
            let seen = cpus(&nrt);
            if seen == left {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    }

    /// Returns what the NRT says of the node. Its annotation of the last trigger may change without that.
    async fn content(&self) -> Value {
        let api: Api<NodeResourceTopology> = Api::all(self.client.clone());
        let nrt = api.get(NODE).await.unwrap();
        json!({"zones": nrt.zones, "attributes": nrt.attributes})
    }

    /// Waits until a condition of the exporter's pod has this status.
    async fn wait_for_condition(&self, kind: &str, status: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        self.eventually(async || {
            let pod = pods.get("rte-x").await.map_err(|error| error.to_string())?;
            let pod = json!(pod);
            match condition(&pod, kind) {
                Some(seen) if seen == status => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        })
        .await;
    }

    async fn eventually(&self, check: impl AsyncFn() -> Result<(), String>) {
        let found = testbed::eventually(PATIENCE, check).await;
        found.expect("what the check looks for comes in time");
    }

    /// Assigns CPUs to a pod and updates the pod in the API server, which triggers the watch like a kubelet's write.
    async fn assign_cpus(&self, name: &str, given: &[i64]) {
        self.kubelet.set_pods(Some(vec![pod(name, given)]));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let object = json!({"metadata": {"name": name}, "spec": {
            "nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}});
        create(&pods, object).await;
        let status = json!({"status": {"phase": "Running"}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

/// Selects requests of the exporter.
fn exporter_requests(verbs: &[&str]) -> Selector {
    let user = format!("system:serviceaccount:{NAMESPACE}:{}", api::names::RTE);
    Selector::default().user(&user).verbs(verbs)
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_writes_are_made_again_until_the_truth_is_there() {
    let scene = Scene::new().await;
    let child = scene.start(&["--sleep-interval=1s"]);
    scene.wait_for_cpus(["3", "4"]).await;
    let faults = scene.faults().await;
    let faults = faults.api().unwrap();
    let writes = Selector {
        resource: Some("noderesourcetopologies".into()),
        ..exporter_requests(&["create", "update", "patch"])
    };
    let all = [
        Fault::Conflict,
        Fault::TooManyRequests {
            retry_after_seconds: 1,
        },
        Fault::InternalError,
        Fault::Unavailable,
        Fault::Disconnect,
        Fault::LoseAnswer,
        Fault::TimeOutAfterCommit,
    ];
    for (number, fault) in all.into_iter().enumerate() {
        let rule = faults.add(Rule::new(writes.clone(), fault).times(1));
        let given: Vec<i64> = (4..=4 + number as i64 % 3).collect();
        scene.assign_cpus(&format!("p{number}"), &given).await;
        let left = (4 - given.len()).to_string();
        scene.wait_for_cpus(["3", &left]).await;
        let status = faults.remove(rule).unwrap();
        assert_eq!(status.hits, 1, "{status:?}");
    }
    terminate(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_watches_and_forgotten_history_cost_no_event() {
    let scene = Scene::new().await;
    // only events cause publications
    let child = scene.start(&["--sleep-interval=0", "--max-events-per-second=0"]);
    scene.wait_for_cpus(["3", "4"]).await;
    let faults = scene.faults().await;
    let api = faults.api().unwrap();
    for (number, how) in (1..).zip([WatchEnd::Closed, WatchEnd::Broken, WatchEnd::Expired]) {
        let select = exporter_requests(&[]);
        let end = Disturbance::EndWatches { select, how };
        scene
            .eventually(
                async || match faults.inject(&end, Duration::ZERO).await.unwrap() {
                    0 => Err("nobody watches".to_owned()),
                    _ => Ok(()),
                },
            )
            .await;
        let given: Vec<i64> = (4..4 + number).collect();
        scene.assign_cpus(&format!("p{number}"), &given).await;
        scene.wait_for_cpus(["3", &(4 - number).to_string()]).await;
    }
    // a change while the watch is refused, which is compacted away before the watch resumes
    scene
        .eventually(async || match api.open_watches(&exporter_requests(&[])) {
            0 => Err("nobody watches".to_owned()),
            _ => Ok(()),
        })
        .await;
    let refused_watches = api.add(Rule::new(exporter_requests(&["watch"]), Fault::Unavailable));
    api.end_watches(&exporter_requests(&[]), WatchEnd::Broken);
    scene.assign_cpus("forgotten", &[4, 5, 6, 7]).await;
    let struck = tokio::time::timeout(PATIENCE, api.wait_for_hits(refused_watches, 1)).await;
    struck.expect("it watches again");
    api.compact();
    api.remove(refused_watches);
    scene.wait_for_cpus(["3", "0"]).await;
    terminate(child).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_socket_is_told_counted_and_never_published() {
    let scene = Scene::new().await;
    let proxy = SocketProxy::insert(&scene.dir.path().join("kubelet.sock")).unwrap();
    let metrics = Metrics::claim();
    let [mode, address, port] = metrics.flags();
    let child = scene.start(&["--sleep-interval=200ms", &mode, &address, &port]);
    scene.wait_for_cpus(["3", "4"]).await;
    scene
        .wait_for_condition("PodresourcesFetched", "True")
        .await;
    let mut failures = 0;
    for (number, fault) in (1..).zip([
        SocketFault::Garbage,
        SocketFault::Refuses,
        SocketFault::Hangs,
    ]) {
        let affected = proxy.affected();
        proxy.set(Some(fault));
        // until then the open connection may still get an answer
        scene
            .eventually(async || match proxy.affected() {
                now if now > affected => Ok(()),
                _ => Err(format!("no connection met {fault:?}")),
            })
            .await;
        let before = scene.content().await;
        // no successful answer shows this change
        let given: Vec<i64> = (4..4 + number).collect();
        scene.assign_cpus(&format!("p{number}"), &given).await;
        scene
            .wait_for_condition("PodresourcesFetched", "False")
            .await;
        assert_eq!(
            scene.content().await,
            before,
            "{fault:?}: half a state was published"
        );
        let counted = call_failures(&metrics).await;
        assert!(counted > failures, "{fault:?} is not counted");
        failures = counted;
        proxy.set(None);
        scene.wait_for_cpus(["3", &(4 - number).to_string()]).await;
        scene
            .wait_for_condition("PodresourcesFetched", "True")
            .await;
    }
    assert!(proxy.affected() >= 3);
    terminate(child).await;
}

/// Returns the exporter's count of failed calls to the kubelet.
async fn call_failures(metrics: &Metrics) -> u64 {
    let text = metrics.ask("/metrics").await;
    let lines = text.lines();
    lines
        .filter(|line| line.starts_with(api::metrics::POD_RESOURCES_FAILURES))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}
