//! A node on an API server of its own.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use apiserver::{Options, Running, Server, User};
use base64::Engine as _;
use cluster_spec::kubelet::{KubeletSettings, TopologyScope};
use cluster_spec::plan::NodePlan;
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use programs::kubernetes::{self, SearchPath};
use serde_json::{Value, json};
use sim::node::{Block, NodeOptions, SimulatedNode};
use tokio::io::AsyncWriteExt as _;

const TOKEN: &str = "token-of-the-node";
/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Awaits work that has to end in time.
pub(super) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect(what)
}

/// An API server with a node, and the directory of its files.
pub(super) struct TestNode {
    client: kube::Client,
    pub(super) node: SimulatedNode,
    pub(super) server: Running,
    _block: Block,
    dir: tempfile::TempDir,
}

async fn config(server: &Running, token: &str) -> kube::Config {
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(token)).unwrap();
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap()
}

fn bin_dir() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_numaresources-testbed"));
    program.parent().unwrap().to_owned()
}

impl TestNode {
    /// Starts a ready worker with the default machine.
    pub(super) async fn up() -> Self {
        Self::up_with(KubeletSettings::with_scope(TopologyScope::Container)).await
    }

    /// Starts a ready worker with the default machine and these kubelet settings.
    pub(super) async fn up_with(settings: KubeletSettings) -> Self {
        let user = User {
            name: "system:node:worker-0".into(),
            groups: ["system:nodes", "system:authenticated"]
                .map(Into::into)
                .into(),
            ..User::default()
        };
        let server = Server::start(Options {
            tokens: HashMap::from([(TOKEN.to_owned(), user)]),
            proxies_to_loopback: true,
            ..Options::default()
        })
        .await
        .unwrap();
        let config_of_admin = config(&server, &server.admin_token).await;
        let client = kube::Client::try_from(config_of_admin).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let block = Block::claim().unwrap();
        let mut plan = NodePlan::worker(0, TopologyScope::Container, &Machine::default_profile());
        plan.kubelet = settings;
        let node = SimulatedNode::start(NodeOptions {
            config: config(&server, TOKEN).await,
            administrator: client.clone(),
            plan,
            dir: dir.path().join("worker-0"),
            hardware: dir.path().join("hardware"),
            bin_dir: bin_dir(),
            addresses: block.node(0),
            host_path_overrides: BTreeMap::default(),
        })
        .await
        .unwrap();
        node.ready().await.unwrap();
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::default_namespaced(client.clone());
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        // The account may exist already.
        let _ = accounts.create(&PostParams::default(), &account).await;
        Self {
            client,
            node,
            server,
            _block: block,
            dir,
        }
    }

    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Runs kubectl with the administrator's rights; returns standard output, standard error, and whether it succeeded.
    pub(super) async fn kubectl(&self, arguments: &[&str], input: &str) -> (String, String, bool) {
        let kubeconfig = self.dir.path().join("kubeconfig");
        let text = self.server.kubeconfig(&self.server.admin_token);
        fs_err::write(&kubeconfig, text).unwrap();
        let assets = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
        let mut child = tokio::process::Command::new(&assets.kubectl)
            .args(arguments)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let output = ended.expect("kubectl hangs").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            text(output.stdout),
            text(output.stderr),
            output.status.success(),
        )
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client())
    }

    /// Creates a pod on the node; containers without an image get that of the stack.
    pub(super) async fn create(&self, mut pod: Value) {
        pod["spec"]["nodeName"] = json!("worker-0");
        if pod["spec"].get("automountServiceAccountToken").is_none() {
            pod["spec"]["automountServiceAccountToken"] = json!(false);
        }
        for list in ["containers", "initContainers"] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                if container.get("image").is_none() {
                    container["image"] = json!(api::names::STACK_IMAGE);
                }
            }
        }
        let pod = serde_json::from_value(pod).unwrap();
        self.pods()
            .create(&PostParams::default(), &pod)
            .await
            .unwrap();
    }

    /// Waits until a pod satisfies a condition.
    pub(super) async fn until(&self, name: &str, what: &str, is_so: impl Fn(&Pod) -> bool) -> Pod {
        let found = testbed::eventually(PATIENCE, async || {
            let pod = self.pods().get(name).await.unwrap();
            if is_so(&pod) {
                return Ok(pod);
            }
            let status = serde_json::to_string_pretty(&pod.status).unwrap();
            Err(format!("{name} never {what}: {status}"))
        });
        found.await.unwrap()
    }

    /// Waits until a pod's object is gone.
    pub(super) async fn until_gone(&self, name: &str) {
        let gone = testbed::eventually(PATIENCE, async || {
            match self.pods().get_opt(name).await.unwrap() {
                Some(pod) => Err(format!("{name} stays: {pod:?}")),
                None => Ok(()),
            }
        });
        gone.await.unwrap();
    }

    /// Waits for an event.
    pub(super) async fn event(&self, reason: &str, message: &str) {
        let api: Api<Event> = Api::default_namespaced(self.client());
        let written = testbed::eventually(PATIENCE, async || {
            let list = api.list(&ListParams::default()).await.unwrap();
            let is_there = list.items.iter().any(|event| {
                event.reason.as_deref() == Some(reason) && event.message.as_deref() == Some(message)
            });
            if is_there {
                return Ok(());
            }
            Err(format!("no event {reason}: {:?}", list.items))
        });
        written.await.unwrap();
    }

    /// Sends a GET request to the node's endpoint, as the API server does.
    pub(super) async fn get(&self, path: &str) -> String {
        let groups = ["system:masters"];
        let (certificate, key) = self
            .server
            .client_certificate("kube-apiserver-kubelet-client", &groups)
            .unwrap();
        let asked = self.ask(path, Some((&certificate, &key)), None);
        let (status, text) = asked.await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    /// Sends a GET request to the node's endpoint with a certificate and its key, a token, or neither; returns status code and body.
    pub(super) async fn ask(
        &self,
        path: &str,
        certificate: Option<(&str, &str)>,
        token: Option<&str>,
    ) -> kube::Result<(u16, String)> {
        let node: Node = Api::all(self.client()).get("worker-0").await.unwrap();
        let status = node.status.unwrap();
        let port = status
            .daemon_endpoints
            .unwrap()
            .kubelet_endpoint
            .unwrap()
            .port;
        let url = format!("https://{}:{port}/", self.node.address());
        let mut config = kube::Config::new(url.parse().unwrap());
        config.accept_invalid_certs = true;
        if let Some((certificate, key)) = certificate {
            let data = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
            config.auth_info.client_certificate_data = Some(data(certificate));
            config.auth_info.client_key_data = Some(data(key).into());
        }
        config.auth_info.token = token.map(|token| token.to_owned().into());
        let client = kube::Client::try_from(config).unwrap();
        let request = http::Request::get(format!("/{path}"))
            .body(kube::client::Body::empty())
            .unwrap();
        let answer = client.send(request).await?;
        let status = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body());
        let bytes = body.await.unwrap().to_bytes();
        Ok((status, String::from_utf8(bytes.to_vec()).unwrap()))
    }
}

