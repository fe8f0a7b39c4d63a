//! The Node object: registration, status and lease (kubelet-node.md 2).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::quantity::{Amount, Format};
use cluster_spec::kubelet::Taint as PlannedTaint;
use cluster_spec::kubernetes::KUBERNETES_VERSION;
use data_encoding::HEXLOWER;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus,
    NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubelet_model::workload::Amounts;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::events::Kind;
use super::kubelet::Kubelet;

/// Interval between two looks at the status, and between two reconciliations of the managers (`nodeStatusUpdateFrequency`).
const UPDATE_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two reports of a status that has not changed (`nodeStatusReportFrequency`).
const REPORT_INTERVAL: Duration = Duration::from_mins(5);
/// Interval of lease renewals, and the duration of the lease in seconds.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// Namespace of the leases.
const LEASES: &str = "kube-node-lease";
/// First and longest delay after a failed registration.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(7);
/// Reported disk size of a node. Nothing uses it.
const DISK: &str = "100Gi";

/// What a node reports in addition to its amounts.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) taints: Vec<PlannedTaint>,
    pub(crate) port: u16,
    /// Boot id, which identifies this life of the node.
    pub(crate) boot_id: String,
}

/// Creates the Node, or takes over an existing one.
pub(crate) async fn register(kubelet: &Kubelet, facts: &Facts) -> Node {
    let api: Api<Node> = Api::all(kubelet.client.clone());
    let node = node(kubelet, facts);
    let mut delay = FIRST_RETRY;
    loop {
        match api.create(&PostParams::default(), &node).await {
            Ok(node) => return node,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = json!({ "metadata": {
                    "labels": node.metadata.labels,
                    "annotations": node.metadata.annotations,
                }});
                let patched = api
                    .patch(
                        &kubelet.name,
                        &PatchParams::default(),
                        &Patch::Merge(&patch),
                    )
                    .await;
                match patched {
                    Ok(node) => return node,
                    Err(error) => {
                        tracing::debug!(%error, node = kubelet.name, "The node is not registered yet");
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, node = kubelet.name, "The node is not registered yet");
            }
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LONGEST_RETRY);
    }
}

fn node(kubelet: &Kubelet, facts: &Facts) -> Node {
    let labels = [
        ("beta.kubernetes.io/arch", arch()),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch()),
        ("kubernetes.io/hostname", kubelet.name.as_str()),
        ("kubernetes.io/os", "linux"),
    ];
    let taints: Vec<Taint> = facts
        .taints
        .iter()
        .map(|taint| Taint {
            key: taint.key.clone(),
            effect: taint.effect.clone(),
            ..Taint::default()
        })
        .collect();
    Node {
        metadata: ObjectMeta {
            name: Some(kubelet.name.clone()),
            labels: Some(owned(labels)),
            annotations: Some(owned([(
                "volumes.kubernetes.io/controller-managed-attach-detach",
                "true",
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: (!taints.is_empty()).then_some(taints),
            ..NodeSpec::default()
        }),
        status: Some(status(kubelet, facts, None, Timestamp::now())),
    }
}

fn owned<const N: usize>(list: [(&str, &str); N]) -> BTreeMap<String, String> {
    let list = list.into_iter();
    list.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the status of the node. Times of unchanged conditions stay.
fn status(
    kubelet: &Kubelet,
    facts: &Facts,
    before: Option<&NodeStatus>,
    now: Timestamp,
) -> NodeStatus {
    let (capacity, allocatable) = kubelet.managers.amounts();
    let address = kubelet.addresses.node().to_string();
    let addresses = [("InternalIP", address), ("Hostname", kubelet.name.clone())];
    let id = HEXLOWER.encode(&Sha256::digest(&kubelet.name));
    let handler = |name: &str| NodeRuntimeHandler {
        name: Some(name.to_owned()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(false),
            user_namespaces: Some(false),
        }),
    };
    NodeStatus {
        addresses: Some(
            addresses
                .into_iter()
                .map(|(type_, address)| NodeAddress {
                    type_: type_.to_owned(),
                    address,
                })
                .collect(),
        ),
        capacity: Some(quantities(&capacity)),
        allocatable: Some(quantities(&allocatable)),
        conditions: Some(conditions(before, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: i32::from(facts.port),
            }),
        }),
        features: Some(NodeFeatures {
            supplemental_groups_policy: Some(true),
        }),
        images: Some(
            kubelet
                .images
                .all()
                .map(|image| ContainerImage {
                    names: Some(vec![image.digest_reference.clone()]),
                    size_bytes: i64::try_from(image.size()).ok(),
                })
                .collect(),
        ),
        node_info: Some(NodeSystemInfo {
            architecture: arch().to_owned(),
            boot_id: facts.boot_id.clone(),
            container_runtime_version: format!(
                "numaresources-testbed://{}",
                env!("CARGO_PKG_VERSION")
            ),
            kernel_version: kernel(),
            kube_proxy_version: String::new(),
            kubelet_version: KUBERNETES_VERSION.to_owned(),
            machine_id: id[..32].to_owned(),
            operating_system: "linux".to_owned(),
            os_image: "Linux".to_owned(),
            system_uuid: id[..32].to_owned(),
            ..NodeSystemInfo::default()
        }),
        runtime_handlers: Some(vec![handler(""), handler("runc")]),
        ..NodeStatus::default()
    }
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

fn quantities(amounts: &Amounts) -> BTreeMap<String, Quantity> {
    let mut list: BTreeMap<String, Quantity> = amounts
        .iter()
        .map(|(name, amount)| {
            let is_memory = name == "memory" || name.starts_with("hugepages-");
            let format = if is_memory {
                Format::BinarySi
            } else {
                Format::DecimalSi
            };
            let amount = Amount::of(name, *amount, format);
            (name.clone(), amount.to_quantity())
        })
        .collect();
    list.insert("ephemeral-storage".to_owned(), Quantity(DISK.to_owned()));
    list
}

fn conditions(before: Option<&NodeStatus>, now: Timestamp) -> Vec<NodeCondition> {
    const ALL: [(&str, &str, &str, &str); 4] = [
        (
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "Ready",
            "True",
            "KubeletReady",
            "kubelet is posting ready status",
        ),
    ];
    let earlier = before
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    ALL.into_iter()
        .map(|(type_, status, reason, message)| {
            let same = earlier
                .iter()
                .find(|condition| condition.type_ == type_ && condition.status == status);
            let since = same.and_then(|condition| condition.last_transition_time.clone());
            NodeCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message.to_owned()),
                last_heartbeat_time: Some(Time(now)),
                last_transition_time: Some(since.unwrap_or(Time(now))),
            }
        })
        .collect()
}

