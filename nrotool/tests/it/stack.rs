//! The tools on a cluster with the whole stack.

use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use api::operator::v1::NumaResourcesOperator;
use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use reports::stream::Stream;
use serde_json::{Value, json};
use suite::binaries;
use suite::recorder::Recorder;
use suite::setup::{self, ClusterSource, Options, Partial};
use tempfile::TempDir;
use testbed::embedded::{EmbeddedCluster, EmbeddedSpec};
use testbed::eventually;
use testbed::lane::Lane;

use crate::server::{Ended, finish, pod, read_all};

const WITHIN: Duration = Duration::from_mins(1);
const NAMESPACE: &str = api::names::NAMESPACE;
/// Planted in a log: none of it may be collected.
const PLANTED: &str = "hunter2-planted";

/// An embedded cluster with the stack on it.
pub(crate) struct Stack {
    pub(crate) cluster: EmbeddedCluster,
    dir: TempDir,
}

impl Stack {
    pub(crate) async fn up() -> Self {
        // the only possible error is that there is a provider already
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let bin_dir = binaries::locate(None, |_| {}).await.unwrap();
        let nodes = NodePlan::all(2, &Machine::default_profile());
        let spec = EmbeddedSpec::new("tools", dir.path(), &bin_dir, nodes);
        let cluster = EmbeddedCluster::up(spec, &|_| {}).await.unwrap();
        setup::allow(&cluster.client()).await.unwrap();
        let options = Options {
            cluster: ClusterSource::Kubeconfig(cluster.kubeconfig().into()),
            ..Options::own(Lane::Embedded, &[]).unwrap()
        };
        let stream = Stream::new(Vec::new());
        let recorder = Recorder::new(&stream, "setup");
        let mut partial = Partial::default();
        Box::pin(setup::run(&options, &recorder, &mut partial))
            .await
            .unwrap();
        Self { cluster, dir }
    }

    pub(crate) fn client(&self) -> Client {
        self.cluster.client()
    }

    async fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        let mut command = std::process::Command::new(program);
        command
            .env_clear()
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .current_dir(self.dir.path())
            .args(arguments);
        finish(command).await
    }

    pub(crate) async fn tool(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(env!("CARGO_BIN_EXE_nrotool"), arguments).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        ended
    }

    /// Runs must-gather to its end. Returns the files that it wrote.
    pub(crate) async fn gather(&self, folder: &str, arguments: &[&str]) -> Vec<(String, String)> {
        let program = env!("CARGO_BIN_EXE_numaresources-must-gather");
        let arguments = [&["--dest-dir", folder], arguments].concat();
        let ended = self.run(program, &arguments).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        read_all(&self.dir.path().join(folder))
    }

    /// Creates a pod that writes a secret into its log, ends, and is started again.
    async fn create_chatty(&self) {
        let pod = json!({
            "metadata": {"name": "chatty", "namespace": NAMESPACE},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": api::names::STACK_IMAGE, "command": ["/bin/cat", "/proc/self/environ"],
                    "env": [{"name": "DB_PASSWORD", "value": PLANTED}],
                }],
            },
        });
        let pods: Api<Pod> = Api::namespaced(self.client(), NAMESPACE);
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    async fn restarts_of_chatty(&self) -> i32 {
        let pods: Api<Pod> = Api::namespaced(self.client(), NAMESPACE);
        let status = pods.get("chatty").await.unwrap().status;
        let containers = status.and_then(|status| status.container_statuses);
        let mut containers = containers.into_iter().flatten();
        containers
            .next()
            .map_or(0, |container| container.restart_count)
    }

    /// Creates a Guaranteed pod of that size in `default`.
    pub(crate) async fn create(&self, name: &str, cpu: &str) {
        let mut pod = pod(name, cpu, None);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        pod["spec"]["containers"][0]["image"] = json!(api::names::STACK_IMAGE);
        pod["spec"]["containers"][0]["command"] = json!(["/pause"]);
        let pods: Api<Pod> = Api::namespaced(self.client(), "default");
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
}

