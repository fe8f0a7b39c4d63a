use nrt::placement::{self, Container};
use serde_json::{Value, json};

use super::*;

/// A node with its zones, built step by step.
pub(in crate::nrt) struct Cluster {
    zones: Vec<Value>,
    running: Vec<(String, usize)>,
    pub(in crate::nrt) pods: Vec<Value>,
    pub(in crate::nrt) attributes: Vec<Value>,
}

fn quantity(name: &str, capacity: &str, allocatable: &str, available: &str) -> Value {
    json!({"name": name, "capacity": capacity, "allocatable": allocatable, "available": available})
}

impl Cluster {
    /// Creates a node with this number of zones, each with 24 CPUs, of which 2 are reserved and 18 are left.
    pub(in crate::nrt) fn of_zones(count: usize) -> Self {
        let zone = |id| {
            json!({
                "name": format!("node-{id}"), "type": "Node",
                "resources": [
                    quantity("cpu", "24", "22", "18"),
                    quantity("memory", "64Gi", "62Gi", "58Gi"),
                    quantity("hugepages-1Gi", "0", "0", "0"),
                    quantity("example.com/deviceA", "5", "5", "0"),
                ],
            })
        };
        let attribute = |name: &str, value: &str| json!({"name": name, "value": value});
        Self {
            zones: (0..count).map(zone).collect(),
            running: Vec::new(),
            pods: Vec::new(),
            attributes: vec![
                attribute("topologyManagerPolicy", "single-numa-node"),
                attribute("topologyManagerScope", "container"),
            ],
        }
    }

    /// Adds a Guaranteed pod that runs in a zone.
    pub(in crate::nrt) fn running(mut self, name: &str, zone: usize) -> Self {
        let mut running = pod(name, "4", "4Gi");
        running["spec"]["nodeName"] = json!("worker-0");
        running["status"]["phase"] = json!("Running");
        self.pods.push(running);
        self.running.push((name.to_owned(), zone));
        self
    }

    /// Adds a Guaranteed pod that waits.
    pub(in crate::nrt) fn waiting(mut self, name: &str, cpu: &str) -> Self {
        self.pods.push(pod(name, cpu, "1Gi"));
        self
    }

    pub(in crate::nrt) fn snapshot(&self) -> Snapshot {
        let containers = self.running.iter().map(|(pod, zone)| {
            let container = Container {
                namespace: "default",
                pod,
                container: "main",
            };
            (container, *zone)
        });
        let placed = placement::encode(containers, self.zones.len()).expect("encodable");
        let names = self
            .running
            .iter()
            .map(|(pod, _)| ("default", pod.as_str()));
        let published = fingerprint::compute(names).to_string();
        let attribute = |name: &str, value: &str| json!({"name": name, "value": value});
        let mut attributes = self.attributes.clone();
        attributes.extend([
            attribute("nodeTopologyPodsFingerprint", &published),
            attribute(
                "nodeTopologyPodsFingerprintMethod",
                "with-exclusive-resources",
            ),
            attribute(api::attributes::NUMA_PLACEMENT_METADATA, &placed.metadata),
        ]);
        let mut zones = self.zones.clone();
        for (zone, vector) in &placed.vectors {
            zones[*zone]["attributes"] =
                json!([attribute(api::attributes::NUMA_PLACEMENT_VECTOR, vector)]);
        }
        let topology =
            json!({"metadata": {"name": "worker-0"}, "attributes": attributes, "zones": zones});
        let node = |name: &str| {
            json!({
                "metadata": {"name": name},
                "status": {
                    "allocatable": {"cpu": "44", "memory": "124Gi", "pods": "110", "example.com/deviceA": "10"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            })
        };
        let nodes = json!([node("worker-0"), node("control-plane-0")]);
        Snapshot {
            topologies: serde_json::from_value(json!([topology])).expect("valid"),
            pods: serde_json::from_value(json!(self.pods)).expect("valid"),
            nodes: serde_json::from_value(nodes).expect("valid"),
        }
    }

    pub(in crate::nrt) fn picture(&self) -> Picture {
        Picture::new(&self.snapshot(), &[]).expect("a picture")
    }
}

/// Builds a Guaranteed pod.
fn pod(name: &str, cpu: &str, memory: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": memory});
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "topo-aware-scheduler",
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    })
}

