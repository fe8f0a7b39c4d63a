//! Random cases for scores: a few nodes that all fit, the pods on them, and a pod that goes to one of them.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

use super::case::{Case, pick, push};
use super::cases::nodes::{expression, toleration};
use super::cases::resources::{resources, sized};
use super::cases::zones::{app, guests, neighbourhood, selector, term};

/// The plugin that pins pods to the nodes of their case.
pub(super) const HELD_BY: &str = "NodeAffinity";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const HOST: &str = "kubernetes.io/hostname";

/// A plugin with arguments.
pub(super) struct Variant {
    /// Name of its file in the corpus.
    pub(super) name: &'static str,
    pub(super) plugin: &'static str,
    pub(super) args: fn() -> Value,
    fill: fn(&mut Random, &mut Case),
}

/// The recorded variants.
pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "score-TaintToleration",
        plugin: "TaintToleration",
        args: none,
        fill: taint_toleration,
    },
    Variant {
        name: "score-NodeAffinity",
        plugin: "NodeAffinity",
        args: added_affinity,
        fill: node_affinity,
    },
    Variant {
        name: "score-NodeResourcesFit",
        plugin: "NodeResourcesFit",
        args: none,
        fill: amounts,
    },
    Variant {
        name: "score-NodeResourcesFit-most",
        plugin: "NodeResourcesFit",
        args: most_allocated,
        fill: amounts,
    },
    Variant {
        name: "score-NodeResourcesFit-ratio",
        plugin: "NodeResourcesFit",
        args: ratio,
        fill: amounts,
    },
    Variant {
        name: "score-NodeResourcesBalancedAllocation",
        plugin: "NodeResourcesBalancedAllocation",
        args: none,
        fill: amounts,
    },
    Variant {
        name: "score-NodeResourcesBalancedAllocation-three",
        plugin: "NodeResourcesBalancedAllocation",
        args: three,
        fill: amounts,
    },
    Variant {
        name: "score-PodTopologySpread",
        plugin: "PodTopologySpread",
        args: none,
        fill: spread,
    },
    Variant {
        name: "score-PodTopologySpread-system",
        plugin: "PodTopologySpread",
        args: none,
        fill: spread_by_default,
    },
    Variant {
        name: "score-PodTopologySpread-list",
        plugin: "PodTopologySpread",
        args: listed,
        fill: spread_by_default,
    },
    Variant {
        name: "score-InterPodAffinity",
        plugin: "InterPodAffinity",
        args: hard_weight,
        fill: inter_pod,
    },
    Variant {
        name: "score-InterPodAffinity-ignoring",
        plugin: "InterPodAffinity",
        args: ignoring,
        fill: inter_pod,
    },
    Variant {
        name: "score-ImageLocality",
        plugin: "ImageLocality",
        args: none,
        fill: images,
    },
];

/// Builds the case of a variant and a seed.
pub(super) fn new(variant: &Variant, seed: u64) -> Case {
    let salt = variant.name.bytes().map(u64::from).sum::<u64>();
    let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(salt));
    let mut case = Case::empty(seed, &variant.name.to_lowercase());
    (variant.fill)(&mut random, &mut case);
    for node in &mut case.nodes {
        node["metadata"]["labels"]["case"] = json!(case.id);
    }
    case.pod["spec"]["nodeSelector"]["case"] = json!(case.id);
    case
}

fn none() -> Value {
    Value::Null
}

fn added_affinity() -> Value {
    let term =
        json!({"matchExpressions": [{"key": "colour", "operator": "In", "values": ["red"]}]});
    json!({"addedAffinity": {PREFERRED: [{"weight": 7, "preference": term}]}})
}

fn most_allocated() -> Value {
    let resources = json!([{"name": "cpu", "weight": 3}, {"name": "memory"}, {"name": "example.com/nic", "weight": 2}]);
    json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}})
}

fn ratio() -> Value {
    let point = |utilization, score| json!({"utilization": utilization, "score": score});
    let shape = json!([point(10, 2), point(50, 10), point(70, 3), point(90, 0)]);
    json!({"scoringStrategy": {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}, {"name": "ephemeral-storage"}],
        "requestedToCapacityRatio": {"shape": shape},
    }})
}

fn three() -> Value {
    json!({"resources": [{"name": "cpu"}, {"name": "memory"}, {"name": "example.com/nic"}]})
}

fn listed() -> Value {
    let soft = |key, skew| json!({"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway"});
    json!({"defaultingType": "List", "defaultConstraints": [soft("rack", 2), soft(HOST, 1)]})
}