#[tokio::test]
async fn the_tools_know_a_running_stack() {
    let stack = Stack::up().await;
    stack.create_chatty().await;
    stack.create("aligned", "4").await;
    stack.create("too-large", "40").await;
    // the pod runs, and its exporter has published where
    let picture = eventually(WITHIN, async || {
        let ended = stack.tool(&["nrt", "-o", "json"]).await;
        let picture: Value = serde_json::from_str(&ended.stdout).unwrap();
        let nodes = picture["nodes"].as_array().unwrap();
        let zones = nodes
            .iter()
            .flat_map(|node| node["zones"].as_array().unwrap());
        let holders = zones.flat_map(|zone| zone["holders"].as_array().unwrap());
        let is_there = holders.filter(|holder| holder["pod"] == "aligned").count() == 1;
        let settled = nodes.iter().all(|node| node["fingerprint"] == "matches");
        if is_there && settled {
            Ok(picture)
        } else {
            Err(ended.stdout)
        }
    })
    .await
    .unwrap();
    assert_eq!(picture["pending"][0]["name"], "too-large");
    let topologies: Api<NodeResourceTopology> = Api::all(stack.client());
    let topologies = topologies.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        picture["nodes"].as_array().unwrap().len(),
        topologies.items.len()
    );

    let features = stack.tool(&["inspectfeatures"]).await.stdout;
    let features: Value = serde_json::from_str(&features).unwrap();
    assert!(
        features["active"]
            .as_array()
            .unwrap()
            .contains(&json!("config"))
    );
    let log = stack.tool(&["schedlogs"]).await.stdout;
    assert!(
        log.starts_with("-------8<-------\n") && log.ends_with("\n-------8<-------\n"),
        "{log}"
    );
    let resources: Api<NumaResourcesOperator> = Api::all(stack.client());
    let resource = resources.get(api::names::OPERATOR_CR).await.unwrap();
    let pool = resource.spec.node_groups[0].pool_name.as_deref().unwrap();
    let map = api::names::rte_daemon_set(api::names::OPERATOR_CR, pool);
    let settings = ["catkubeletconfmap", "--wait", "1m", "--name", &map];
    let settings = stack.tool(&settings).await.stdout;
    assert!(
        settings.starts_with("TOPOLOGY_MANAGER_POLICY=single-numa-node\n"),
        "{settings}"
    );
    let validated = stack
        .tool(&[
            "nrovalidate",
            "--verbose",
            "--what",
            "k8scfg,nrt,schedcache",
        ])
        .await;
    assert_eq!(
        validated.stdout, "PASSED>>: cluster configuration looks ok!\n",
        "{validated:?}"
    );

    eventually(WITHIN, async || match stack.restarts_of_chatty().await {
        0 => Err("it was not started again".to_owned()),
        _ => Ok(()),
    })
    .await
    .unwrap();
    let files = stack.gather("gathered", &[]).await;
    let root = stack.dir.path().join("gathered");
    let names: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
    let has = |start: &str, end: &str| {
        let found = names
            .iter()
            .find(|path| path.starts_with(start) && path.ends_with(end));
        found.unwrap_or_else(|| panic!("{start}…{end} is not among {names:#?}"))
    };
    let (_, errors) = files.iter().find(|(path, _)| path == "errors.txt").unwrap();
    // the API server's proxy passes no token on, and the exporters show their metrics only to who has one
    for error in errors.lines() {
        assert!(
            error.starts_with("metrics of ") && error.ends_with(": Unauthorized"),
            "{errors}"
        );
    }
    assert_eq!(errors.lines().count(), topologies.items.len(), "{errors}");
    let pods: Api<Pod> = Api::namespaced(stack.client(), NAMESPACE);
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let pod = pod.name_any();
        has(
            &format!("namespaces/{NAMESPACE}/pods/{pod}/"),
            "/logs/current.log",
        );
    }
    let chatty = format!("namespaces/{NAMESPACE}/pods/chatty/main/main/logs/");
    for log in ["current.log", "previous.log"] {
        let path = has(&chatty, log);
        let (_, text) = files.iter().find(|(file, _)| file == path).unwrap();
        assert!(text.contains("DB_PASSWORD=REDACTED"), "{text}");
    }
    for (path, text) in &files {
        assert!(!text.contains(PLANTED), "{path}:\n{text}");
    }
    let status = format!("namespaces/{NAMESPACE}/pfpstatus");
    for node in topologies.iter().map(kube::ResourceExt::name_any) {
        has(&format!("{status}/resource-topology-exporters/{node}"), "");
        has(&format!("kubelets/{node}/configz.json"), "");
    }
    // the scheduler writes of those nodes only that it has compared
    has(&format!("{status}/scheduler/worker-"), "");
    let explained = has("explain/default/too-large", ".json");
    let (_, explained) = files.iter().find(|(path, _)| path == explained).unwrap();
    let explained: Value = serde_json::from_str(explained).unwrap();
    assert_eq!(explained["schedulable"], false);
    has("explain/default/too-large", ".txt");
    let compared = stack
        .tool(&["pfpsyncchk", "-must-gather", root.to_str().unwrap()])
        .await;
    assert!(
        compared.stdout.contains("Processing node:  "),
        "{compared:?}"
    );
}
