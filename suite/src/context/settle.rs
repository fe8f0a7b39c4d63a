//! *Settled*: on every node the published fingerprint equals the one computed from the API's pods, and nothing is missing that the node had
//! at the end of the set-up.
//!
//! The exporter takes fingerprint and zones from one scan of the node, so equal fingerprints mean that the zones account for exactly these
//! pods. Pods without exclusive resources are not in the fingerprint (scheduler.md 5.4). Where such a pod matters, [`Context::barrier`]
//! proves that the exporter has looked since.

use std::collections::BTreeSet;

use api::attributes;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use twox_hash::XxHash64;

use crate::context::Context;
use crate::context::padding::NUMACELL;
use crate::observed::{NodeTopology, topology_of};
use crate::recorder::PollResult;
use crate::resources::{CPU, Resources, is_native};
use crate::step::StepError;
use crate::workload::{PodPlan, ResourceRequest};

impl Context {
    /// Waits until no node lacks anything that it had at the end of the set-up, and returns the NRTs at that time. A scenario measures its
    /// changes against them.
    pub async fn baseline(&self) -> Result<Vec<NodeTopology>, StepError> {
        self.until(
            "every node has what it had at the end of the set-up",
            self.deadlines().settled,
            async || {
                let now = self.topologies().await?;
                Ok(match self.incomplete(&now).await? {
                    None => PollResult::Ready(now),
                    Some(missing) => PollResult::NotYet(missing),
                })
            },
        )
        .await
    }

    /// Waits until each of these nodes has an NRT. An exporter whose pod is ready may still be about to publish for the first time.
    pub async fn topologies_are_there(&self, nodes: &[String]) -> Result<(), StepError> {
        let limit = self.deadlines().settled;
        self.until("no NRT is missing", limit, async || {
            let present = self.topologies().await?;
            let mut nodes = nodes.iter();
            let missing = nodes.find(|node| !present.iter().any(|one| one.node == **node));
            Ok(match missing {
                None => PollResult::Ready(()),
                Some(node) => PollResult::NotYet(format!("that of {node} is")),
            })
        })
        .await
    }

    /// Like [`Context::baseline`], for one node.
    pub async fn baseline_of(&self, node: &str) -> Result<NodeTopology, StepError> {
        topology_of(&self.baseline().await?, node).cloned()
    }

    /// Returns what the nodes lack now and had at the end of the set-up.
    async fn incomplete(&self, topologies: &[NodeTopology]) -> Result<Option<String>, StepError> {
        let nodes = Api::<Node>::all(self.client());
        let nodes = nodes.list(&ListParams::default()).await?.items;
        Ok(self.facts().incomplete(topologies, &nodes))
    }

    /// Waits until the cluster is settled and returns the NRT of one node at that time.
    pub async fn settled_on(&self, node: &str) -> Result<NodeTopology, StepError> {
        let nodes = self.settle().await?;
        let found = nodes.into_iter().find(|topology| topology.node == node);
        found.ok_or_else(|| StepError::fail(format!("the NRT of {node} is gone")))
    }

    /// Waits until the cluster is settled and returns the NRTs at that time.
    pub async fn settle(&self) -> Result<Vec<NodeTopology>, StepError> {
        self.until(
            "every node is complete and every published fingerprint is that of the API's pods",
            self.deadlines().settled,
            async || {
                let first = match self.poll_settled().await? {
                    PollResult::Ready(nodes) => nodes,
                    unsettled @ PollResult::NotYet(_) => return Ok(unsettled),
                };
                // the NRTs must be the same at the next poll
                tokio::time::sleep(self.cluster.between_polls).await;
                let second = match self.poll_settled().await? {
                    PollResult::Ready(nodes) => nodes,
                    unsettled @ PollResult::NotYet(_) => return Ok(unsettled),
                };
                Ok(if first == second {
                    self.remember_settled(&second);
                    PollResult::Ready(second)
                } else {
                    PollResult::NotYet("settled, but the NRTs still change".to_owned())
                })
            },
        )
        .await
    }

    /// Polls once: returns the NRTs if every node is complete and every fingerprint equals that of the API's pods.
    pub(crate) async fn poll_settled(&self) -> Result<PollResult<Vec<NodeTopology>>, StepError> {
        let nodes = self.topologies().await?;
        if let Some(missing) = self.incomplete(&nodes).await? {
            return Ok(PollResult::NotYet(missing));
        }
        let pods = Api::<Pod>::all(self.client());
        let pods = pods.list(&ListParams::default()).await?.items;
        let unsettled = nodes.iter().find_map(|node| unsettled(node, &pods));
        Ok(unsettled.map_or(PollResult::Ready(nodes), PollResult::NotYet))
    }

