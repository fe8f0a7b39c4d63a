//! Exporters and what they publish: nodes without an exporter, objects that nobody keeps up to date, objects of nodes that are gone.

use std::collections::{BTreeMap, BTreeSet};

use api::attributes;
use api::nrt::attribute;
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use manifests::{nfd, rte};
use serde::Deserialize as _;

use super::finding::{Finding, STACK};
use super::kubelets::Settings;
use super::observe::Observed;
use crate::cluster::{is_worker, takes_pods};

const COMPONENT: &str = "topology updater";

/// Checks every node that should have an exporter, and every topology.
pub(super) fn check(observed: &Observed) -> Vec<Finding> {
    let Some(topologies) = &observed.topologies else {
        return Vec::new();
    };
    let sets: Vec<&DaemonSet> = observed
        .daemon_sets
        .iter()
        .filter(|set| is_exporter(template_labels(set)))
        .collect();
    if sets.is_empty() && topologies.is_empty() {
        // the stack is not there yet
        return Vec::new();
    }
    let ready: BTreeSet<&str> = observed
        .pods
        .iter()
        .filter(|pod| is_exporter(pod.metadata.labels.as_ref()) && is_ready(pod))
        .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
        .collect();
    let published: BTreeMap<String, &NodeResourceTopology> = topologies
        .iter()
        .map(|topology| (topology.name_any(), topology))
        .collect();
    let mut findings = Vec::new();
    for node in &observed.nodes {
        let name = node.name_any();
        let is_meant = is_worker(node) && sets.iter().any(|set| selects(set, node));
        let has_exporter = ready.contains(name.as_str());
        if is_meant && !has_exporter {
            findings.push(
                Finding::error(&name, STACK, COMPONENT, "pod")
                    .expected("one ready pod")
                    .detected("none")
                    .fix(format!(
                        "see why its pod is missing or not ready: kubectl get pods -A -o wide --field-selector spec.nodeName={name}"
                    )),
            );
        }
        match published.get(&name) {
            None if is_meant && has_exporter => findings.push(
                Finding::error(&name, STACK, COMPONENT, "NodeResourceTopology")
                    .expected("published")
                    .detected("none")
                    .fix("read the log of the updater's pod on this node: it cannot write"),
            ),
            Some(topology) if !has_exporter => {
                let written = last_write(topology);
                findings.push(
                    Finding::warning(&name, STACK, COMPONENT, "NodeResourceTopology")
                        .expected("kept up to date by a ready updater")
                        .detected(format!("stale, last written {written}"))
                        .fix(
                            "bring the updater back, or delete the object: the scheduler trusts it",
                        ),
                );
            }
            Some(topology) => findings.extend(attributes_that_differ(observed, &name, topology)),
            None => {}
        }
    }
    for topology in topologies {
        let name = topology.name_any();
        if observed.node(&name).is_none() {
            findings.push(
                Finding::warning(&name, STACK, COMPONENT, "NodeResourceTopology")
                    .expected("a node of this name")
                    .detected("none: the node is gone")
                    .fix(format!("kubectl delete noderesourcetopologies {name}")),
            );
        }
    }
    findings
}

/// Returns whether the labels are those of an exporter: ours, the original's, or that of node-feature-discovery.
fn is_exporter(labels: Option<&BTreeMap<String, String>>) -> bool {
    let has = |wanted: &BTreeMap<String, String>| {
        let mut pairs = wanted.iter();
        labels.is_some_and(|labels| pairs.all(|(key, value)| labels.get(key) == Some(value)))
    };
    has(&rte::pod_labels()) || has(&nfd::pod_labels())
}

fn template_labels(set: &DaemonSet) -> Option<&BTreeMap<String, String>> {
    let template = &set.spec.as_ref()?.template;
    template.metadata.as_ref()?.labels.as_ref()
}