#[test]
fn containers_are_shown_in_the_zone_that_the_exporter_publishes() {
    let picture = Cluster::of_zones(2)
        .running("a", 0)
        .running("b", 1)
        .running("c", 1)
        .picture();
    let node = &picture.nodes[0];
    let pods = |zone: usize| -> Vec<&str> {
        let holders = node.zones[zone].holders.iter();
        holders.map(|holder| holder.pod.as_str()).collect()
    };
    assert_eq!((pods(0), pods(1)), (vec!["a"], vec!["b", "c"]));
    assert_eq!(node.fingerprint, Fingerprint::Matches);
    assert_eq!((node.notes.len(), node.elsewhere.len()), (0, 0));
    assert_eq!(picture.without_topology, ["control-plane-0"]);
}

#[test]
fn a_pod_that_came_since_is_in_no_zone_and_the_fingerprint_differs() {
    let mut cluster = Cluster::of_zones(2).running("a", 0);
    let late = Cluster::of_zones(2).running("late", 0).pods;
    cluster.pods.extend(late);
    let node = &cluster.picture().nodes[0];
    assert_eq!(node.fingerprint, Fingerprint::Differs);
    assert_eq!(node.elsewhere.len(), 2);
    let note =
        "the zones of containers are not known: the writer counted 1 containers, the reader 2";
    assert_eq!(node.notes, [note]);
}

#[test]
fn a_pending_pod_gets_the_first_zone_with_room_or_the_reason_why_none_has() {
    let picture = Cluster::of_zones(2)
        .waiting("fits", "18")
        .waiting("large", "20")
        .waiting("larger", "60")
        .picture();
    let [fits, large, larger] = picture.pending.as_slice() else {
        panic!("{:?}", picture.pending);
    };
    let fit = |pending: &Pending| pending.nodes[0].clone();
    assert_eq!((fit(fits).fits, fit(fits).zones), (true, vec![0]));
    assert_eq!(
        fit(large).reasons,
        ["zones 0, 1 for container main: cpu 18 left, wanted 20"]
    );
    assert_eq!(fit(larger).reasons[0], "the node: cpu 44 left, wanted 60");
}

#[test]
fn zones_do_not_decide_where_the_policy_aligns_nothing() {
    let mut cluster = Cluster::of_zones(2).waiting("large", "20");
    cluster.attributes[0]["value"] = json!("best-effort");
    let fit = &cluster.picture().pending[0].nodes[0];
    assert!(fit.fits);
    assert_eq!(fit.reasons, ["any zone: its policy is best-effort"]);
}

#[test]
fn only_the_named_node_is_drawn_and_an_unknown_one_is_refused() {
    let snapshot = Cluster::of_zones(2).snapshot();
    let only = |name: &str| Picture::new(&snapshot, &[name.to_owned()]);
    assert_eq!(only("control-plane-0").expect("known").nodes.len(), 0);
    assert_eq!(only("worker-0").expect("known").without_topology.len(), 0);
    assert_eq!(
        only("worker-9").expect_err("unknown").to_string(),
        "there is neither a node nor a NodeResourceTopology named worker-9"
    );
}

#[test]
fn the_json_form_is_stable() {
    let picture = Cluster::of_zones(1)
        .running("a", 0)
        .waiting("fits", "2")
        .picture();
    let value = serde_json::to_value(&picture).expect("JSON");
    assert_eq!(value["format"], "nrt.numaresources/v1");
    let node = &value["nodes"][0];
    assert_eq!(
        (
            &node["name"],
            &node["policy"],
            &node["scope"],
            &node["fingerprint"]
        ),
        (
            &json!("worker-0"),
            &json!("single-numa-node"),
            &json!("container"),
            &json!("matches")
        )
    );
    let zone = &node["zones"][0];
    assert_eq!(
        zone["resources"][3],
        json!({"name": "memory", "capacity": "64Gi", "allocatable": "62Gi", "available": "58Gi"})
    );
    assert_eq!(
        zone["holders"],
        json!([{"namespace": "default", "pod": "a", "container": "main", "holds": {"cpu": "4", "memory": "4Gi"}}])
    );
    assert_eq!(
        value["pending"],
        json!([{
            "namespace": "default", "name": "fits", "schedulerName": "topo-aware-scheduler", "qos": "Guaranteed",
            "request": {"cpu": "2", "memory": "1Gi"},
            "nodes": [{"node": "worker-0", "fits": true, "zones": [0], "reasons": []}],
        }])
    );
}