    /// Proves that a node's exporter scans it again after the call: creates a pod there that holds only a numacell device, waits until it
    /// is in the fingerprint, and deletes it. Works on full nodes, too. Returns the settled NRTs.
    pub async fn barrier(&self, node: &NodeTopology) -> Result<Vec<NodeTopology>, StepError> {
        let name = format!("barrier-{}", node.node);
        let devices = node.zones.iter().flat_map(|zone| zone.resources.keys());
        let Some(device) = devices.into_iter().find(|name| name.starts_with(NUMACELL)) else {
            return Err(StepError::fail(format!(
                "{} has no numacell devices",
                node.node
            )));
        };
        let device = Resources::from_iter([(device.clone(), 1000)]);
        let plan = PodPlan::new(&name, "", [ResourceRequest::Limits(device)]).bound_to(&node.node);
        self.create(plan.pod()).await?;
        self.pods_running(std::slice::from_ref(&name)).await?;
        self.settle().await?;
        self.delete::<Pod>(&name).await?;
        self.settle().await
    }
}

/// Returns what is not settled on a node, if anything.
pub(crate) fn unsettled(node: &NodeTopology, pods: &[Pod]) -> Option<String> {
    let Some(published) = node.attribute(attributes::POD_FINGERPRINT) else {
        return Some(format!("the NRT of {} has no fingerprint", node.node));
    };
    let counted = counted(node, pods);
    let computed = fingerprint(&counted);
    (computed != published).then(|| {
        let names: Vec<_> = counted
            .iter()
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect();
        let names = if names.is_empty() {
            "no pods".to_owned()
        } else {
            names.join(" ")
        };
        format!(
            "{} publishes {published}, but the API's pods have {computed} ({names})",
            node.node
        )
    })
}

/// Returns namespaces and names of the pods that the fingerprint of a node covers.
pub(crate) fn counted(node: &NodeTopology, pods: &[Pod]) -> Vec<(String, String)> {
    let all =
        node.attribute(attributes::POD_FINGERPRINT_METHOD) == Some(attributes::FINGERPRINT_ALL);
    let listed: BTreeSet<&str> = node
        .zones
        .iter()
        .flat_map(|zone| zone.resources.keys())
        .map(String::as_str)
        .collect();
    pods.iter()
        .filter(|pod| is_on(pod, &node.node) && (all || is_exclusive(pod, &listed)))
        .map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any()))
        .collect()
}

/// Computes the fingerprint of pods from namespaces and names (rte.md 6.1). It is not the exporter's own code, because it judges that.
pub fn fingerprint(pods: &[(String, String)]) -> String {
    let hash = |(namespace, name): &(String, String)| {
        XxHash64::oneshot(XxHash64::oneshot(0, namespace.as_bytes()), name.as_bytes())
    };
    let mut hashes: Vec<u64> = pods.iter().map(hash).collect();
    hashes.sort_unstable();
    let bytes: Vec<u8> = hashes.into_iter().flat_map(u64::to_le_bytes).collect();
    format!("pfp0v001{:016x}", XxHash64::oneshot(0, &bytes))
}

fn is_on(pod: &Pod, node: &str) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    bound && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns whether a container that lives as long as its pod holds something exclusively (scheduler.md 5.4).
fn is_exclusive(pod: &Pod, listed: &BTreeSet<&str>) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let guaranteed = pod
        .status
        .as_ref()
        .and_then(|status| status.qos_class.as_deref())
        == Some("Guaranteed");
    let sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let init = spec.init_containers.iter().flatten().filter(sidecar);
    spec.containers.iter().chain(init).any(|container| {
        let requests = container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref());
        requests
            .into_iter()
            .flatten()
            .any(|(name, quantity)| request_is_exclusive(name, quantity, guaranteed, listed))
    })
}