fn hard_weight() -> Value {
    json!({"hardPodAffinityWeight": 13})
}

fn ignoring() -> Value {
    json!({"ignorePreferredTermsOfExistingPods": true})
}

/// Adds some nodes, each with labels from this function.
fn nodes(random: &mut Random, case: &mut Case, labels: fn(&mut Random, &Case) -> Value) {
    for _ in 0..random.between(2, 4) {
        let labels = labels(random, case);
        case.new_node(&labels);
    }
}

fn taint_toleration(random: &mut Random, case: &mut Case) {
    nodes(random, case, |_, _| json!({}));
    for node in &mut case.nodes {
        let mut taints = Vec::new();
        for key in ["k", "l", "example.com/m"] {
            if random.chance(60) {
                let value = pick(random, &["", "a", "b"]);
                taints.push(json!({"key": key, "value": value, "effect": "PreferNoSchedule"}));
            }
        }
        node["spec"]["taints"] = json!(taints);
    }
    for _ in 0..random.between(0, 2) {
        let toleration = toleration(random, &["k", "l", "example.com/m"]);
        push(&mut case.pod["spec"]["tolerations"], toleration);
    }
}

fn node_affinity(random: &mut Random, case: &mut Case) {
    nodes(
        random,
        case,
        |random, _| json!({"colour": pick(random, &["red", "blue", "green"]), "size": pick(random, &["3", "4", "5", "large"])}),
    );
    let terms: Vec<Value> = (0..random.between(0, 3))
        .map(|_| {
            let weight = random.between(1, 100);
            json!({"weight": weight, "preference": {"matchExpressions": [expression(random)]}})
        })
        .collect();
    case.pod["spec"]["affinity"]["nodeAffinity"][PREFERRED] = json!(terms);
}

fn amounts(random: &mut Random, case: &mut Case) {
    nodes(random, case, |_, _| json!({}));
    for node in &mut case.nodes {
        let mut allocatable = json!({
            "cpu": pick(random, &["4", "16", "7900m"]),
            "memory": pick(random, &["8Gi", "32Gi"]),
            "pods": "110",
        });
        for (name, amount) in [
            ("ephemeral-storage", "16Gi"),
            ("hugepages-2Mi", "256Mi"),
            ("example.com/nic", "8"),
        ] {
            if random.chance(80) {
                allocatable[name] = json!(amount);
            }
        }
        node["status"]["allocatable"] = allocatable;
    }
    for _ in 0..random.between(0, 4) {
        let mut guest = case.guest(random, &json!({}));
        sized(random, &mut guest);
        case.pods.push(guest);
    }
    let mut pod = case.pod.clone();
    // no more than every node has, so that all fit
    let wanted = |random: &mut Random| {
        let mut wanted = resources(random)["requests"].clone();
        for name in ["ephemeral-storage", "hugepages-2Mi"] {
            if let Some(wanted) = wanted.as_object_mut() {
                wanted.remove(name);
            }
        }
        for (name, many) in [("cpu", "3"), ("memory", "7Gi")] {
            if wanted[name] == many {
                wanted[name] = json!("1");
            }
        }
        json!({"limits": {"example.com/nic": wanted.get("example.com/nic").cloned().unwrap_or_else(|| json!("0"))}, "requests": wanted})
    };
    pod["spec"]["containers"][0]["resources"] = wanted(random);
    if random.chance(40) {
        let mut init = json!({"name": "i", "image": "i", "resources": wanted(random)});
        if random.chance(50) {
            init["restartPolicy"] = json!("Always");
        }
        pod["spec"]["initContainers"] = json!([init]);
    }
    case.pod = pod;
}

/// Returns labels for up to three zones and racks; some nodes are in none.
fn placed(random: &mut Random, case: &Case) -> Value {
    let mut labels = json!({});
    if random.chance(85) {
        labels[format!("zone-{}", case.id)] = json!(pick(random, &["x", "y", "z"]));
    }
    if random.chance(85) {
        labels["topology.kubernetes.io/zone"] =
            json!(format!("{}{}", case.id, pick(random, &["x", "y"])));
    }
    if random.chance(85) {
        labels["rack"] = json!(format!("{}{}", case.id, pick(random, &["x", "y"])));
    }
    if random.chance(95) {
        labels[HOST] = json!(format!("{}-{}", case.id, case.nodes.len()));
    }
    labels[format!("host-{}", case.id)] = json!(format!("h{}", case.nodes.len()));
    labels
}

