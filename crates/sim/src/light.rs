//! Light nodes: thousands of Node objects without kubelets, for tests at scale.
//!
//! They look alive to a cluster: their leases are renewed, and pods that are bound to them run at once and end within a second when they are
//! deleted. One task with one watch runs the pods, and one paced task renews the leases. They work through any client, of the embedded API server or
//! of a real one.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use cluster_spec::kubernetes::KUBERNETES_VERSION;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Label of every light node; its value is the prefix of the names.
pub const LABEL: &str = "numaresources-testbed/light";
/// Largest number of concurrent requests.
const MAX_CONCURRENT: usize = 32;
/// What a deleted pod takes to end. A real one takes about as long if its processes obey, and clients may rely on seeing it end.
const ENDING: Duration = Duration::from_secs(1);
/// Namespace of the nodes' leases.
const LEASES: &str = "kube-node-lease";
/// Taint that admission gives to a new node until a controller finds it ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Creates the NodeResourceTopology of a node from its name.
pub type Topology = Arc<dyn Fn(&str) -> NodeResourceTopology + Send + Sync>;

/// What light nodes to create.
#[derive(Clone)]
pub struct LightSpec {
    /// Number of nodes.
    pub count: usize,
    /// Prefix of the names; a number follows.
    pub prefix: String,
    /// Labels in addition to those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Capacity and allocatable resources, as quantities.
    pub resources: BTreeMap<String, String>,
    /// NodeResourceTopology of each node; `None` creates none.
    pub topology: Option<Topology>,
    /// Time in which every lease is renewed once. `None` creates no leases, for clusters without a node lifecycle controller (which marks a
    /// silent node as Unknown after 40 to 50 s).
    pub renew_every: Option<Duration>,
}

impl LightSpec {
    /// Returns a spec of nodes with 32 CPUs and 128 GiB, without topology, renewed every 20 s.
    pub fn new(count: usize) -> Self {
        let resources = [
            ("cpu", "32"),
            ("memory", "128Gi"),
            ("ephemeral-storage", "100Gi"),
            ("pods", "250"),
        ];
        Self {
            count,
            prefix: "light".to_owned(),
            labels: BTreeMap::new(),
            resources: resources
                .map(|(name, quantity)| (name.to_owned(), quantity.to_owned()))
                .into(),
            topology: None,
            renew_every: Some(Duration::from_secs(20)),
        }
    }

    /// Returns the name of a node.
    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    /// Returns the Node object in the form in which a kubelet registers one.
    fn node(&self, number: usize) -> Value {
        let name = self.name(number);
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut labels = json!({
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name,
        });
        labels[LABEL] = json!(self.prefix);
        for (key, value) in &self.labels {
            labels[key] = json!(value);
        }
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now})
        };
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {
                "capacity": self.resources,
                "allocatable": self.resources,
                "addresses": [
                    {"type": "InternalIP", "address": address(number)},
                    {"type": "Hostname", "address": name},
                ],
                "conditions": [
                    condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                    condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                    condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                    condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
                ],
                "nodeInfo": {
                    "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": KUBERNETES_VERSION,
                    "bootID": "", "containerRuntimeVersion": "light://0", "kernelVersion": "", "kubeProxyVersion": "",
                    "machineID": name, "osImage": "light", "systemUUID": name,
                },
            },
        })
    }

    fn lease(&self, number: usize) -> Value {
        let name = self.name(number);
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASES},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())},
        })
    }
}

impl std::fmt::Debug for LightSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LightSpec")
            .field("count", &self.count)
            .field("prefix", &self.prefix)
            .field("renew_every", &self.renew_every)
            .finish_non_exhaustive()
    }
}

/// Returns the address of a node, which nobody answers at: it is from the first half of the benchmark block 198.18.0.0/15.
fn address(number: usize) -> String {
    Ipv4Addr::from_bits(0xC612_0000 + (number as u32 & 0xFFFF)).to_string()
}

/// Returns an address for the next pod, from the second half of that block. After 65,536 pods addresses come again.
fn pod_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::from_bits(0xC613_0000 + (number & 0xFFFF)).to_string()
}