fn request_is_exclusive(
    name: &str,
    quantity: &Quantity,
    guaranteed: bool,
    listed: &BTreeSet<&str>,
) -> bool {
    let milli = api::quantity::milli(quantity).unwrap_or_default();
    if !is_native(name) {
        return milli > 0 && name.contains('/') && listed.contains(name);
    }
    guaranteed && milli > 0 && (name != CPU || milli % 1000 == 0)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use k8s_openapi::api::core::v1::PodStatus;

    fn pod(name: &str, resources: ResourceRequest, qos: &str) -> Pod {
        let mut pod = PodPlan::new(name, "s", [resources]).bound_to("n").pod();
        pod.metadata.namespace = Some("ns".to_owned());
        let container = &mut pod.spec.as_mut().expect("spec").containers[0];
        let resources = container.resources.as_mut().expect("resources");
        // as the API server does
        if resources.requests.is_none() {
            resources.requests.clone_from(&resources.limits);
        }
        pod.status = Some(PodStatus {
            qos_class: Some(qos.to_owned()),
            ..PodStatus::default()
        });
        pod
    }

    #[rstest]
    #[case::whole_cpus("2c 1Gi", "Guaranteed", true)]
    #[case::memory_alone_is_enough("1500m 1Gi", "Guaranteed", true)]
    #[case::burstable("2c 1Gi", "Burstable", false)]
    #[case::hugepages("h2=32", "Guaranteed", true)]
    #[case::burstable_with_a_device("500m d1=1", "Burstable", true)]
    #[case::scratch_space("eph=32Mi", "BestEffort", false)]
    fn exclusive_pods_are_told_apart(
        #[case] resources: &str,
        #[case] qos: &str,
        #[case] expected: bool,
    ) {
        let devices =
            crate::resources::DeviceNames([("d1".to_owned(), "example.com/a".to_owned())].into());
        let pod = pod(
            "p",
            ResourceRequest::Limits(Resources::literal(resources).with_devices(&devices)),
            qos,
        );
        assert_eq!(
            is_exclusive(&pod, &BTreeSet::from(["cpu", "example.com/a"])),
            expected
        );
    }

    /// The vectors of rte.md 6.3.
    #[rstest]
    #[case::none(&[], "pfp0v001ef46db3751d8e999")]
    #[case::one(&["default/pod-1"], "pfp0v0010c5658d8bde5056f")]
    #[case::two(&["default/pod-1", "kube-system/coredns-0"], "pfp0v001eab251937a99874d")]
    #[case::in_another_order(&["kube-system/coredns-0", "default/pod-1"], "pfp0v001eab251937a99874d")]
    #[case::twice(&["default/pod-1", "default/pod-1"], "pfp0v001dd8e38145964ce5b")]
    #[case::five(&["ns1/n1", "ns1/n2", "ns2/n1", "ns3/n1", "ns3/n2"], "pfp0v001b92008c14168b3a6")]
    #[case::without_namespace(&["/pod-1"], "pfp0v00126126f354694967d")]
    #[case::long_names(
        &["very-long-namespace-name-with-more-than-32-bytes-in-it/web-frontend-deployment-with-long-name-68b4594b44-c8kl7"],
        "pfp0v00173133a166bafdf3f"
    )]
    fn fingerprints_are_those_of_the_reference(#[case] pods: &[&str], #[case] expected: &str) {
        let pods: Vec<(String, String)> = pods
            .iter()
            .filter_map(|pod| pod.split_once('/'))
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
            .collect();
        assert_eq!(fingerprint(&pods), expected);
    }

    #[test]
    fn a_device_that_the_node_does_not_list_is_not_exclusive() {
        let pod = pod(
            "p",
            ResourceRequest::Limits(Resources::from_iter([("example.com/b".to_owned(), 1000)])),
            "BestEffort",
        );
        assert!(!is_exclusive(&pod, &BTreeSet::from(["example.com/a"])));
    }

    #[test]
    fn a_node_is_settled_when_its_fingerprint_is_that_of_its_pods() {
        let attribute =
            |value: &str| vec![(attributes::POD_FINGERPRINT.to_owned(), value.to_owned())];
        let mut node = NodeTopology {
            node: "n".into(),
            resource_version: "1".into(),
            // vector 1 (rte.md 6.3)
            attributes: attribute("pfp0v001ef46db3751d8e999"),
            zones: Vec::new(),
        };
        assert_eq!(
            unsettled(&node, &[pod("p", ResourceRequest::Nothing, "BestEffort")]),
            None
        );
        let running = pod(
            "p",
            ResourceRequest::Limits(Resources::literal("1c 1Gi")),
            "Guaranteed",
        );
        let text = unsettled(&node, std::slice::from_ref(&running)).expect("not settled");
        assert!(
            text.starts_with(
                "n publishes pfp0v001ef46db3751d8e999, but the API's pods have pfp0v001"
            ),
            "{text}"
        );
        assert!(text.ends_with(" (ns/p)"), "{text}");
        let mut over = running;
        over.status.as_mut().expect("status").phase = Some("Succeeded".to_owned());
        assert_eq!(unsettled(&node, &[over]), None);
        node.attributes.clear();
        assert_eq!(
            unsettled(&node, &[]).as_deref(),
            Some("the NRT of n has no fingerprint")
        );
    }
}
