//! The tools on a cluster with the whole stack.

use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use api::operator::v1::NumaResourcesOperator;
use apply::Applier;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use reports::stream::Stream;
use serde_json::{Value, json};
use suite::recorder::Recorder;
use suite::setup::{self, Options, Partial};
use tempfile::TempDir;
use testbed::eventually;
use testbed::lane::{Cluster, Lane};

use crate::server::{Ended, finish, pod, read_all};

pub(crate) const WITHIN: Duration = Duration::from_mins(1);
const NAMESPACE: &str = api::names::NAMESPACE;
/// Planted in a log: none of it may be collected.
const PLANTED: &str = "hunter2-planted";

/// A cluster with the stack on it.
pub(crate) struct Stack {
    pub(crate) cluster: Cluster,
    dir: TempDir,
}

impl Stack {
    /// Brings up an embedded cluster.
    pub(crate) async fn up() -> Self {
        Self::up_on(Lane::Embedded, &[]).await
    }

    /// Brings up a control plane and two workers. The flags are those of `cluster up`.
    pub(crate) async fn up_on(lane: Lane, flags: &[&str]) -> Self {
        // the only possible error is that there is a provider already
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let flags = [&["--workers", "2"], flags].concat();
        let options = Options {
            state_root: Some(dir.path().join("clusters")),
            ..Options::own(lane, &flags).unwrap()
        };
        let stream = Stream::new(Vec::new());
        let recorder = Recorder::new(&stream, "setup");
        let mut partial = Partial::default();
        Box::pin(setup::run(&options, &recorder, &mut partial))
            .await
            .unwrap();
        let cluster = partial.own.unwrap();
        Self { cluster, dir }
    }

    /// Takes the cluster down.
    pub(crate) fn down(self) {
        self.cluster.down().unwrap();
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

    /// Asserts that a collection has the metrics of every exporter, of the scheduler and of the operator.
    pub(crate) async fn assert_metrics(&self, files: &[(String, String)]) {
        let pods: Api<Pod> = Api::namespaced(self.client(), NAMESPACE);
        for (selector, number, metric) in [
            (
                "name=resource-topology",
                2,
                "rte_noderesourcetopology_writes_total",
            ),
            (
                "app=secondary-scheduler",
                1,
                "scheduler_schedule_attempts_total",
            ),
            (
                "app=numaresources-operator",
                1,
                "controller_runtime_reconcile_total",
            ),
        ] {
            let found = pods.list(&ListParams::default().labels(selector)).await;
            let found = found.unwrap().items;
            assert_eq!(found.len(), number, "{selector}");
            for pod in found {
                let path = format!("namespaces/{NAMESPACE}/pods/{}/metrics.txt", pod.name_any());
                let text = files.iter().find(|(file, _)| *file == path);
                assert!(text.is_some(), "{path} is missing");
                let (_, text) = text.unwrap();
                assert!(text.contains(metric), "{metric} is not in {path}:\n{text}");
            }
        }
    }

    /// Asserts that nothing is left of the account that read the metrics.
    pub(crate) async fn assert_no_account(&self) {
        let roles: Api<ClusterRole> = Api::all(self.client());
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client());
        let accounts: Api<ServiceAccount> = Api::all(self.client());
        let every = ListParams::default();
        let (roles, bindings, accounts) = tokio::join!(
            roles.list(&every),
            bindings.list(&every),
            accounts.list(&every)
        );
        let names = [
            roles.unwrap().iter().map(ResourceExt::name_any).collect(),
            bindings
                .unwrap()
                .iter()
                .map(ResourceExt::name_any)
                .collect(),
            accounts
                .unwrap()
                .iter()
                .map(ResourceExt::name_any)
                .collect::<Vec<_>>(),
        ];
        let left = names.concat();
        let left = left
            .iter()
            .find(|name| name.starts_with("numaresources-must-gather"));
        assert_eq!(left, None);
    }

    /// Runs must-gather with the token of an account that may look at pods and forward ports, and grant nothing. Returns what it could not collect.
    async fn gather_as_reader(&self) -> String {
        let group = "rbac.authorization.k8s.io";
        let name = "reader";
        let metadata = json!({"name": name});
        let applier = Applier::new(self.client());
        for object in [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata,
                "rules": [
                    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
                    {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
                ],
            }),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            }),
        ] {
            applier.apply(&object).await.unwrap();
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), "default");
        let params = PostParams::default();
        let request = TokenRequest::default();
        let answer = accounts.create_token_request(name, &params, &request).await;
        let token = answer.unwrap().status.unwrap().token;
        let text = fs_err::read_to_string(self.cluster.kubeconfig()).unwrap();
        let mut kubeconfig: Value = serde_yaml::from_str(&text).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": token});
        let path = self.dir.path().join("reader");
        fs_err::write(&path, kubeconfig.to_string()).unwrap();
        let arguments = ["--kubeconfig", path.to_str().unwrap()];
        let files = self.gather("as-reader", &arguments).await;
        let mut files = files.into_iter();
        files.find(|(path, _)| path == "errors.txt").unwrap().1
    }

    /// Plants secrets among the objects of the stack, and in a log.
    pub(crate) async fn plant(&self) {
        self.create_chatty().await;
        let metadata = json!({"name": "planted-secret", "namespace": NAMESPACE});
        let applier = Applier::new(self.client());
        for object in [
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"plain": PLANTED}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"token": PLANTED}}),
        ] {
            applier.apply(&object).await.unwrap();
        }
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

/// Asserts that nothing of what was planted was collected.
pub(crate) fn assert_nothing_planted(files: &[(String, String)]) {
    for (path, text) in files {
        assert!(!text.contains(PLANTED), "{path}:\n{text}");
    }
}

#[tokio::test]
async fn the_tools_know_a_running_stack() {
    let stack = Stack::up().await;
    stack.plant().await;
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
    assert_eq!(errors, "");
    stack.assert_metrics(&files).await;
    stack.assert_no_account().await;
    let errors = stack.gather_as_reader().await;
    for error in [
        "ClusterRole numaresources-must-gather-",
        "cannot be created to get one: clusterroles.rbac.authorization.k8s.io is forbidden",
    ] {
        assert!(errors.contains(error), "{error:?} is not in\n{errors}");
    }
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
    assert_nothing_planted(&files);
    let status = format!("namespaces/{NAMESPACE}/pfpstatus");
    for node in topologies.iter().map(ResourceExt::name_any) {
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
