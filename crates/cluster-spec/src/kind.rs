//! A cluster of kind with the simulated hardware of a plan: kind's own configuration, and the files that it mounts into its nodes.
//!
//! kind makes nodes of containers. Each worker gets the files of its machine mounted over the kernel's, and a patch by which kubeadm writes the
//! settings of its kubelet. The shapes are those of kind's `v1alpha4` configuration and of kubeadm's patches.

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::{Value, json};

use crate::hardware;
use crate::plan::{CONTROL_PLANE, NodePlan};

/// Directory in a node with the patches that kubeadm applies.
const PATCHES: &str = "/numaresources/patches";
/// File of a patch: kubeadm reads its target and its type from the name.
const KUBELET_PATCH: &str = "kubeletconfiguration+merge.json";
/// Manifest with the labels of nodes and the mark of the cluster.
pub const LABELS: &str = "labels.json";

/// A plan of nodes as a cluster of kind.
#[derive(Clone, Debug)]
pub struct Kind<'a> {
    /// Name of the cluster, which begins the names of its nodes.
    pub name: &'a str,
    /// The nodes; exactly one has the control plane.
    pub nodes: &'a [NodePlan],
    /// Directory for the files that are mounted; absolute, as kind wants it.
    pub dir: &'a Path,
    /// Label of the namespace `kube-system` by which the suite may use the cluster: key and value.
    pub mark: (&'a str, &'a str),
}

impl Kind<'_> {
    /// Returns the configuration for `kind create cluster --config`.
    pub fn configuration(&self) -> Value {
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|plan| {
                if is_control_plane(plan) {
                    json!({ "role": "control-plane" })
                } else {
                    self.worker(plan)
                }
            })
            .collect();
        json!({
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "name": self.name,
            // A machine has fewer CPUs than its simulated nodes, and a runtime cannot pin a container to one that does not exist.
            "containerdConfigPatches": [concat!(
                "version = 2\n",
                "[plugins.\"io.containerd.grpc.v1.cri\"]\n",
                "  disable_cgroup = true\n",
            )],
            "nodes": nodes,
        })
    }

    /// Writes what the configuration mounts, and [`LABELS`] with what has to be applied to the new cluster.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn write(&self) -> std::io::Result<()> {
        for plan in self.workers() {
            hardware::write_tree(&plan.machine, &self.hardware(plan))?;
            let patches = self.patches(plan);
            fs::create_dir_all(&patches)?;
            let settings = plan.kubelet.managers(&plan.machine);
            fs::write(patches.join(KUBELET_PATCH), format!("{settings:#}\n"))?;
        }
        fs::write(self.dir.join(LABELS), format!("{:#}\n", self.labels()))
    }

    /// Returns a list of the cluster's nodes with their labels, and of the namespace that carries the mark by which the suite may use the cluster.
    /// A kubelet may not give its node labels of that domain, so they are applied afterwards.
    fn labels(&self) -> Value {
        let (key, value) = self.mark;
        let mut items = vec![json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "kube-system", "labels": { key: value } },
        })];
        items.extend(self.workers().enumerate().map(|(index, plan)| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": self.node_name(index), "labels": plan.labels },
            })
        }));
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }

    /// Returns the name that kind gives to a worker, counted from 0.
    fn node_name(&self, index: usize) -> String {
        match index {
            0 => format!("{}-worker", self.name),
            _ => format!("{}-worker{}", self.name, index + 1),
        }
    }

    fn worker(&self, plan: &NodePlan) -> Value {
        let tree = self.hardware(plan);
        let mut mounts: Vec<Value> = hardware::PARTS
            .iter()
            .map(|(part, place)| mount(&tree.join(part), place))
            .collect();
        mounts.push(mount(&self.patches(plan), PATCHES));
        json!({
            "role": "worker",
            "extraMounts": mounts,
            "kubeadmConfigPatches": [format!("kind: JoinConfiguration\npatches:\n  directory: {PATCHES}\n")],
        })
    }

    fn workers(&self) -> impl Iterator<Item = &NodePlan> {
        self.nodes.iter().filter(|plan| !is_control_plane(plan))
    }

    fn hardware(&self, plan: &NodePlan) -> PathBuf {
        self.dir.join(&plan.name).join("hardware")
    }

    fn patches(&self, plan: &NodePlan) -> PathBuf {
        self.dir.join(&plan.name).join("patches")
    }
}