/// Returns whether a DaemonSet puts a pod on a node, as far as labels and taints tell.
fn selects(set: &DaemonSet, node: &Node) -> bool {
    let spec = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let selector = spec.and_then(|spec| spec.node_selector.as_ref());
    let tolerates = spec.is_some_and(|spec| spec.tolerations.is_some());
    let labels = node.metadata.labels.as_ref();
    let fits = selector
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
    fits && (tolerates || takes_pods(node))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn last_write(topology: &NodeResourceTopology) -> String {
    let fields = topology.metadata.managed_fields.iter().flatten();
    let latest = fields.filter_map(|field| field.time.as_ref()).max();
    latest.map_or_else(
        || "at an unknown time".to_owned(),
        |time| format!("at {}", time.0),
    )
}

/// Compares what the exporter says of the kubelet with what the kubelet says of itself.
fn attributes_that_differ(
    observed: &Observed,
    node: &str,
    topology: &NodeResourceTopology,
) -> Vec<Finding> {
    let kubelet = observed
        .kubelets
        .iter()
        .find(|kubelet| kubelet.node == node);
    let config = kubelet.and_then(|kubelet| kubelet.config.as_ref().ok());
    let Some(settings) = config.and_then(|config| Settings::deserialize(config).ok()) else {
        return Vec::new();
    };
    [
        (
            attributes::TOPOLOGY_MANAGER_POLICY,
            settings.topology_manager_policy,
        ),
        (
            attributes::TOPOLOGY_MANAGER_SCOPE,
            settings.topology_manager_scope,
        ),
    ]
    .into_iter()
    .filter_map(|(name, actual)| {
        let told = attribute(&topology.attributes, name)?;
        (told != actual).then(|| {
            Finding::warning(node, STACK, COMPONENT, name)
                .expected(format!("{actual}, as the kubelet has it"))
                .detected(told)
                .fix("correct the updater's configuration, or restart its pod on this node")
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::observe::Kubelet;
    use super::*;

    fn node(name: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": ""}}})
    }

    fn topology(name: &str, scope: &str) -> Value {
        json!({"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": name}, "zones": [],
            "attributes": [{"name": "topologyManagerScope", "value": scope}]})
    }

    fn exporter(node: &str, ready: &str) -> Value {
        json!({"metadata": {"name": node, "labels": {"name": "resource-topology"}}, "spec": {"nodeName": node, "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn set() -> Value {
        json!({"metadata": {"name": "e"}, "spec": {"selector": {}, "template": {
            "metadata": {"labels": {"name": "resource-topology"}}, "spec": {"containers": []}}}})
    }

    fn typed<T: serde::de::DeserializeOwned>(values: &[Value]) -> Vec<T> {
        serde_json::from_value(Value::from(values.to_vec())).unwrap()
    }

    fn cluster(topologies: &[Value], exporters: &[Value], sets: &[Value]) -> Observed {
        Observed {
            nodes: typed(&[node("a"), node("b")]),
            kubelets: ["a", "b"]
                .map(|node| Kubelet {
                    node: node.to_owned(),
                    config: Ok(json!({"topologyManagerScope": "pod"})),
                })
                .into(),
            topologies: Some(typed(topologies)),
            daemon_sets: typed(sets),
            pods: typed(exporters),
            ..Observed::default()
        }
    }

    fn lines(observed: &Observed) -> Vec<String> {
        let findings = check(observed);
        findings
            .iter()
            .map(|f| format!("{} {}: {}", f.node, f.setting, f.detected))
            .collect()
    }

    #[test]
    fn a_cluster_in_order_and_one_without_the_stack_have_no_findings() {
        let topologies = [topology("a", "pod"), topology("b", "pod")];
        let exporters = [exporter("a", "True"), exporter("b", "True")];
        let good = cluster(&topologies, &exporters, &[set()]);
        assert_eq!(lines(&good), [""; 0]);
        assert_eq!(lines(&cluster(&[], &[], &[])), [""; 0]);
        assert_eq!(lines(&Observed::default()), [""; 0]);
    }

    #[test]
    fn missing_exporters_and_what_they_left_are_found() {
        let topologies = [
            topology("a", "pod"),
            topology("b", "pod"),
            topology("gone", "pod"),
        ];
        let broken = cluster(
            &topologies,
            &[exporter("a", "True"), exporter("b", "False")],
            &[set()],
        );
        assert_eq!(
            lines(&broken),
            [
                "b pod: none",
                "b NodeResourceTopology: stale, last written at an unknown time",
                "gone NodeResourceTopology: none: the node is gone",
            ]
        );
    }

    #[test]
    fn a_ready_exporter_that_publishes_nothing_or_something_else_is_found() {
        let exporters = [exporter("a", "True"), exporter("b", "True")];
        let broken = cluster(&[topology("b", "container")], &exporters, &[set()]);
        assert_eq!(
            lines(&broken),
            [
                "a NodeResourceTopology: none",
                "b topologyManagerScope: container"
            ]
        );
    }
}
