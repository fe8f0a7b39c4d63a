//! `config.openshift.io/v1`: what the whole cluster is like. One object of each kind, but for the cluster operators.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// API group.
pub const GROUP: &str = "config.openshift.io";
/// Name of the one infrastructure and of the one API server.
pub const CLUSTER: &str = "cluster";
/// Cluster operator whose version is the cluster's (operator.md 2.1).
pub const VERSION_OPERATOR: &str = "openshift-apiserver";
/// `controlPlaneTopology` of a hosted cluster.
pub const EXTERNAL: &str = "External";

crate::object::custom_object!(
    /// That there is one makes a cluster an OpenShift.
    ClusterVersion, Value, Value, GROUP, "v1", "ClusterVersion", "clusterversions"
);

crate::object::custom_object!(
    /// What the cluster runs on.
    Infrastructure, Value, InfrastructureStatus, GROUP, "v1", "Infrastructure", "infrastructures"
);

/// What was found of the infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// Where the control plane is: [`EXTERNAL`] for a hosted cluster.
    #[serde(default)]
    pub control_plane_topology: String,
}

crate::object::custom_object!(
    /// A part of the cluster.
    ClusterOperator, Value, ClusterOperatorStatus, GROUP, "v1", "ClusterOperator", "clusteroperators"
);

/// State of a part of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterOperatorStatus {
    /// Versions of its operands.
    #[serde(default)]
    pub versions: Vec<OperandVersion>,
}

/// Version of an operand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperandVersion {
    /// Name of the operand.
    #[serde(default)]
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

crate::object::custom_object!(
    /// How the API server behaves.
    ApiServer, ApiServerSpec, Value, GROUP, "v1", "APIServer", "apiservers"
);

/// What is asked of the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// TLS settings of every server of the cluster; none is as the Intermediate ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
}

/// TLS settings by name, or in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSecurityProfile {
    /// `Old`, `Intermediate`, `Modern` or `Custom`.
    #[serde(rename = "type", default)]
    pub profile: String,
    /// The settings of `Custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomTlsProfile>,
}

/// TLS settings in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomTlsProfile {
    /// Cipher suites by their OpenSSL names.
    #[serde(default)]
    pub ciphers: Vec<String>,
    /// Smallest version, such as `VersionTLS12`.
    #[serde(rename = "minTLSVersion", default)]
    pub min_version: String,
}