/// Records the events of a start.
pub(crate) fn record_start_events(kubelet: &Kubelet) {
    let name = kubelet.name.as_str();
    let events = &kubelet.events;
    events.node(name, Kind::Normal, "Starting", "Starting kubelet.");
    for reason in [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
        "NodeReady",
    ] {
        let text = format!("Node {name} status is now: {reason}");
        events.node(name, Kind::Normal, reason, text);
    }
}

/// The last report of a status.
struct Report {
    /// What was sent.
    sent: NodeStatus,
    /// What the API server made of it.
    stored: NodeStatus,
    at: Instant,
}

impl Report {
    /// Returns whether it says everything: neither the status nor what others made of the report has changed since, but for the heartbeats.
    fn still_holds(&self, now: &NodeStatus, there: Option<&NodeStatus>) -> bool {
        self.at.elapsed() < REPORT_INTERVAL
            && without_heartbeats(now) == without_heartbeats(&self.sent)
            && there
                .is_some_and(|there| without_heartbeats(there) == without_heartbeats(&self.stored))
    }
}

fn without_heartbeats(status: &NodeStatus) -> NodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    status
}

/// Reports the status forever: changes at once, all else periodically.
pub(crate) async fn report(kubelet: Arc<Kubelet>, facts: Facts) {
    let api: Api<Node> = Api::all(kubelet.client.clone());
    let mut changes = kubelet.managers.changes();
    let mut last: Option<Report> = None;
    loop {
        kubelet.until_running().await;
        changes.mark_unchanged();
        // The node lifecycle controller may have changed the conditions meanwhile.
        let there = api
            .get(&kubelet.name)
            .await
            .ok()
            .and_then(|node| node.status);
        let before = there
            .as_ref()
            .or_else(|| last.as_ref().map(|report| &report.sent));
        let status = status(&kubelet, &facts, before, Timestamp::now());
        let mut pause = UPDATE_INTERVAL;
        if !last
            .as_ref()
            .is_some_and(|report| report.still_holds(&status, there.as_ref()))
        {
            let patch = Patch::Strategic(patch(&status, before));
            match api
                .patch_status(&kubelet.name, &PatchParams::default(), &patch)
                .await
            {
                Ok(node) => {
                    last = Some(Report {
                        sent: status,
                        stored: node.status.unwrap_or_default(),
                        at: Instant::now(),
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, node = kubelet.name, "The node's status is not written yet; trying again");
                    pause = FIRST_RETRY * 5;
                }
            }
        }
        let until = Instant::now() + pause;
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return; },
            () = tokio::time::sleep_until(until.into()) => kubelet.managers.reconcile(),
        }
    }
}

/// Returns the patch that makes the status of a node this one.
fn patch(status: &NodeStatus, before: Option<&NodeStatus>) -> Value {
    let mut body = json!({ "status": status });
    // A resource that is gone needs an explicit null in the patch.
    for (field, list) in [
        ("capacity", before.and_then(|old| old.capacity.as_ref())),
        (
            "allocatable",
            before.and_then(|old| old.allocatable.as_ref()),
        ),
    ] {
        for name in list.into_iter().flat_map(BTreeMap::keys) {
            if body["status"][field].get(name).is_none() {
                body["status"][field][name] = Value::Null;
            }
        }
    }
    body
}

/// Renews the lease forever.
pub(crate) async fn renew(kubelet: Arc<Kubelet>, node: Node) {
    let api: Api<Lease> = Api::namespaced(kubelet.client.clone(), LEASES);
    let mut held: Option<Lease> = None;
    loop {
        kubelet.until_running().await;
        let outcome = match held.take() {
            Some(mut lease) => {
                if let Some(spec) = &mut lease.spec {
                    spec.renew_time = Some(MicroTime(Timestamp::now()));
                }
                api.replace(&kubelet.name, &PostParams::default(), &lease)
                    .await
            }
            None => match api.get_opt(&kubelet.name).await {
                Ok(Some(mut lease)) => {
                    lease.spec = Some(lease_spec(&kubelet.name));
                    api.replace(&kubelet.name, &PostParams::default(), &lease)
                        .await
                }
                Ok(None) => {
                    let lease = lease(&kubelet.name, &node);
                    api.create(&PostParams::default(), &lease).await
                }
                Err(error) => Err(error),
            },
        };
        let pause = match outcome {
            Ok(lease) => {
                held = Some(lease);
                RENEW_INTERVAL
            }
            Err(error) => {
                tracing::debug!(%error, node = kubelet.name, "The lease is not renewed yet");
                FIRST_RETRY * 5
            }
        };
        tokio::time::sleep(pause).await;
    }
}

fn lease_spec(name: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    }
}

fn lease(name: &str, node: &Node) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASES.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.to_owned(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(lease_spec(name)),
    }
}
