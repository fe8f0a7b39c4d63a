//! An API server, and the operator that runs against it.

use std::future::Future;
use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use apply::{Applier, wait};
use cluster_faults::{Faults, Selector};
use cluster_spec::flavour::Flavour;
use fs_err as fs;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use manifests::operator::{Options, Set};
use manifests::platform::Platform;
use manifests::to_value;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sim::node::addresses::Block;
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer, Decision};
use testbed::lane::Lane;
use wait_timeout::ChildExt as _;

pub(crate) const NAMESPACE: &str = "numaresources";
const WITHIN: Duration = Duration::from_mins(1);
const HEALTH_PORT: u16 = 8081;
const METRICS_PORT: u16 = 8080;

/// Waits for the result of `work`; panics after a minute.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WITHIN, work).await.expect(what)
}

/// Selects the operator's requests with these verbs.
pub(crate) fn its(verbs: &[&str]) -> Selector {
    let account = api::names::OPERATOR_SERVICE_ACCOUNT;
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    Selector::default().user(&user).verbs(verbs)
}

/// The fields are in the order in which they must be dropped.
pub(crate) struct Cluster {
    operator: Option<Child>,
    pub(crate) client: Client,
    /// Addresses that no other process uses, so that the operator's port is free.
    addresses: Block,
    logs: TempDir,
    server: ApiServer,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let text = fs::read_to_string(self.logs.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            println!(
                "--- end of the operator's log\n{}",
                lines[lines.len().saturating_sub(30)..].join("\n")
            );
        }
    }
}

impl Cluster {
    /// Starts a cluster in the lane of this run.
    pub(crate) async fn start() -> Self {
        Self::start_on(Lane::from_environment().unwrap()).await
    }

    /// Starts a cluster with the nodes `control-plane-0`, `worker-0` and `worker-1`; the workers are in the pools `numa-a` and `numa-b`.
    pub(crate) async fn start_on(lane: Lane) -> Self {
        Self::start_with(lane, None).await
    }

    /// Like [`Self::start`], as an OpenShift cluster.
    pub(crate) async fn start_openshift(flavour: Flavour) -> Self {
        Self::start_with(Lane::from_environment().unwrap(), Some(flavour)).await
    }

    pub(crate) async fn start_with(lane: Lane, flavour: Option<Flavour>) -> Self {
        let mut cluster = Self::without_operator(lane, flavour).await;
        cluster.start_operator(&[]);
        cluster
    }

