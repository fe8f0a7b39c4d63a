//! An API server with nodes without kubelets, and the scheduler as a process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use api::attributes;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::operator::LogLevel;
use apply::{Applier, wait};
use cluster_faults::Faults;
use fs_err as fs;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use manifests::platform::Platform;
use manifests::scheduler::{Options, Set, config};
use manifests::to_value;
use nrt::placement::Container;
use programs::kubernetes::{self, SearchPath};
use serde_json::{Value, json};
use sim::node::addresses::Block;
use tempfile::TempDir;
use testbed::api_server::{self, ApiServer};
use testbed::lane::Lane;
mod process;

pub(crate) use process::{Scheduler, VolumeController};

pub(crate) const PROFILE: &str = "topo-aware-scheduler";
pub(crate) const NAMESPACE: &str = "numaresources";
const WITHIN: Duration = Duration::from_mins(1);
/// Port of the scheduler's HTTPS endpoint.
const PORT: u16 = 10259;

/// Returns the outcome of work that has to end in time.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WITHIN, work).await.expect(what)
}

/// The API server, with the scheduler's rights in place.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    kubeconfig: PathBuf,
    files: TempDir,
    server: ApiServer,
}

impl Cluster {
    /// Starts a cluster on the API server of this run's lane.
    pub(crate) async fn start() -> Self {
        Self::start_on(Lane::from_environment().unwrap()).await
    }

    pub(crate) async fn start_on(lane: Lane) -> Self {
        let server = ApiServer::start(lane).await.unwrap();
        let client = server.client().await.unwrap();
        let applier = Applier::new(client.clone());
        let definition = api::crd::node_resource_topology();
        applier.apply(&to_value(&definition)).await.unwrap();
        wait::definition(&client, &definition.name_any(), WITHIN)
            .await
            .unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for name in [NAMESPACE, "default"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            // the API server also creates `default` by itself at some point
            let _ = namespaces.create(&PostParams::default(), &namespace).await;
        }
        let objects = Set::new(&options()).unwrap().objects();
        for object in objects
            .iter()
            .filter(|object| object["kind"] != "Deployment")
        {
            applier.apply(object).await.unwrap();
        }
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        let config = server.account_kubeconfig(NAMESPACE, api::names::SCHEDULER);
        api_server::write(&config.await.unwrap(), &kubeconfig).unwrap();
        Self {
            client,
            kubeconfig,
            files,
            server,
        }
    }

