//! `config.openshift.io/v1`: settings of the whole cluster. Each kind has one object, except the cluster operators.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// API group.
pub const GROUP: &str = "config.openshift.io";
/// Name of the only `Infrastructure` and of the only `APIServer` object.
pub const CLUSTER: &str = "cluster";
/// Cluster operator whose version counts as the version of the cluster (operator.md 2.1).
pub const VERSION_OPERATOR: &str = "openshift-apiserver";
/// `controlPlaneTopology` of a hosted cluster.
pub const EXTERNAL: &str = "External";

crate::object::custom_object!(
    /// A cluster that has this object is an OpenShift cluster.
    ClusterVersion, Value, Value, GROUP, "v1", "ClusterVersion", "clusterversions"
);

crate::object::custom_object!(
    /// The platform that the cluster runs on.
    Infrastructure, Value, InfrastructureStatus, GROUP, "v1", "Infrastructure", "infrastructures"
);

/// Observed state of the infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// Location of the control plane: [`EXTERNAL`] for a hosted cluster.
    #[serde(default)]
    pub control_plane_topology: String,
}

crate::object::custom_object!(
    /// A component of the cluster.
    ClusterOperator, Value, ClusterOperatorStatus, GROUP, "v1", "ClusterOperator", "clusteroperators"
);

/// State of a component of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterOperatorStatus {
    /// Versions of the component's operands.
    #[serde(default)]
    pub versions: Vec<OperandVersion>,
}

/// Version of an operand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperandVersion {
    /// Name of the operand.
    #[serde(default)]
    pub name: String,
    /// Version of the operand.
    #[serde(default)]
    pub version: String,
}

crate::object::custom_object!(
    /// Settings of the API server.
    ApiServer, ApiServerSpec, Value, GROUP, "v1", "APIServer", "apiservers"
);

/// Desired settings of the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// TLS settings of every server of the cluster; without them the Intermediate profile applies.
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
