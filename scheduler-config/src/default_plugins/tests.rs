use std::error::Error as _;

use rstest::rstest;
use serde_json::json;

use super::resources::cpu_and_memory;
use super::*;

#[test]
fn absent_numbers_are_the_defaults() {
    let args = json!({"kind": "DefaultPreemptionArgs", "minCandidateNodesAbsolute": 7});
    let args = DefaultPreemptionArgs::decode(Some(&args)).unwrap();
    assert_eq!(
        (
            args.min_candidate_nodes_percentage,
            args.min_candidate_nodes_absolute
        ),
        (10, 7)
    );
    let args = json!({"scoringStrategy": {"type": "MostAllocated", "resources": []}});
    let args = NodeResourcesFitArgs::decode(Some(&args)).unwrap();
    assert_eq!(args.scoring_strategy.resources, cpu_and_memory());
    assert_eq!(
        NodeResourcesFitArgs::decode(Some(&json!({}))).unwrap(),
        NodeResourcesFitArgs::default()
    );
}

#[test]
fn the_constraints_of_the_system_are_soft() {
    let constraints = PodTopologySpreadArgs::default().constraints();
    let constraints: Vec<_> = constraints
        .iter()
        .map(|one| {
            (
                one.topology_key.as_str(),
                one.max_skew,
                one.when_unsatisfiable.as_str(),
            )
        })
        .collect();
    assert_eq!(
        constraints,
        [
            ("kubernetes.io/hostname", 3, "ScheduleAnyway"),
            ("topology.kubernetes.io/zone", 5, "ScheduleAnyway"),
        ]
    );
}

#[rstest]
#[case::unknown("DefaultPreemption", json!({"candidates": 1}), "unknown field `candidates`")]
#[case::kind("DefaultPreemption", json!({"kind": "NodeAffinityArgs"}),
        "args for plugin DefaultPreemption were not of type DefaultPreemptionArgs.kubescheduler.config.k8s.io, got NodeAffinityArgs.kubescheduler")]
#[case::percentage("DefaultPreemption", json!({"minCandidateNodesPercentage": 101}),
        "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]")]
#[case::none("DefaultPreemption", json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}),
        "cannot be zero at the same time as minCandidateNodesPercentage")]
#[case::hard_weight("InterPodAffinity", json!({"hardPodAffinityWeight": 101}),
        "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]")]
#[case::nested("NodeAffinity", json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"terms": []}}}),
        "unknown field \"requiredDuringSchedulingIgnoredDuringExecution.terms\"")]
#[case::nested_unknown("NodeAffinity", json!({"addedAffinity": {"prefered": []}}), "unknown field \"prefered\"")]
#[case::operator("NodeAffinity", json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}}), "nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator")]
#[case::field("NodeAffinity", json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
        "preference": {"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]}]}}]}}), "[0].matchFields[0].key: Unsupported value: \"metadata.uid\"")]
#[case::strategy("NodeResourcesFit", json!({"scoringStrategy": {"type": "Best"}}),
        "scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"")]
#[case::no_strategy_type("NodeResourcesFit", json!({"scoringStrategy": {}}), "Unsupported value: \"\"")]
#[case::weight("NodeResourcesFit", json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]}}),
        "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]")]
#[case::group("NodeResourcesFit", json!({"ignoredResourceGroups": ["a/b"]}), "resource group name can't contain '/'")]
#[case::no_shape("NodeResourcesFit", json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}), "Required value: must be specified")]
#[case::shape("NodeResourcesFit", json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [
        {"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}]}}}), "shape[1].utilization: Invalid value: 50: values must be sorted in increasing order")]
#[case::shape_score("NodeResourcesFit", json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [
        {"utilization": 50, "score": 11}]}}}), "shape[0].score: Invalid value: 11: not in valid range [0, 10]")]
#[case::needless_shape("NodeResourcesFit", json!({"scoringStrategy": {"type": "LeastAllocated", "requestedToCapacityRatio": {}}}), "Forbidden: must be nil")]
#[case::balanced_weight("NodeResourcesBalancedAllocation", json!({"resources": [{"name": "cpu", "weight": 2}]}), "resources[0].weight: Invalid value: 2: must be 1")]
#[case::balanced_twice("NodeResourcesBalancedAllocation", json!({"resources": [{"name": "cpu"}, {"name": "cpu"}]}), "Duplicate value: \"cpu\"")]
#[case::defaulting("PodTopologySpread", json!({"defaultingType": "None"}), "defaultingType: Unsupported value: \"None\"")]
#[case::system_list("PodTopologySpread", json!({"defaultConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]}),
        "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty")]
#[case::skew("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]}),
        "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)")]
#[case::selector("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]}), "constraint must not define a selector")]
#[case::shape_of_volumes("VolumeBinding", json!({"shape": []}), "unknown field `shape`")]
#[case::timeout("DynamicResources", json!({"filterTimeout": "1s"}), "unknown field `filterTimeout`")]
fn wrong_arguments_are_refused_in_the_words_of_kube_scheduler(
    #[case] plugin: &str,
    #[case] args: Value,
    #[case] expected: &str,
) {
    let error = DefaultPluginArgs::default()
        .set(plugin, Some(&args))
        .unwrap_err();
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let message = format!("{error}: {source}");
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_plugin_without_arguments_takes_none() {
    assert!(!DefaultPluginArgs::default().set("NodeName", None).unwrap());
}