fn spread(random: &mut Random, case: &mut Case) {
    nodes(random, case, placed);
    let other = neighbourhood(random, case);
    guests(random, case, &other);
    let mut keys = vec![HOST.to_owned(), format!("zone-{}", case.id)];
    let mut constraints = Vec::new();
    for _ in 0..random.between(1, 2) {
        let key = keys.remove(random.between(0, keys.len() as u64 - 1) as usize);
        let mut constraint = json!({
            "maxSkew": random.between(1, 4),
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector(random),
        });
        for (field, chance) in [("nodeAffinityPolicy", 20), ("nodeTaintsPolicy", 20)] {
            if random.chance(chance) {
                constraint[field] = json!(pick(random, &["Honor", "Ignore"]));
            }
        }
        constraints.push(constraint);
    }
    case.pod["spec"]["topologySpreadConstraints"] = json!(constraints);
}

/// Lets services select the pod, or a controller own it, or neither.
fn spread_by_default(random: &mut Random, case: &mut Case) {
    nodes(random, case, placed);
    let other = neighbourhood(random, case);
    guests(random, case, &other);
    for number in 0..random.between(0, 2) {
        let labels = app(random);
        let namespace = if random.chance(90) { &case.id } else { &other };
        case.groups.push(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": format!("s{number}"), "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 80}]},
        }));
    }
    if random.chance(60) {
        let labels = case.pod["metadata"]["labels"].clone();
        let kind = pick(
            random,
            &["ReplicaSet", "StatefulSet", "ReplicationController"],
        );
        let template = json!({
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        let (version, selector) = if kind == "ReplicationController" {
            ("v1", labels.clone())
        } else {
            ("apps/v1", json!({"matchLabels": labels}))
        };
        let mut group = json!({
            "apiVersion": version, "kind": kind,
            "metadata": {"name": "owner", "namespace": case.id},
            "spec": {"selector": selector, "template": template},
        });
        if kind == "StatefulSet" {
            group["spec"]["serviceName"] = json!("s0");
        }
        case.groups.push(group);
        case.pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": version, "kind": kind, "name": "owner", "uid": case.id, "controller": true,
        }]);
    }
}

fn weighted(random: &mut Random, case: &Case) -> Value {
    let term = term(random, case);
    json!([{"weight": random.between(1, 100), "podAffinityTerm": term}])
}

fn inter_pod(random: &mut Random, case: &mut Case) {
    nodes(random, case, placed);
    let other = neighbourhood(random, case);
    guests(random, case, &other);
    let mut guests = std::mem::take(&mut case.pods);
    for guest in &mut guests {
        for (kind, chance) in [("podAffinity", 40), ("podAntiAffinity", 30)] {
            if random.chance(chance) {
                guest["spec"]["affinity"][kind][PREFERRED] = weighted(random, case);
            }
        }
        if random.chance(30) {
            guest["spec"]["affinity"]["podAffinity"][REQUIRED] = json!([term(random, case)]);
        }
    }
    case.pods = guests;
    for (kind, chance) in [("podAffinity", 50), ("podAntiAffinity", 40)] {
        if random.chance(chance) {
            case.pod["spec"]["affinity"][kind][PREFERRED] = weighted(random, case);
        }
    }
}

fn images(random: &mut Random, case: &mut Case) {
    nodes(random, case, |_, _| json!({}));
    let names = [
        format!("registry.example:5000/{}/a:latest", case.id),
        format!("{}/b:1", case.id),
        format!("{}-c:latest", case.id),
    ];
    for name in &names {
        // an image has the same size on every node; most are on so few of all nodes that only a large one counts
        let size = random.between(1, 100) * (random.between(1, 60) << 30);
        for node in &mut case.nodes {
            if random.chance(60) {
                let image = json!({"names": [name, format!("{name}-alias")], "sizeBytes": size});
                push(&mut node["status"]["images"], image);
            }
        }
    }
    let wanted = [
        format!("registry.example:5000/{}/a", case.id),
        names[1].clone(),
        format!("{}-c", case.id),
    ];
    let containers: Vec<Value> = (0..random.between(1, 2))
        .map(|number| {
            let image = &wanted[random.between(0, 2) as usize];
            json!({"name": format!("c{number}"), "image": image})
        })
        .collect();
    case.pod["spec"]["containers"] = json!(containers);
    if random.chance(40) {
        let image = &wanted[random.between(0, 2) as usize];
        case.pod["spec"]["initContainers"] = json!([{"name": "i", "image": image}]);
    }
}
