//! What the controllers know of the cluster, and what the command line and the environment ask for.

use manifests::platform::{Platform, TlsSettings};
use manifests::rte::Image;

use crate::images::Policy;

/// Found out at start, and the same until the operator ends. With this and the objects that a controller has read, its plan is pure.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    /// Namespace of the operands.
    pub(crate) namespace: String,
    /// Kind of cluster.
    pub(crate) platform: Platform,
    /// Exporter image when the operator resource sets none.
    pub(crate) image: Image,
    /// Which images may run.
    pub(crate) images: Policy,
    /// TLS settings of the operands.
    pub(crate) tls: TlsSettings,
    /// TCP ports of the API server.
    pub(crate) api_server_ports: Vec<u16>,
    /// Whether the API server knows admission policies.
    pub(crate) has_admission_policies: bool,
    /// Whether conditions of machine config pools are copied into the status of the operator resource.
    pub(crate) forwards_pool_conditions: bool,
    /// Full version of the cluster.
    pub(crate) version: String,
    /// Whether the kubelets leave terminated pods out of their answers to exporters.
    pub(crate) lists_active_pods: bool,
}

#[cfg(test)]
impl Installation {
    /// Returns what a test needs to plan anything.
    pub(crate) fn example(platform: Platform) -> Self {
        Self {
            namespace: "ns".into(),
            platform,
            image: Image {
                reference: "own".into(),
                pull_policy: Some("Always".into()),
                is_own: true,
                is_stack: true,
            },
            images: Policy::default(),
            tls: TlsSettings::default(),
            api_server_ports: vec![6443],
            has_admission_policies: true,
            forwards_pool_conditions: false,
            version: "4.20.0".into(),
            lists_active_pods: false,
        }
    }
}
