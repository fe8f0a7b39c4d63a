//! Random cases of NodePorts.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

use crate::record::scheduler::case::{Case, pick};

fn ports(random: &mut Random) -> Value {
    let mut ports: Vec<Value> = Vec::new();
    for number in 0..random.between(1, 2) {
        let mut port = json!({
            "containerPort": 80 + number,
            "hostPort": random.between(8000, 8002),
            "protocol": pick(random, &["TCP", "TCP", "UDP"]),
        });
        if random.chance(50) {
            port["hostIP"] = json!(pick(random, &["0.0.0.0", "127.0.0.1", "10.0.0.1"]));
        }
        ports.push(port);
    }
    // one list must not contain a port twice
    ports.dedup_by_key(|port| (port["hostPort"].clone(), port["protocol"].clone()));
    json!(ports)
}

pub(super) fn node_ports(random: &mut Random, case: &mut Case) {
    case.new_node(&json!({}));
    for _ in 0..random.between(0, 2) {
        let mut guest = case.guest(random, &json!({}));
        guest["spec"]["containers"][0]["ports"] = ports(random);
        case.pods.push(guest);
    }
    if random.chance(95) {
        case.pod["spec"]["containers"][0]["ports"] = ports(random);
    }
    if random.chance(20) {
        let sidecar =
            json!({"name": "s", "image": "i", "restartPolicy": "Always", "ports": ports(random)});
        case.pod["spec"]["initContainers"] = json!([sidecar]);
    }
}
