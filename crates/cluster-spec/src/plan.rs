//! What a cluster is made of: its nodes, their machines and kubelets, before anything of it exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use fixtures::machines::{Device, Machine};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::flavour::Flavour;
use crate::kubelet::{KubeletSettings, Taint, TopologyScope};
use crate::kubernetes::Assets;
use crate::runtime::Runtime;

/// Label and taint key of control plane nodes.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Label of worker nodes.
pub const WORKER: &str = "node-role.kubernetes.io/worker";
/// Label of the workers whose kubelets align each container.
pub const NUMA_CONTAINER: &str = "node-role.kubernetes.io/numa-container";
/// Label of the workers whose kubelets align whole pods.
pub const NUMA_POD: &str = "node-role.kubernetes.io/numa-pod";
/// Label of the nodes of a hosted cluster, with the name of their node pool (operator.md 4.5).
pub const NODE_POOL: &str = "hypershift.openshift.io/nodePool";
/// What the labels of roles begin with.
const ROLE: &str = "node-role.kubernetes.io/";

/// The description of a cluster to bring up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClusterSpec {
    /// Name; also the name of its directory below the state root.
    pub name: String,
    /// Directory of all clusters.
    pub state_root: PathBuf,
    /// The Kubernetes programs.
    pub assets: Assets,
    /// Directory with `numaresources-testbed` and the programs of the stack.
    pub bin_dir: PathBuf,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
    /// Fault: every volume that asks for the kubelet's podresources socket gets that of a proxy that hides allocations.
    #[serde(default)]
    pub hide_allocations: bool,
    /// The kind of OpenShift, if the cluster is one.
    #[serde(default)]
    pub flavour: Option<Flavour>,
    /// The container runtime of the nodes.
    #[serde(default)]
    pub runtime: Runtime,
}

/// The description of one node to bring up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodePlan {
    /// Name of the Kubernetes Node.
    pub name: String,
    /// Its simulated hardware.
    pub machine: Machine,
    /// The settings that its kubelet starts with.
    pub kubelet: KubeletSettings,
    /// Labels that an administrator gives it.
    pub labels: BTreeMap<String, String>,
    /// Taints that it registers with.
    pub taints: Vec<Taint>,
}

impl NodePlan {
    /// Returns the node `control-plane-0`: it is tainted, and its kubelet manages no resources.
    pub fn control_plane(machine: &Machine) -> Self {
        Self {
            name: "control-plane-0".to_owned(),
            machine: machine.clone(),
            kubelet: KubeletSettings::unmanaged(),
            labels: roles([CONTROL_PLANE]),
            taints: vec![Taint {
                key: CONTROL_PLANE.to_owned(),
                effect: "NoSchedule".to_owned(),
            }],
        }
    }

    /// Returns the nodes of a usual cluster: one for the control plane and this number of workers, of which the first half (rounded up) has
    /// container scope.
    pub fn all(workers: usize, machine: &Machine) -> Vec<Self> {
        let scope = |index: usize| {
            if index < workers.div_ceil(2) {
                TopologyScope::Container
            } else {
                TopologyScope::Pod
            }
        };
        let mut nodes = vec![Self::control_plane(machine)];
        nodes.extend((0..workers).map(|index| Self::worker(index, scope(index), machine)));
        nodes
    }

    /// Returns a worker with single-numa-node alignment of this scope, in the pool of that scope.
    pub fn worker(index: usize, scope: TopologyScope, machine: &Machine) -> Self {
        let pool = match scope {
            TopologyScope::Container => NUMA_CONTAINER,
            TopologyScope::Pod => NUMA_POD,
        };
        Self {
            name: format!("worker-{index}"),
            machine: machine.clone(),
            kubelet: KubeletSettings::with_scope(scope),
            labels: roles([WORKER, pool]),
            taints: Vec::new(),
        }
    }

    /// Returns the node as one of a hosted cluster. There a worker belongs to exactly one node pool, by a label in place of a role: that of its
    /// role beside `worker`, or the pool `worker`.
    #[must_use]
    pub fn hosted(mut self) -> Self {
        if self.labels.contains_key(CONTROL_PLANE) || self.labels.contains_key(NODE_POOL) {
            return self;
        }
        let is_of_pool = |label: &str| label != WORKER && label.starts_with(ROLE);
        let role = self.labels.keys().find(|label| is_of_pool(label));
        let role = role.map_or(WORKER, String::as_str);
        let pool = role.trim_start_matches(ROLE).to_owned();
        self.labels.retain(|label, _| !is_of_pool(label));
        self.labels.insert(NODE_POOL.to_owned(), pool);
        self
    }

