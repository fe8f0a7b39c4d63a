//! Arguments of NodeResourcesFit.

use serde::{Deserialize, Serialize};

use super::resources::{ResourceSpec, cpu_and_memory, resources_or_default};
use super::{PluginArgs, invalid, unsupported};

/// Which resources NodeResourcesFit considers, and how it compares nodes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeResourcesFitArgs {
    /// Extended resources that the filter ignores.
    pub ignored_resources: Vec<String>,
    /// Prefixes, without slash, of extended resources that the filter ignores.
    pub ignored_resource_groups: Vec<String>,
    /// How nodes are compared.
    pub scoring_strategy: ScoringStrategy,
}

/// How NodeResourcesFit compares nodes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScoringStrategy {
    /// The formula: `LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// The resources.
    #[serde(default = "cpu_and_memory", deserialize_with = "resources_or_default")]
    pub resources: Vec<ResourceSpec>,
    /// Scores by utilization, for `RequestedToCapacityRatio`.
    #[serde(default)]
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

/// Scores by utilization.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestedToCapacityRatio {
    /// Points of a piecewise linear function, by increasing utilization.
    pub shape: Vec<ShapePoint>,
}

/// A point of a piecewise linear function.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShapePoint {
    /// 0 to 100.
    pub utilization: i64,
    /// 0 to 10.
    pub score: i64,
}

impl ScoringStrategy {
    /// The node with most left scores best.
    pub const LEAST_ALLOCATED: &'static str = "LeastAllocated";
    /// The node with least left scores best.
    pub const MOST_ALLOCATED: &'static str = "MostAllocated";
    /// A piecewise linear function of the utilization gives the score.
    pub const REQUESTED_TO_CAPACITY_RATIO: &'static str = "RequestedToCapacityRatio";
}

impl Default for ScoringStrategy {
    fn default() -> Self {
        Self {
            kind: Self::LEAST_ALLOCATED.to_owned(),
            resources: cpu_and_memory(),
            requested_to_capacity_ratio: None,
        }
    }
}

impl PluginArgs for NodeResourcesFitArgs {
    const PLUGIN: &'static str = "NodeResourcesFit";

    fn validate(&self) -> Result<(), (String, String)> {
        for (index, group) in self.ignored_resource_groups.iter().enumerate() {
            if group.contains('/') {
                return invalid(
                    format!("ignoredResourceGroups[{index}]"),
                    format!("{group:?}"),
                    "resource group name can't contain '/'",
                );
            }
        }
        let strategy = &self.scoring_strategy;
        let kinds = [
            ScoringStrategy::LEAST_ALLOCATED,
            ScoringStrategy::MOST_ALLOCATED,
            ScoringStrategy::REQUESTED_TO_CAPACITY_RATIO,
        ];
        if !kinds.contains(&strategy.kind.as_str()) {
            return unsupported("scoringStrategy.type", &strategy.kind, &kinds);
        }
        for (index, resource) in strategy.resources.iter().enumerate() {
            if !(1..=100).contains(&resource.weight) {
                let rule = format!(
                    "resource weight of {} not in valid range (0, 100]",
                    resource.name
                );
                return invalid(
                    format!("scoringStrategy.resources[{index}].weight"),
                    resource.weight,
                    &rule,
                );
            }
        }
        let path = "scoringStrategy.requestedToCapacityRatio";
        let by_ratio = strategy.kind == ScoringStrategy::REQUESTED_TO_CAPACITY_RATIO;
        match &strategy.requested_to_capacity_ratio {
            None if by_ratio => Err((
                path.to_owned(),
                "Required value: must be specified when type is RequestedToCapacityRatio"
                    .to_owned(),
            )),
            Some(_) if !by_ratio => Err((
                path.to_owned(),
                "Forbidden: must be nil when type is not RequestedToCapacityRatio".to_owned(),
            )),
            None => Ok(()),
            Some(ratio) => validate_shape(&format!("{path}.shape"), &ratio.shape),
        }
    }
}

fn validate_shape(path: &str, shape: &[ShapePoint]) -> Result<(), (String, String)> {
    if shape.is_empty() {
        return Err((
            path.to_owned(),
            "Required value: at least one point must be specified".to_owned(),
        ));
    }
    for (index, pair) in shape.windows(2).enumerate() {
        if pair[0].utilization >= pair[1].utilization {
            return invalid(
                format!("{path}[{}].utilization", index + 1),
                pair[1].utilization,
                "values must be sorted in increasing order",
            );
        }
    }
    for (index, point) in shape.iter().enumerate() {
        if !(0..=100).contains(&point.utilization) {
            return invalid(
                format!("{path}[{index}].utilization"),
                point.utilization,
                "not in valid range [0, 100]",
            );
        }
        if !(0..=10).contains(&point.score) {
            return invalid(
                format!("{path}[{index}].score"),
                point.score,
                "not in valid range [0, 10]",
            );
        }
    }
    Ok(())
}