fn is_control_plane(plan: &NodePlan) -> bool {
    plan.labels.contains_key(CONTROL_PLANE)
}

fn mount(host: &Path, container: &str) -> Value {
    json!({ "hostPath": host, "containerPath": container, "readOnly": true })
}

#[cfg(test)]
mod tests {
    use fixtures::machines::Machine;

    use super::*;

    fn written(workers: usize) -> (tempfile::TempDir, Value) {
        let dir = tempfile::tempdir().expect("a directory");
        let nodes = NodePlan::all(workers, &Machine::default_profile());
        let kind = Kind {
            name: "numa",
            nodes: &nodes,
            dir: dir.path(),
            mark: ("a/mark", "yes"),
        };
        kind.write().expect("the files are written");
        let configuration = kind.configuration();
        (dir, configuration)
    }

    #[test]
    fn everything_that_is_mounted_was_written() {
        let (_dir, configuration) = written(3);
        let nodes = configuration["nodes"].as_array().expect("nodes");
        assert_eq!(nodes.len(), 4);
        for worker in &nodes[1..] {
            let mounts = worker["extraMounts"].as_array().expect("mounts");
            assert_eq!(mounts.len(), 6);
            for mount in mounts {
                let path = mount["hostPath"].as_str().expect("a path");
                assert!(Path::new(path).exists(), "{path}");
            }
        }
    }

    #[test]
    fn a_worker_shows_its_machine_and_nothing_of_the_host() {
        let (dir, configuration) = written(1);
        let mounts = &configuration["nodes"][1]["extraMounts"];
        let places: Vec<_> = mounts
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|mount| mount["containerPath"].as_str())
            .collect();
        assert_eq!(
            places,
            [
                "/sys/devices/system/cpu",
                "/sys/devices/system/node",
                "/sys/kernel/mm/hugepages",
                "/proc/cpuinfo",
                "/proc/meminfo",
                "/numaresources/patches"
            ]
        );
        let zones = dir.path().join("worker-0/hardware/node/online");
        assert_eq!(fs::read_to_string(zones).expect("zones"), "0-1\n");
    }

    #[test]
    fn kubeadm_patches_only_what_the_plan_says_of_the_kubelet() {
        let (dir, configuration) = written(2);
        assert_eq!(
            configuration["nodes"][1]["kubeadmConfigPatches"],
            json!(["kind: JoinConfiguration\npatches:\n  directory: /numaresources/patches\n"])
        );
        let patch = |worker: &str| -> Value {
            let file = dir
                .path()
                .join(worker)
                .join("patches/kubeletconfiguration+merge.json");
            serde_json::from_str(&fs::read_to_string(file).expect("a patch")).expect("JSON")
        };
        assert_eq!(patch("worker-0")["topologyManagerScope"], "container");
        assert_eq!(patch("worker-1")["topologyManagerScope"], "pod");
        let fields: Vec<_> = patch("worker-0")
            .as_object()
            .expect("fields")
            .keys()
            .cloned()
            .collect();
        assert_eq!(
            fields,
            [
                "cpuManagerPolicy",
                "evictionHard",
                "memoryManagerPolicy",
                "reservedMemory",
                "reservedSystemCPUs",
                "systemReserved",
                "topologyManagerPolicy",
                "topologyManagerScope"
            ]
        );
    }

    #[test]
    fn labels_are_for_the_names_that_kind_gives() {
        let (dir, _) = written(2);
        let file = dir.path().join(LABELS);
        let list: Value =
            serde_json::from_str(&fs::read_to_string(file).expect("a file")).expect("JSON");
        let names: Vec<_> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| item["metadata"]["name"].clone())
            .collect();
        assert_eq!(names, ["kube-system", "numa-worker", "numa-worker2"]);
        assert_eq!(
            list["items"][0]["metadata"]["labels"],
            json!({ "a/mark": "yes" })
        );
        assert_eq!(
            list["items"][2]["metadata"]["labels"],
            json!({ "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/numa-pod": "" })
        );
    }
}
