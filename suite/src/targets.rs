//! What faults may strike while somebody else measures.

use cluster_faults::Targets;

/// The accounts of the stack.
pub const STACK: &str = "system:serviceaccount:numaresources:*";
/// Groups and resources that the stack, the controllers, the default scheduler and the kubelets read and write.
const RESOURCES: [(&str, &[&str]); 5] = [
    (
        "",
        &[
            "pods",
            "nodes",
            "events",
            "configmaps",
            "namespaces",
            "serviceaccounts",
        ],
    ),
    ("apps", &["daemonsets", "deployments", "replicasets"]),
    ("topology.node.k8s.io", &["noderesourcetopologies"]),
    (
        "nodetopology.openshift.io",
        &["numaresourcesoperators", "numaresourcesschedulers"],
    ),
    ("coordination.k8s.io", &["leases"]),
];

/// Returns the requests of the stack, the controllers, the default scheduler and the kubelets as targets, and no other part of a cluster. The
/// administrator's requests are not among them, because they are the measurement.
pub fn requests() -> Targets {
    let resources = RESOURCES.iter().flat_map(|(group, resources)| {
        let pair = |resource: &&str| ((*group).to_owned(), (*resource).to_owned());
        resources.iter().map(pair)
    });
    Targets {
        resources: resources.collect(),
        users: vec![
            STACK.to_owned(),
            "system:node:*".to_owned(),
            "system:kube-controller-manager".to_owned(),
            "system:kube-scheduler".to_owned(),
        ],
        ..Targets::default()
    }
}