    /// Returns the simulated devices by resource. A node with taints, like the control plane's, has none.
    pub fn devices(&self) -> impl Iterator<Item = (&String, &Vec<Device>)> {
        let worker = self.taints.is_empty();
        self.machine.devices().iter().filter(move |_| worker)
    }

    /// Returns the first resource of which the node does not report all devices. `reported` returns the number that it reports.
    pub fn unreported_devices(&self, reported: impl Fn(&str) -> Option<usize>) -> Option<&str> {
        self.devices()
            .find(|(resource, devices)| reported(resource) != Some(devices.len()))
            .map(|(resource, _)| resource.as_str())
    }
}

impl ClusterSpec {
    /// Returns the default cluster: one control plane node and four workers, two of each scope, on the default machine.
    pub fn default_workers(name: &str, state_root: &Path, assets: Assets, bin_dir: &Path) -> Self {
        Self::with_workers(
            name,
            state_root,
            assets,
            bin_dir,
            4,
            &Machine::default_profile(),
        )
    }

    /// Returns the default cluster with another number of workers and another machine.
    pub fn with_workers(
        name: &str,
        state_root: &Path,
        assets: Assets,
        bin_dir: &Path,
        workers: usize,
        machine: &Machine,
    ) -> Self {
        Self {
            name: name.to_owned(),
            state_root: state_root.to_owned(),
            assets,
            bin_dir: bin_dir.to_owned(),
            nodes: NodePlan::all(workers, machine),
            hide_allocations: false,
            flavour: None,
            runtime: Runtime::Builtin,
        }
    }

    /// Returns the directory of the cluster.
    pub fn dir(&self) -> PathBuf {
        self.state_root.join(&self.name)
    }

    /// Returns the name of the cluster's control group below each hierarchy of the host, if its runtime needs one. It follows from the
    /// directory, so that two clusters on a machine never share one, and whoever removes the cluster knows it.
    pub fn control_group(&self) -> Option<String> {
        match self.runtime {
            Runtime::Builtin => None,
            Runtime::Containerd(_) => {
                let digest = Sha256::digest(self.dir().as_os_str().as_encoded_bytes());
                Some(format!("numaresources-{}", HEXLOWER.encode(&digest[..6])))
            }
        }
    }
}

/// Returns the labels of these roles; they have no value.
pub fn roles<const N: usize>(labels: [&str; N]) -> BTreeMap<String, String> {
    labels.map(|label| (label.to_owned(), String::new())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_of_a_hosted_cluster_is_in_the_node_pool_of_its_role() {
        let machine = Machine::default_profile();
        let labels = |plan: NodePlan| plan.hosted().labels;
        let in_pool = |pool: &str| {
            let mut labels = roles([WORKER]);
            labels.insert(NODE_POOL.to_owned(), pool.to_owned());
            labels
        };
        let worker = NodePlan::worker(0, TopologyScope::Pod, &machine);
        assert_eq!(labels(worker.clone()), in_pool("numa-pod"));
        assert_eq!(labels(worker.clone().hosted()), in_pool("numa-pod"));
        let plain = NodePlan {
            labels: roles([WORKER]),
            ..worker
        };
        assert_eq!(labels(plain), in_pool("worker"));
        let control_plane = NodePlan::control_plane(&machine);
        assert_eq!(labels(control_plane), roles([CONTROL_PLANE]));
    }

    #[test]
    fn worker_is_complete_when_it_reports_every_device() {
        let worker = NodePlan::worker(0, TopologyScope::Pod, &Machine::default_profile());
        let all = |resource: &str| worker.machine.devices().get(resource).map(Vec::len);
        assert_eq!(worker.unreported_devices(all), None);
        let (last, _) = worker.machine.devices().last_key_value().unwrap();
        let one_less = |resource: &str| all(resource).map(|n| n - usize::from(resource == last));
        assert_eq!(worker.unreported_devices(one_less), Some(last.as_str()));
        assert!(worker.unreported_devices(|_| None).is_some());
    }

    #[test]
    fn control_plane_has_no_devices_to_report() {
        let node = NodePlan::control_plane(&Machine::default_profile());
        assert_eq!(node.unreported_devices(|_| None), None);
    }
}
