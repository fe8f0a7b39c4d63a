//! Random cases of the plugins that look at a node's own fields: whether it takes pods, its taints and its labels.

use judges::kubelet::random::Random;
use serde_json::{Value, json};

use crate::record::scheduler::case::{Case, pick, push};

pub(in crate::record::scheduler) fn toleration(random: &mut Random, keys: &[&str]) -> Value {
    let mut toleration = json!({});
    if random.chance(90) {
        toleration["key"] = json!(pick(random, keys));
    }
    if random.chance(80) {
        toleration["effect"] = json!(pick(
            random,
            &["NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"]
        ));
    }
    if random.chance(50) || toleration.get("key").is_none() {
        toleration["operator"] = json!("Exists");
    } else {
        if random.chance(50) {
            toleration["operator"] = json!("Equal");
        }
        toleration["value"] = json!(pick(random, &["", "a", "b"]));
    }
    toleration
}

pub(super) fn node_unschedulable(random: &mut Random, case: &mut Case) {
    let unschedulable = random.chance(70);
    case.new_node(&json!({}))["spec"]["unschedulable"] = json!(unschedulable);
    let keys = ["node.kubernetes.io/unschedulable", "k"];
    for _ in 0..random.between(0, 2) {
        push(
            &mut case.pod["spec"]["tolerations"],
            toleration(random, &keys),
        );
    }
}

pub(super) fn taint_toleration(random: &mut Random, case: &mut Case) {
    let mut taints = Vec::new();
    for key in ["k", "l", "example.com/m"] {
        if random.chance(50) {
            let effect = pick(random, &["NoSchedule", "NoExecute", "PreferNoSchedule"]);
            taints.push(
                json!({"key": key, "value": pick(random, &["", "a", "b"]), "effect": effect}),
            );
        }
    }
    case.new_node(&json!({}))["spec"]["taints"] = json!(taints);
    for _ in 0..random.between(0, 3) {
        let toleration = toleration(random, &["k", "l", "example.com/m"]);
        push(&mut case.pod["spec"]["tolerations"], toleration);
    }
}

pub(in crate::record::scheduler) fn expression(random: &mut Random) -> Value {
    let key = pick(random, &["colour", "size", "absent"]);
    let operator = pick(
        random,
        &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
    );
    let values = match operator {
        "In" | "NotIn" => json!(["red", pick(random, &["blue", "3", "5"])]),
        "Gt" | "Lt" => json!([pick(random, &["3", "4", "0"])]),
        _ => return json!({"key": key, "operator": operator}),
    };
    json!({"key": key, "operator": operator, "values": values})
}

pub(super) fn node_affinity(random: &mut Random, case: &mut Case) {
    let mut labels = json!({});
    if random.chance(70) {
        labels["colour"] = json!(pick(random, &["red", "blue", "green"]));
    }
    if random.chance(70) {
        labels["size"] = json!(pick(random, &["3", "4", "5", "large"]));
    }
    case.new_node(&labels);
    if random.chance(30) {
        case.pod["spec"]["nodeSelector"] =
            json!({pick(random, &["colour", "size"]): pick(random, &["red", "4"])});
    }
    if random.chance(15) {
        return;
    }
    let mut terms = Vec::new();
    for _ in 0..random.between(1, 2) {
        let mut term = json!({});
        let expressions: Vec<Value> = (0..random.between(0, 2))
            .map(|_| expression(random))
            .collect();
        if !expressions.is_empty() {
            term["matchExpressions"] = json!(expressions);
        }
        let fields: Vec<Value> = (0..random.between(0, 2))
            .map(|_| {
                let other = format!("{}-9", case.id);
                let name = if random.chance(70) {
                    &case.node
                } else {
                    &other
                };
                let operator = pick(random, &["In", "In", "In", "NotIn"]);
                json!({"key": "metadata.name", "operator": operator, "values": [name]})
            })
            .collect();
        if !fields.is_empty() && random.chance(60) {
            term["matchFields"] = json!(fields);
        }
        terms.push(term);
    }
    case.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({"nodeSelectorTerms": terms});
}