/// Why an operation on light nodes failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused an object.
    #[error("cannot make {what} of light node {node}")]
    Create {
        /// Kind of the object.
        what: &'static str,
        /// Name of the node.
        node: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The nodes could not be removed.
    #[error("cannot remove light nodes")]
    Remove(#[source] Box<kube::Error>),
}

/// Running light nodes. When this value is dropped, their objects stay, but nothing renews leases or runs pods any more.
pub struct LightNodes {
    client: Client,
    spec: Arc<LightSpec>,
    tasks: JoinSet<()>,
}

impl std::fmt::Debug for LightNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LightNodes")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl LightNodes {
    /// Registers the nodes. When this returns, all of them exist and pods on them run.
    pub async fn start(client: Client, spec: LightSpec) -> Result<Self, Error> {
        let spec = Arc::new(spec);
        // Pods may already wait for the nodes.
        let mut tasks = JoinSet::new();
        tasks.spawn(run_pods(client.clone(), Arc::clone(&spec)));
        futures::stream::iter((0..spec.count).map(Ok))
            .try_for_each_concurrent(MAX_CONCURRENT, |number| register(&client, &spec, number))
            .await?;
        if let Some(every) = spec.renew_every {
            tasks.spawn(renew(client.clone(), Arc::clone(&spec), every));
        }
        Ok(Self {
            client,
            spec,
            tasks,
        })
    }

    /// Returns the names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.spec.count).map(|number| self.spec.name(number))
    }

    /// Removes the nodes and their objects. Pods on them are left to the cluster's pod garbage collection.
    pub async fn remove(mut self) -> Result<(), Error> {
        self.tasks.shutdown().await;
        let (client, spec) = (&self.client, &self.spec);
        futures::stream::iter((0..spec.count).map(|number| Ok(spec.name(number))))
            .try_for_each_concurrent(MAX_CONCURRENT, |name| async move {
                let at_once = DeleteParams::default();
                if spec.topology.is_some() {
                    ignore_not_found(topologies(client).delete(&name, &at_once).await)?;
                }
                if spec.renew_every.is_some() {
                    ignore_not_found(leases(client).delete(&name, &at_once).await)?;
                }
                ignore_not_found(
                    Api::<Node>::all(client.clone())
                        .delete(&name, &at_once)
                        .await,
                )
            })
            .await
            .map_err(|error| Error::Remove(Box::new(error)))
    }
}

fn ignore_not_found<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn topologies(client: &Client) -> Api<NodeResourceTopology> {
    Api::all(client.clone())
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), LEASES)
}

async fn register(client: &Client, spec: &LightSpec, number: usize) -> Result<(), Error> {
    let name = spec.name(number);
    let failed = |what: &'static str| {
        let node = name.clone();
        move |source: kube::Error| Error::Create {
            what,
            node,
            source: Box::new(source),
        }
    };
    let node: Node = serde_json::from_value(spec.node(number))
        .map_err(|error| failed("the Node")(kube::Error::SerdeError(error)))?;
    let nodes: Api<Node> = Api::all(client.clone());
    let made = nodes
        .create(&PostParams::default(), &node)
        .await
        .map_err(failed("the Node"))?;
    let taints = made.spec.and_then(|spec| spec.taints).unwrap_or_default();
    if taints.iter().any(|taint| taint.key == NOT_READY) {
        // A controller would remove the taint later, but a cluster may have no such controller.
        let ready = json!({"spec": {"taints": null}});
        nodes
            .patch(&name, &PatchParams::default(), &Patch::Merge(ready))
            .await
            .map_err(failed("the taints"))?;
    }
    if spec.renew_every.is_some() {
        let lease = serde_json::from_value(spec.lease(number))
            .map_err(|error| failed("the Lease")(kube::Error::SerdeError(error)))?;
        leases(client)
            .create(&PostParams::default(), &lease)
            .await
            .map_err(failed("the Lease"))?;
    }
    if let Some(topology) = &spec.topology {
        topologies(client)
            .create(&PostParams::default(), &topology(&name))
            .await
            .map_err(failed("the NodeResourceTopology"))?;
    }
    Ok(())
}

/// Renews the leases one after another, so that all are renewed within `every` and the load is even.
async fn renew(client: Client, spec: Arc<LightSpec>, every: Duration) {
    let leases = leases(&client);
    let pace = every / u32::try_from(spec.count.max(1)).unwrap_or(u32::MAX);
    let mut tick = tokio::time::interval(pace);
    // After a pause of the machine or the server the renewals continue at the usual pace.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in (0..spec.count).cycle() {
        tick.tick().await;
        let name = spec.name(number);
        let renewed = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
        let result = leases
            .patch(&name, &PatchParams::default(), &Patch::Merge(renewed))
            .await;
        if let Err(error) = result {
            // The next round tries again.
            tracing::debug!(node = name, %error, "Lease of a light node was not renewed");
        }
    }
}

