//! TaintToleration: which taints keep a pod away from a node, and which only make the node less wanted (scheduler.md 7.3, 7.5).

use k8s_openapi::api::core::v1::{Taint, Toleration};

use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::state::node::Node;
use crate::state::pod::Pod;

/// Effect that keeps new pods away.
pub(super) const NO_SCHEDULE: &str = "NoSchedule";
/// Effect that also evicts running pods.
const NO_EXECUTE: &str = "NoExecute";

/// Returns whether a toleration covers a taint. An empty key with `Exists` covers all keys, an absent effect every effect.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        "" | "Equal" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        _ => false,
    }
}

/// Returns whether a pod tolerates a taint.
pub(super) fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    pod.constraints
        .tolerations
        .iter()
        .any(|toleration| tolerates(toleration, taint))
}

/// Rejects a node with a taint that keeps the pod away and that it does not tolerate.
pub fn filter(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let keeps_away = |taint: &&Taint| matches!(taint.effect.as_str(), NO_SCHEDULE | NO_EXECUTE);
    match node
        .taints
        .iter()
        .filter(keeps_away)
        .find(|taint| !tolerated(pod, taint))
    {
        None => Ok(()),
        Some(taint) => Err(Rejection {
            detail: Some(format!("taint {}:{}", taint.key, taint.effect)),
            ..Rejection::unresolvable(Plugin::TaintToleration, "node(s) had untolerated taint(s)")
        }),
    }
}

/// Returns the number of `PreferNoSchedule` taints that the pod does not tolerate.
pub fn raw_score(pod: &Pod, node: &Node) -> i64 {
    node.taints
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerated(pod, taint))
        .count() as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{mk_node, mk_pod};
    use rstest::rstest;
    use serde_json::json;

    fn reason(result: Result<(), Rejection>) -> Option<String> {
        result.err().map(|rejection| rejection.reasons.join(", "))
    }

    #[rstest]
    #[case::exact("k", "Equal", "v", "NoSchedule", true)]
    #[case::default_operator("k", "", "v", "NoSchedule", true)]
    #[case::other_value("k", "Equal", "w", "NoSchedule", false)]
    #[case::exists("k", "Exists", "", "NoSchedule", true)]
    #[case::any_effect("k", "Exists", "", "", true)]
    #[case::other_effect("k", "Exists", "", "NoExecute", false)]
    #[case::everything("", "Exists", "", "", true)]
    #[case::empty_key("", "Equal", "v", "", false)]
    #[case::other_key("l", "Exists", "", "", false)]
    fn tolerations_cover_taints(
        #[case] key: &str,
        #[case] operator: &str,
        #[case] value: &str,
        #[case] effect: &str,
        #[case] expected: bool,
    ) {
        let toleration = serde_json::from_value(
            json!({"key": key, "operator": operator, "value": value, "effect": effect}),
        );
        let taint =
            serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"}));
        assert_eq!(
            tolerates(&toleration.expect("toleration"), &taint.expect("taint")),
            expected
        );
    }

    #[test]
    fn soft_taints_do_not_keep_away_but_count() {
        let taint = |effect: &str| Taint {
            key: "k".to_owned(),
            effect: effect.to_owned(),
            ..Taint::default()
        };
        let mut node = Node {
            taints: vec![taint("PreferNoSchedule")],
            ..mk_node("n", "cpu=4")
        };
        let pod = mk_pod("p", "cpu=1");
        assert_eq!((filter(&pod, &node), raw_score(&pod, &node)), (Ok(()), 1));
        node.taints.push(taint("NoExecute"));
        assert_eq!(
            reason(filter(&pod, &node)).as_deref(),
            Some("node(s) had untolerated taint(s)")
        );
    }
}
