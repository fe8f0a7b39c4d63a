//! Random cases of NodeResourcesFit.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

use crate::record::scheduler::case::{Case, pick};

pub(in crate::record::scheduler) fn resources(random: &mut Random) -> Value {
    let mut requests = json!({});
    for (name, amounts) in [
        ("cpu", ["0", "500m", "1", "3"]),
        ("memory", ["128Mi", "1G", "3Gi", "7Gi"]),
        ("ephemeral-storage", ["1Gi", "2G", "4Gi", "100"]),
        ("hugepages-2Mi", ["2Mi", "4Mi", "64Mi", "0"]),
        ("example.com/nic", ["1", "2", "3", "0"]),
    ] {
        let often = matches!(name, "cpu" | "memory");
        if random.chance(if often { 70 } else { 20 }) {
            requests[name] = json!(pick(random, &amounts));
        }
    }
    // these must not be overcommitted, and huge pages need CPU or memory beside them
    let mut limits = json!({});
    for name in ["hugepages-2Mi", "example.com/nic"] {
        if requests.get(name).is_some() {
            limits[name] = requests[name].clone();
        }
    }
    if limits.get("hugepages-2Mi").is_some() && requests.get("cpu").is_none() {
        requests["cpu"] = json!("100m");
    }
    json!({"requests": requests, "limits": limits})
}

pub(in crate::record::scheduler) fn sized(random: &mut Random, pod: &mut Value) {
    let container = |random: &mut Random, name: &str| json!({"name": name, "image": "i", "resources": resources(random)});
    let containers: Vec<Value> = (0..random.between(1, 2))
        .map(|number| container(random, &format!("c{number}")))
        .collect();
    pod["spec"]["containers"] = json!(containers);
    let init: Vec<Value> = (0..random.between(0, 3))
        .filter(|number| *number < 2)
        .map(|number| {
            let mut init = container(random, &format!("i{number}"));
            if random.chance(50) {
                init["restartPolicy"] = json!("Always");
            }
            init
        })
        .collect();
    if random.chance(50) {
        pod["spec"]["initContainers"] = json!(init);
    }
}

pub(super) fn node_resources_fit(random: &mut Random, case: &mut Case) {
    let few = random.chance(15);
    let mut allocatable = json!({
        "cpu": pick(random, &["2", "4", "3900m"]),
        "memory": pick(random, &["4Gi", "8Gi"]),
        "pods": if few { pick(random, &["1", "2"]) } else { "110" },
    });
    for (name, amount) in [
        ("ephemeral-storage", "4Gi"),
        ("hugepages-2Mi", "64Mi"),
        ("example.com/nic", "4"),
    ] {
        if random.chance(80) {
            allocatable[name] = json!(amount);
        }
    }
    case.new_node(&json!({}))["status"]["allocatable"] = allocatable;
    for _ in 0..random.between(0, 2) {
        let mut guest = case.guest(random, &json!({}));
        sized(random, &mut guest);
        case.pods.push(guest);
    }
    let mut pod = case.pod.clone();
    sized(random, &mut pod);
    case.pod = pod;
}