/// Waits for a pod that may be missing at times.
pub(super) async fn appears(setup: &TestNode, name: &str, is_so: impl Fn(&Pod) -> bool) -> Pod {
    let found = testbed::eventually(PATIENCE, async || {
        let pod = setup.pods().get_opt(name).await.unwrap();
        match pod {
            Some(pod) if is_so(&pod) => Ok(pod),
            pod => Err(format!("{name} is not there: {pod:?}")),
        }
    });
    found.await.unwrap()
}

/// Waits until a condition holds.
pub(super) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let look = async || is_so().then_some(()).ok_or_else(|| what.to_owned());
    testbed::eventually(PATIENCE, look).await.unwrap();
}

pub(super) fn condition(pod: &Pod, name: &str) -> String {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut found = conditions
        .into_iter()
        .flatten()
        .filter(|one| one.type_ == name);
    found
        .next()
        .map(|one| one.status.clone())
        .unwrap_or_default()
}

pub(super) fn phase(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    status.phase.unwrap_or_default()
}

/// Returns the reason why the first container waits.
pub(super) fn waiting(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let first = status
        .container_statuses
        .unwrap_or_default()
        .into_iter()
        .next();
    let state = first.and_then(|one| one.state).unwrap_or_default();
    state.waiting.and_then(|one| one.reason).unwrap_or_default()
}

pub(super) fn restarts(pod: &Pod) -> i32 {
    let status = pod.status.clone().unwrap_or_default();
    let first = status
        .container_statuses
        .unwrap_or_default()
        .into_iter()
        .next();
    first.map(|one| one.restart_count).unwrap_or_default()
}
