//! Compares costs with Kubernetes' estimates. `costs.txt` has the results of `Compile` of
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel` for rules about the values of `schema.json`. Rules after `optional` have an
//! optional old value.

use std::sync::Arc;

use serde_json::Value;

use super::*;

fn about() -> Arc<Declared> {
    let schema: Value = serde_json::from_str(include_str!("schema.json")).unwrap();
    Declared::of(&schema, false).unwrap()
}

#[test]
fn rules_cost_what_kubernetes_says() {
    let about = about();
    let mut wrong = Vec::new();
    for line in include_str!("costs.txt").lines() {
        let (cost, rule) = line.split_once('\t').unwrap();
        let (rule, is_optional) = match rule.strip_prefix("optional ") {
            Some(rule) => (rule, true),
            None => (rule, false),
        };
        let found = max_cost(rule, &about, is_optional);
        if found != cost.parse().ok() {
            wrong.push(format!("{rule}\n  {found:?}, not {cost}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_no_rule_costs_nothing() {
    let about = about();
    for rule in ["self.", "self.nothing == 1", "self.i.shout()", "self.s + 1"] {
        assert_eq!(max_cost(rule, &about, false), None, "{rule}");
    }
}
