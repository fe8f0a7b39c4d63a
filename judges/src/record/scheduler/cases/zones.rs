//! Random cases of the plugins that look at the pods of a zone: PodTopologySpread and InterPodAffinity.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

use crate::record::scheduler::case::{Case, pick};

/// Adds two to four nodes in up to three zones; a node may lack a label.
fn zoned(random: &mut Random, case: &mut Case) {
    for _ in 0..random.between(2, 4) {
        let mut labels = json!({});
        if random.chance(90) {
            labels[format!("zone-{}", case.id)] = json!(pick(random, &["x", "y", "z"]));
        }
        if random.chance(95) {
            labels[format!("host-{}", case.id)] = json!(format!("h{}", case.nodes.len()));
        }
        case.new_node(&labels);
    }
    let node = random.between(0, case.nodes.len() as u64 - 1);
    case.node = format!("{}-{node}", case.id);
}

pub(in crate::record::scheduler) fn app(random: &mut Random) -> Value {
    let mut labels = json!({"app": pick(random, &["web", "web", "db"])});
    if random.chance(50) {
        labels["version"] = json!(pick(random, &["1", "2"]));
    }
    labels
}

pub(in crate::record::scheduler) fn selector(random: &mut Random) -> Value {
    match random.between(0, 5) {
        0 => json!({}),
        1 => {
            json!({"matchExpressions": [{"key": "version", "operator": pick(random, &["Exists", "DoesNotExist"])}]})
        }
        2 => {
            json!({"matchExpressions": [{"key": "app", "operator": pick(random, &["In", "NotIn"]), "values": ["db"]}]})
        }
        _ => json!({"matchLabels": {"app": pick(random, &["web", "db"])}}),
    }
}

/// Returns whether the selector has the label `version`, which must then not be among the keys to match.
fn mentions_version(rule: &Value) -> bool {
    rule["labelSelector"].to_string().contains("version")
}

fn key(random: &mut Random, case: &Case) -> String {
    format!("{}-{}", pick(random, &["zone", "zone", "host"]), case.id)
}

/// Adds a second namespace, for some of the pods.
pub(in crate::record::scheduler) fn neighbourhood(random: &mut Random, case: &mut Case) -> String {
    let other = format!("{}-other", case.id);
    let labels = json!({"case": case.id, "team": pick(random, &["a", "b"])});
    case.namespaces
        .push(json!({"metadata": {"name": other, "labels": labels}}));
    other
}

/// Adds pods with random labels, some of them in another namespace, and gives the case's own pod labels.
pub(in crate::record::scheduler) fn guests(random: &mut Random, case: &mut Case, other: &str) {
    for _ in 0..random.between(2, 8) {
        let labels = app(random);
        let mut guest = case.guest(random, &labels);
        if random.chance(10) {
            guest["metadata"]["namespace"] = json!(other);
        }
        case.pods.push(guest);
    }
    case.pod["metadata"]["labels"] = app(random);
}

pub(super) fn pod_topology_spread(random: &mut Random, case: &mut Case) {
    zoned(random, case);
    let other = neighbourhood(random, case);
    guests(random, case, &other);
    let mut constraints: Vec<Value> = Vec::new();
    for _ in 0..random.between(1, 2) {
        let hard = random.chance(90);
        let mut constraint = json!({
            "maxSkew": if random.chance(85) { 1 } else { 2 },
            "topologyKey": key(random, case),
            "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
            "labelSelector": selector(random),
        });
        if hard && random.chance(20) {
            constraint["minDomains"] = json!(random.between(1, 4));
        }
        if random.chance(20) && !mentions_version(&constraint) {
            constraint["matchLabelKeys"] = json!(["version"]);
        }
        if random.chance(20) {
            constraint["nodeAffinityPolicy"] = json!(pick(random, &["Honor", "Ignore"]));
        }
        if random.chance(20) {
            constraint["nodeTaintsPolicy"] = json!(pick(random, &["Honor", "Ignore"]));
        }
        let repeated = constraints.iter().any(|given| {
            given["topologyKey"] == constraint["topologyKey"]
                && given["whenUnsatisfiable"] == constraint["whenUnsatisfiable"]
        });
        if !repeated {
            constraints.push(constraint);
        }
    }
    case.pod["spec"]["topologySpreadConstraints"] = json!(constraints);
    if random.chance(20) {
        let zone = format!("zone-{}", case.id);
        case.pod["spec"]["nodeSelector"] = json!({zone: pick(random, &["x", "y", "z"])});
    }
}

pub(in crate::record::scheduler) fn term(random: &mut Random, case: &Case) -> Value {
    let mut term = json!({"topologyKey": key(random, case), "labelSelector": selector(random)});
    match random.between(0, 5) {
        0 => term["namespaces"] = json!([format!("{}-other", case.id)]),
        1 => {
            let labels = json!({"case": case.id, "team": pick(random, &["a", "b"])});
            term["namespaceSelector"] = json!({"matchLabels": labels});
        }
        2 => term["namespaceSelector"] = json!({}),
        _ => {}
    }
    if mentions_version(&term) {
        return term;
    }
    if random.chance(15) {
        term["matchLabelKeys"] = json!(["version"]);
    } else if random.chance(10) {
        term["mismatchLabelKeys"] = json!(["version"]);
    }
    term
}

pub(super) fn inter_pod_affinity(random: &mut Random, case: &mut Case) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    zoned(random, case);
    let other = neighbourhood(random, case);
    for _ in 0..random.between(0, 4) {
        let labels = app(random);
        let mut guest = case.guest(random, &labels);
        if random.chance(25) {
            guest["metadata"]["namespace"] = json!(other);
        }
        if random.chance(30) {
            guest["spec"]["affinity"]["podAntiAffinity"][REQUIRED] = json!([term(random, case)]);
        }
        case.pods.push(guest);
    }
    case.pod["metadata"]["labels"] = app(random);
    if random.chance(60) {
        let terms: Vec<Value> = (0..random.between(1, 2))
            .map(|_| term(random, case))
            .collect();
        case.pod["spec"]["affinity"]["podAffinity"][REQUIRED] = json!(terms);
    }
    if random.chance(50) {
        case.pod["spec"]["affinity"]["podAntiAffinity"][REQUIRED] = json!([term(random, case)]);
    }
}