/// Runs the pods that are bound to the nodes.
async fn run_pods(client: Client, spec: Arc<LightSpec>) {
    let numbers: HashMap<String, usize> = (0..spec.count)
        .map(|number| (spec.name(number), number))
        .collect();
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    let (leaving, deleted) = tokio::sync::mpsc::unbounded_channel();
    let running = watcher(Api::<Pod>::all(client.clone()), bound)
        .default_backoff()
        .applied_objects()
        .filter_map(|pod| std::future::ready(pod.ok()))
        .for_each_concurrent(MAX_CONCURRENT, |pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let number = node.and_then(|node| numbers.get(node)).copied();
            let (client, leaving) = (client.clone(), leaving.clone());
            async move {
                let Some(number) = number else {
                    return;
                };
                if pod.metadata.deletion_timestamp.is_some() {
                    // the receiver lives as long as this task
                    let _ = leaving.send((Instant::now() + ENDING, pod.metadata));
                } else {
                    let advanced = advance(client, &pod, &address(number)).await;
                    tell(&pod.name_any(), advanced);
                }
            }
        });
    // the pods come in the order in which they end, so that none waits for another one
    let ends = futures::stream::unfold(deleted, async |mut deleted| {
        let next = deleted.recv().await?;
        Some((next, deleted))
    });
    let ending = ends.for_each_concurrent(MAX_CONCURRENT, |(at, pod)| {
        let client = client.clone();
        async move {
            tokio::time::sleep_until(at).await;
            tell(
                pod.name.as_deref().unwrap_or_default(),
                end(client, &pod).await,
            );
        }
    });
    tokio::join!(running, ending);
}

/// Logs why a pod is not as far as it should be.
fn tell(pod: &str, done: kube::Result<()>) {
    if let Err(error) = done {
        tracing::warn!(pod, %error, "Pod on a light node was not advanced");
    }
}

/// Removes a pod that has ended.
async fn end(client: Client, pod: &ObjectMeta) -> kube::Result<()> {
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    // The precondition protects a new pod that has the same name.
    let same = Preconditions {
        uid: pod.uid.clone(),
        resource_version: None,
    };
    let at_once = DeleteParams::default().grace_period(0).preconditions(same);
    let name = pod.name.as_deref().unwrap_or_default();
    unless_changed(pods.delete(name, &at_once).await.map(drop))
}

/// Advances a pod by one step: to Running, or to what its specification has become.
async fn advance(client: Client, pod: &Pod, host: &str) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let name = pod.name_any();
    let done = if phase(pod) == "Pending" {
        let running = Patch::Merge(running(pod, host));
        let params = PatchParams::default();
        pods.patch_status(&name, &params, &running).await.map(drop)
    } else if observed(pod) != pod.metadata.generation {
        let seen = Patch::Merge(json!({
            "metadata": {"uid": pod.metadata.uid},
            "status": {"observedGeneration": pod.metadata.generation},
        }));
        let params = PatchParams::default();
        pods.patch_status(&name, &params, &seen).await.map(drop)
    } else {
        Ok(())
    };
    unless_changed(done)
}

fn unless_changed(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        // The pod changed meanwhile; the next event handles it.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        other => other,
    }
}

/// Returns the version of the pod's specification that its node has told to have seen.
fn observed(pod: &Pod) -> Option<i64> {
    pod.status.as_ref()?.observed_generation
}

fn phase(pod: &Pod) -> &str {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase.unwrap_or("Pending")
}

/// Returns the status of a pod whose containers have all started, on a node with this address.
fn running(pod: &Pod, host: &str) -> Value {
    let in_host_network = pod.spec.as_ref().and_then(|spec| spec.host_network);
    let address = if in_host_network == Some(true) {
        host.to_owned()
    } else {
        pod_address()
    };
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let given = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions: Vec<Value> = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
    ]
    .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}))
    .into();
    conditions.extend(
        given
            .into_iter()
            .flatten()
            .filter(|condition| condition.type_ == "PodScheduled")
            .map(|condition| json!(condition)),
    );
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0,
                "ready": true, "started": true, "containerID": format!("light://{}", container.name),
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    json!({"metadata": {"uid": pod.metadata.uid}, "status": {
        "phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": statuses,
        "hostIP": host, "hostIPs": [{"ip": host}], "podIP": address, "podIPs": [{"ip": address}],
        "observedGeneration": pod.metadata.generation,
    }})
}