    /// Starts everything except the operator's process.
    pub(crate) async fn without_operator(lane: Lane, flavour: Option<Flavour>) -> Self {
        let server = ApiServer::start(lane).await.unwrap();
        let client = server.client().await.unwrap();
        let applier = Applier::new(client.clone());
        for definition in [
            api::crd::numa_resources_operator(),
            api::crd::numa_resources_scheduler(),
        ] {
            applier.apply(&to_value(&definition)).await.unwrap();
            wait::definition(&client, &definition.name_any(), WITHIN)
                .await
                .unwrap();
        }
        if let Some(flavour) = flavour {
            openshift::install(&client, flavour, openshift::VERSION, &["numa-a", "numa-b"])
                .await
                .unwrap();
        }
        // all objects except the last, the Deployment: the test starts the operator itself
        let options = Options {
            platform: flavour.map_or(Platform::Kubernetes, platform_of),
            ..Options::default()
        };
        let objects = Set::new(&options).objects();
        applier
            .apply_all(&objects[..objects.len() - 1])
            .await
            .unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        for (name, role) in [
            ("control-plane-0", "control-plane"),
            ("worker-0", "numa-a"),
            ("worker-1", "numa-b"),
        ] {
            let labels = json!({format!("node-role.kubernetes.io/{role}"): ""});
            let node =
                serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))
                    .unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let logs = tempfile::tempdir().unwrap();
        let kubeconfig = server.account_kubeconfig(NAMESPACE, api::names::OPERATOR_SERVICE_ACCOUNT);
        api_server::write(&kubeconfig.await.unwrap(), &logs.path().join("kubeconfig")).unwrap();
        Self {
            operator: None,
            client,
            addresses: Block::claim().unwrap(),
            logs,
            server,
        }
    }

    /// Records the authorization decisions from now on.
    pub(crate) fn record_decisions(&self) {
        self.server.record_decisions();
    }

    /// Returns the decisions about the operator's requests since recording began.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        let account = api::names::OPERATOR_SERVICE_ACCOUNT;
        self.server.decisions(NAMESPACE, account)
    }

    /// Returns the handle that injects faults into the API server.
    pub(crate) async fn faults(&self) -> Faults {
        self.server.faults().await.unwrap()
    }

    /// Starts the operator, with these arguments in addition to the fixed ones.
    pub(crate) fn start_operator(&mut self, arguments: &[&str]) {
        self.operator = Some(run(&self.logs, self.health(), &[], arguments));
    }

    /// Starts the operator as the process of a pod with this name.
    pub(crate) fn start_operator_in(&mut self, pod: &str, arguments: &[&str]) {
        let environment = [("PODNAME", pod)];
        self.operator = Some(run(&self.logs, self.health(), &environment, arguments));
    }

    /// Runs the operator to its end with these arguments. Returns what it printed.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let output = Command::new(assert_cmd::cargo::cargo_bin("numaresources-operator"))
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", self.logs.path().join("kubeconfig"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the address of the operator's health endpoint.
    pub(crate) fn health(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.addresses.control_plane(), HEALTH_PORT)
    }

    /// Returns an address where the operator can serve its metrics.
    pub(crate) fn metrics(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.addresses.control_plane(), METRICS_PORT)
    }

    /// Returns a token of an account of the operator's namespace.
    pub(crate) async fn token(&self, account: &str) -> String {
        let kubeconfig = self.server.account_kubeconfig(NAMESPACE, account).await;
        let kubeconfig = serde_json::to_value(kubeconfig.unwrap()).unwrap();
        let token = &kubeconfig["users"][0]["user"]["token"];
        token.as_str().unwrap().to_owned()
    }

    /// Kills the operator without warning, like a power failure.
    pub(crate) fn kill(&mut self) {
        if let Some(mut operator) = self.operator.take() {
            // both fail only when the operator has already ended
            let _ = operator.kill();
            let _ = operator.wait();
        }
    }

    /// Waits until the operator ends by itself, then starts it again. Returns the exit code.
    pub(crate) fn restarted(&mut self) -> Option<i32> {
        let mut operator = self.operator.take().unwrap();
        let code = ended(&mut operator);
        self.start_operator(&[]);
        code
    }

    /// Waits until `check` returns a value. Its error describes the last state for the failure message.
    pub(crate) async fn eventually<T>(&self, check: impl AsyncFn() -> Result<T, String>) -> T {
        let found = testbed::eventually(WITHIN, check).await;
        found.expect("what the check looks for comes in time")
    }

    pub(crate) fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Waits until the named object exists and returns it.
    pub(crate) async fn appears<K>(&self, api: &Api<K>, name: &str) -> K
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.eventually(|| async {
            let found = api.get_opt(name).await.map_err(|error| error.to_string())?;
            found.ok_or_else(|| format!("no {name}"))
        })
        .await
    }

    /// Waits until the first True condition of the resource has this type, reason and message.
    pub(crate) async fn condition<K>(
        &self,
        api: &Api<K>,
        name: &str,
        conditions: impl Fn(&K) -> Vec<Condition>,
        wanted: (&str, &str, &str),
    ) -> K
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.eventually(|| async {
            let object = api.get(name).await.map_err(|error| error.to_string())?;
            let all = conditions(&object);
            let found = all.iter().find(|condition| condition.status == "True");
            let seen = found.map(|condition| {
                (
                    condition.type_.as_str(),
                    condition.reason.as_str(),
                    condition.message.as_str(),
                )
            });
            if seen == Some(wanted) {
                Ok(object)
            } else {
                Err(format!("{all:?}"))
            }
        })
        .await
    }

    /// Writes the status that a workload's controller and the kubelets would report.
    pub(crate) async fn report<K>(&self, api: &Api<K>, name: &str, status: Value)
    where
        K: Clone + DeserializeOwned + std::fmt::Debug + Serialize,
    {
        api.patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": status})),
        )
        .await
        .unwrap();
    }

    pub(crate) async fn merge<K>(&self, api: &Api<K>, name: &str, patch: Value)
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Sends SIGTERM to the operator and returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let mut operator = self.operator.take().unwrap();
        kill(Pid::from_raw(operator.id().cast_signed()), Signal::SIGTERM).unwrap();
        ended(&mut operator)
    }
}

fn platform_of(flavour: Flavour) -> Platform {
    match flavour {
        Flavour::Openshift => Platform::OpenShift,
        Flavour::Hypershift => Platform::HyperShift,
    }
}

/// Waits until the operator has ended. Returns its exit code.
fn ended(operator: &mut Child) -> Option<i32> {
    let status = operator.wait_timeout(WITHIN).unwrap();
    status.expect("the operator goes on").code()
}

/// Starts the operator with the permissions of its account. It appends to the log of the previous one.
fn run(
    logs: &TempDir,
    health: SocketAddrV4,
    environment: &[(&str, &str)],
    arguments: &[&str],
) -> Child {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(logs.path().join("log"))
        .unwrap()
        .into_parts()
        .0;
    Command::new(assert_cmd::cargo::cargo_bin("numaresources-operator"))
        .args(["-v=4", "-enable-metrics=false"])
        .args(arguments)
        .arg(format!("-health-probe-bind-address={health}"))
        .env_clear()
        .env("KUBECONFIG", logs.path().join("kubeconfig"))
        .env("NAMESPACE", NAMESPACE)
        .env("SCHEDULER_IMAGE_DIGESTS", api::names::STACK_DIGEST)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