    /// Starts a scheduler with the configuration that the operator renders, changed by `change`.
    pub(crate) fn scheduler(&self, name: &str, change: impl FnOnce(&mut Value)) -> Scheduler {
        let set = Set::new(&options()).unwrap();
        let text = &set.config_map.data.unwrap()["config.yaml"];
        let mut config: Value = serde_yaml::from_str(text).unwrap();
        change(&mut config);
        let path = self.files.path().join(format!("{name}.yaml"));
        fs::write(&path, config.to_string()).unwrap();
        let log = self.files.path().join(format!("{name}.log"));
        let addresses = Block::claim().unwrap();
        let process = Command::new(assert_cmd::cargo::cargo_bin("numaresources-scheduler"))
            .arg(format!("--config={}", path.display()))
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg("-v=4")
            .arg(format!("--bind-address={}", addresses.control_plane()))
            .arg(format!("--secure-port={PORT}"))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap().into_parts().0)
            .spawn()
            .unwrap();
        Scheduler {
            process,
            addresses,
            log,
        }
    }

    /// Creates an account and returns its token. `may_read` allows it to read `/metrics` and `/configz` of servers that ask the API server
    /// for authorization.
    pub(crate) async fn token(&self, account: &str, may_read: bool) -> String {
        let applier = Applier::new(self.client.clone());
        let metadata = json!({"name": account, "namespace": "default"});
        let mut objects =
            vec![json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})];
        if may_read {
            let group = "rbac.authorization.k8s.io";
            objects.push(json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": account},
                "rules": [{"nonResourceURLs": ["/metrics", "/configz"], "verbs": ["get"]}],
            }));
            objects.push(json!({
                "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": account},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": account},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}],
            }));
        }
        for object in &objects {
            applier.apply(object).await.unwrap();
        }
        let config = self
            .server
            .account_kubeconfig("default", account)
            .await
            .unwrap();
        let config = serde_json::to_value(&config).unwrap();
        let token = &config["users"][0]["user"]["token"];
        token.as_str().unwrap().to_owned()
    }

    /// Starts the volume controller of a real Kubernetes; `None` on the embedded lane.
    pub(crate) fn volume_controller(&self) -> Option<VolumeController> {
        let Lane::Local = Lane::from_environment().unwrap() else {
            return None;
        };
        let programs = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
        let kubeconfig = self.files.path().join("admin-kubeconfig");
        api_server::write(&self.server.admin_kubeconfig().unwrap(), &kubeconfig).unwrap();
        let process = Command::new(&programs.kube_controller_manager)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                "--controllers=persistentvolume-binder-controller",
                "--leader-elect=false",
                "--secure-port=0",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(VolumeController(process.unwrap()))
    }

    /// Removes a kind of objects from the scheduler's rules.
    pub(crate) async fn forbid(&self, group: &str, plural: &str) {
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let objects = Set::new(&options()).unwrap().objects();
        for role in objects.iter().filter(|it| it["kind"] == "ClusterRole") {
            let name = role["metadata"]["name"].as_str().unwrap();
            let mut role = roles.get(name).await.unwrap();
            for rule in role.rules.iter_mut().flatten() {
                let groups = rule.api_groups.as_deref().unwrap_or_default();
                if groups.iter().any(|other| other == group) {
                    let resources = rule.resources.get_or_insert_default();
                    resources.retain(|other| other != plural);
                }
            }
            roles
                .replace(name, &PostParams::default(), &role)
                .await
                .unwrap();
        }
    }

    /// Returns the faults that can be injected into the API server.
    pub(crate) async fn faults(&self) -> Faults {
        self.server.faults().await.unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a node with these resources and without taints.
    pub(crate) async fn node(&self, name: &str, cpu: &str, memory: &str) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}),
        );
        nodes
            .create(&PostParams::default(), &node.unwrap())
            .await
            .unwrap();
        let amounts = json!({"cpu": cpu, "memory": memory, "pods": "110"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        // there is no controller manager that removes the taint from admission
        let open = json!({"spec": {"taints": null}});
        nodes
            .patch(name, &PatchParams::default(), &Patch::Merge(open))
            .await
            .unwrap();
    }

    /// Writes the NRT of a node: what is left in each zone as (cores, GiB), for pods of these names in `default`.
    pub(crate) async fn topology(&self, node: &str, left: &[(u32, u32)], pods: &[&str]) {
        self.topology_with(node, left, pods, &BTreeMap::new()).await;
    }

    /// Like [`topology`](Self::topology); also publishes the zone of each container `main` of pods in `default`.
    pub(crate) async fn topology_with(
        &self,
        node: &str,
        left: &[(u32, u32)],
        pods: &[&str],
        placed: &BTreeMap<&str, usize>,
    ) {
        let containers = placed.iter().map(|(pod, zone)| {
            let container = Container {
                namespace: "default",
                pod,
                container: "main",
            };
            (container, *zone)
        });
        let placement = nrt::placement::encode(containers, left.len()).unwrap();
        let api: Api<NodeResourceTopology> = Api::all(self.client.clone());
        let zones: Vec<Value> = left
            .iter()
            .enumerate()
            .map(|(id, (cores, gib))| {
                let resource = |name: &str, total: String, left: String| {
                    json!({"name": name, "capacity": total, "allocatable": total, "available": left})
                };
                let vector = placement.vectors.get(&id).map(
                    |vector| json!({"name": attributes::NUMA_PLACEMENT_VECTOR, "value": vector}),
                );
                let attributes: Vec<Value> = vector.into_iter().collect();
                json!({"name": format!("node-{id}"), "type": "Node", "attributes": attributes, "resources": [
                    resource("cpu", "8".to_owned(), cores.to_string()),
                    resource("memory", "16Gi".to_owned(), format!("{gib}Gi")),
                ]})
            })
            .collect();
        let fingerprint =
            nrt::fingerprint::compute(pods.iter().map(|name| ("default", *name))).to_string();
        let object = json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": node},
            "attributes": [
                {"name": "nodeTopologyPodsFingerprint", "value": fingerprint},
                {"name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources"},
                {"name": "topologyManagerScope", "value": "container"},
                {"name": "topologyManagerPolicy", "value": "single-numa-node"},
                {"name": attributes::NUMA_PLACEMENT_METADATA, "value": placement.metadata},
            ],
            "zones": zones,
        });
        let params = PatchParams::apply("tests").force();
        api.patch(node, &params, &Patch::Apply(object))
            .await
            .unwrap();
    }

    /// Creates a Guaranteed pod of that size for a scheduler, already bound if a node is named.
    pub(crate) async fn pod(&self, name: &str, scheduler: &str, node: Option<&str>, cpu: &str) {
        self.pod_with(name, cpu, |pod| {
            pod["spec"]["schedulerName"] = json!(scheduler);
            pod["spec"]["nodeName"] = json!(node);
        })
        .await;
    }

    /// Creates a Guaranteed pod of that size for our profile, changed by `change`.
    pub(crate) async fn pod_with(&self, name: &str, cpu: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "schedulerName": PROFILE,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "pause", "resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}}],
            },
        });
        change(&mut pod);
        self.pods()
            .create(
                &PostParams::default(),
                &serde_json::from_value(pod).unwrap(),
            )
            .await
            .unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods()
            .delete(name, &DeleteParams::default().grace_period(0))
            .await
            .unwrap();
    }

    /// Waits until the pod has a node and returns it.
    pub(crate) async fn placed(&self, name: &str) -> String {
        self.eventually(async || {
            let pod = self
                .pods()
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            let conditions = json!(pod.status.unwrap_or_default().conditions).to_string();
            pod.spec.unwrap_or_default().node_name.ok_or(conditions)
        })
        .await
    }

    /// Waits until the pod was rejected with that message, in its condition and in an event, at least `times` times.
    pub(crate) async fn rejected(&self, name: &str, message: &str, times: i32) {
        self.eventually(async || {
            let pod = self
                .pods()
                .get(name)
                .await
                .map_err(|error| error.to_string())?;
            let conditions = pod
                .status
                .unwrap_or_default()
                .conditions
                .unwrap_or_default();
            let condition = conditions
                .iter()
                .find(|condition| condition.type_ == "PodScheduled");
            let seen = condition.and_then(|condition| condition.message.as_deref());
            let events = self.events(name, "FailedScheduling").await;
            let count: i32 = events
                .iter()
                .filter(|event| {
                    event
                        .note
                        .as_deref()
                        .is_some_and(|note| has_message(note, message))
                })
                .map(|event| event.series.as_ref().map_or(1, |series| series.count))
                .sum();
            if seen.is_some_and(|seen| has_message(seen, message)) && count >= times {
                return Ok(());
            }
            let notes: Vec<_> = events
                .iter()
                .map(|event| (&event.note, &event.series))
                .collect();
            Err(format!("{seen:?}, {count} times, {notes:?}"))
        })
        .await;
    }

    /// Waits until a scheduler logs that it bound a pod, which it does after the API server's answer.
    pub(crate) async fn has_bound(&self, scheduler: &Scheduler) {
        let log = async || {
            let log = scheduler.log();
            let is_bound = log.contains("Successfully bound");
            is_bound.then_some(()).ok_or(log)
        };
        self.eventually(log).await;
    }

    /// Waits until a scheduler logs that it adopted the NRT of a node.
    pub(crate) async fn has_flushed(&self, scheduler: &Scheduler, node: &str) {
        let log = async || {
            let log = scheduler.log();
            let mut lines = log.lines();
            let is_flushed = lines.any(|line| line.contains("Flushing") && line.contains(node));
            is_flushed.then_some(()).ok_or(log)
        };
        self.eventually(log).await;
    }

    /// Returns the events about a pod with this reason.
    pub(crate) async fn events(&self, pod: &str, reason: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let all = events.list(&ListParams::default()).await.unwrap();
        let about = |event: &Event| {
            event
                .regarding
                .as_ref()
                .and_then(|object| object.name.as_deref())
                == Some(pod)
        };
        all.items
            .into_iter()
            .filter(|event| about(event) && event.reason.as_deref() == Some(reason))
            .collect()
    }

    /// Waits until `check` returns a value. Its error describes the last observation.
    pub(crate) async fn eventually<T>(&self, check: impl AsyncFn() -> Result<T, String>) -> T {
        let found = testbed::eventually(WITHIN, check).await;
        found.expect("what the check looks for comes in time")
    }
}

/// Returns the options that the operator would use, with a resync period so that placed pods are accounted for.
fn options() -> Options {
    let image = api::names::STACK_IMAGE;
    let options = Options::new(NAMESPACE, Platform::Kubernetes, image);
    Options {
        log_level: LogLevel::Debug,
        dump_cache: false,
        config: config::Settings {
            profile: Some(PROFILE.to_owned()),
            ..options.config
        },
        ..options
    }
}

/// Returns whether a text is this message, optionally followed by the result of preemption and by what each node lacked.
fn has_message(text: &str, message: &str) -> bool {
    let follows = |rest: &str| {
        [" preemption: ", " Nodes: "]
            .iter()
            .any(|next| rest.starts_with(next))
    };
    let rest = text.strip_prefix(message);
    rest.is_some_and(|rest| rest.is_empty() || follows(rest))
}
