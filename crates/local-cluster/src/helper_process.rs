//! Processes that add to a local cluster what its Kubernetes programs do not do. Each runs this program in another role as a child of the
//! holder, so it lives as long as the cluster, even after the process that brought the cluster up has ended.

use cluster_spec::plan::ClusterSpec;

use super::control_plane;
use super::supervise::protocol::ProcessSpec;

/// Returns the process that does what an OpenShift does by itself (`platform`).
pub(crate) fn platform(spec: &ClusterSpec) -> ProcessSpec {
    process(spec, "openshift")
}

/// Returns the process that enforces network policies (`policies`).
pub(crate) fn policies(spec: &ClusterSpec) -> ProcessSpec {
    process(spec, "policies")
}

/// Returns the process with this role for a cluster.
fn process(spec: &ClusterSpec, role: &str) -> ProcessSpec {
    let argv = [
        control_plane::text(&spec.bin_dir.join("numaresources-testbed")),
        role.to_owned(),
        "--name".to_owned(),
        spec.name.clone(),
        "--state-root".to_owned(),
        control_plane::text(&spec.state_root),
    ];
    control_plane::process(&spec.dir(), role, argv.to_vec())
}
