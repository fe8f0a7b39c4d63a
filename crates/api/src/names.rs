//! Names of objects, files, images and environment variables that several programs agree on (operator.md 2, 6; rte.md 9).

/// Namespace of the operands in our own installation.
pub const NAMESPACE: &str = "numaresources";
/// Namespace that the operator uses when the `NAMESPACE` variable is not set.
pub const DEFAULT_NAMESPACE: &str = "numaresources-operator";
/// The one image of the whole stack.
pub const STACK_IMAGE: &str = "localhost/numaresources/stack:dev";
/// Repository of [`STACK_IMAGE`], for references by digest.
pub const STACK_REPOSITORY: &str = "localhost/numaresources/stack";
/// Digest for [`STACK_IMAGE`] where an image must be pinned. No registry assigns a digest, so this is the SHA-256 of the reference.
pub const STACK_DIGEST: &str =
    "sha256:09871dc8c6ab263c9026ae9979c20fa0607bc5d16531a609567209b0f654d348";
/// Image of the suite, as a build of it names it: it has the programs of the stack and all that scenarios start.
pub const TESTS_IMAGE: &str = "localhost/numaresources/tests:dev";
/// An exporter-only image, as an administrator may provide one: its programs run as root. The nodes of the testbed have it.
pub const EXPORTER_IMAGE: &str = "localhost/numaresources/exporter:dev";
/// Repository of [`EXPORTER_IMAGE`].
pub const EXPORTER_REPOSITORY: &str = "localhost/numaresources/exporter";
/// Image of the exporter when neither the operator's own pod nor a flag gives one.
pub const BUILTIN_RTE_IMAGE: &str = "quay.io/openshift-kni/numaresources-operator:devel";

/// Only accepted name of a `NUMAResourcesOperator`.
pub const OPERATOR_CR: &str = "numaresourcesoperator";
/// Only accepted name of a `NUMAResourcesScheduler`.
pub const SCHEDULER_CR: &str = "numaresourcesscheduler";

/// Deployment of the operator itself.
pub const OPERATOR_DEPLOYMENT: &str = "numaresources-controller-manager";
/// ServiceAccount of the operator itself.
pub const OPERATOR_SERVICE_ACCOUNT: &str = "numaresources-controller-manager";
/// Lease of the operator's leader election.
pub const OPERATOR_LEASE: &str = "0e2a6bd3.openshift-kni.io";
/// Binary of the operator in its image.
pub const OPERATOR_BINARY: &str = "/bin/numaresources-operator";

/// Name of the exporter's ServiceAccount, Role, RoleBinding, ClusterRole and ClusterRoleBinding.
pub const RTE: &str = "rte";
/// Binary of the exporter in its image. The operator's binary acts as the exporter when it is started under this name.
pub const RTE_BINARY: &str = "/bin/resource-topology-exporter";
/// Container of the exporter in its pod.
pub const RTE_CONTAINER: &str = "resource-topology-exporter";
/// Container without work. It runs on the shared CPUs, so that the exporter can recognize them.
pub const RTE_HELPER_CONTAINER: &str = "shared-pool-container";
/// Service in front of the exporters' metrics.
pub const RTE_METRICS_SERVICE: &str = "numaresources-rte-metrics-service";
/// Secret with the certificate of the exporters' metrics.
pub const RTE_METRICS_SECRET: &str = "rte-metrics-service-cert";
/// Security context constraints of exporters with the legacy SELinux policy.
pub const RTE_SCC: &str = "resource-topology-exporter";
/// Security context constraints of exporters.
pub const RTE_SCC_V2: &str = "resource-topology-exporter-v2";
/// Admission policy of the exporters, and its binding: each exporter writes the topology of its own node and the status of its own pod only.
pub const RTE_OWN_NODE_POLICY: &str = "numaresources-rte-own-node";
/// Namespace in which a hosted cluster keeps the ConfigMaps with the configuration of its kubelets (operator.md 7).
pub const HYPERSHIFT_CONFIG_NAMESPACE: &str = "openshift-config-managed";
/// Name of the exporters' metrics port in pods and services.
pub const METRICS_PORT_NAME: &str = "metrics-port";

/// ServiceAccount, Deployment and container of the scheduler, and value of its `app` label.
pub const SCHEDULER: &str = "secondary-scheduler";
/// Binary of the scheduler in its image.
pub const SCHEDULER_BINARY: &str = "/bin/kube-scheduler";
/// ConfigMap with the scheduler's configuration.
pub const SCHEDULER_CONFIG_MAP: &str = "topo-aware-scheduler-config";
/// ClusterRole and ClusterRoleBinding of the scheduler.
pub const SCHEDULER_CLUSTER_ROLE: &str = "topology-aware-scheduler";
/// Role and RoleBinding of the scheduler's leader election.
pub const SCHEDULER_LEADER_ROLE: &str = "topology-aware-scheduler-leader-elect";
/// Lease of the scheduler's leader election.
pub const SCHEDULER_LEASE: &str = "numa-scheduler-leader";
/// Profile that pods name in `schedulerName`, unless the administrator sets another.
pub const SCHEDULER_PROFILE: &str = "topo-aware-scheduler";
/// The NUMA-aware scheduler plugin.
pub const SCHEDULER_PLUGIN: &str = "NodeResourceTopologyMatch";

/// Key of the configuration in the ConfigMaps of the exporter and the scheduler.
pub const CONFIG_KEY: &str = "config.yaml";
/// Key of the exporter's second file: settings of the kubelet beside policy and scope of its topology manager. The original does not have it.
pub const KUBELET_DETAILS_KEY: &str = "kubelet-details.yaml";
/// Key of the `KubeletConfig` in a ConfigMap of a hosted cluster.
pub const CONFIG_KEY_OF_HOSTED: &str = "config";
/// Directory in pods for dumps of the fingerprint status.
pub const PFP_STATUS_DIR: &str = "/run/pfpstatus";
/// Variable that names the directory of the fingerprint status dump.
pub const ENV_PFP_STATUS_DUMP: &str = "PFP_STATUS_DUMP";
/// Variable with the UID of the own pod, in scheduler pods: a container that starts again in its pod is the same candidate for the lease.
pub const ENV_POD_UID: &str = "POD_UID";
/// Variable with the node's name, in exporter pods.
pub const ENV_NODE_NAME: &str = "NODE_NAME";

/// Returns [`STACK_IMAGE`] pinned by [`STACK_DIGEST`].
pub fn pinned_stack_image() -> String {
    format!("{STACK_REPOSITORY}@{STACK_DIGEST}")
}

/// Returns the name of the legacy machine configuration of a pool (operator.md 4.4).
pub fn machine_config(cr: &str, pool: &str) -> String {
    format!("51-{cr}-{pool}")
}

/// Returns the name of a pool's exporter DaemonSet, which is also the name of the ConfigMap that the exporter reads.
pub fn rte_daemon_set(cr: &str, pool: &str) -> String {
    format!("{cr}-{pool}")
}
