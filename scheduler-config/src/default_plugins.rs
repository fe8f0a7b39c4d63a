//! Arguments of the default plugins (scheduler.md 1.3), decoded and validated as strictly as kube-scheduler does.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorTerm, TopologySpreadConstraint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// API group of the arguments.
const GROUP: &str = "kubescheduler.config.k8s.io";

/// Why arguments are refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments are of another kind.
    #[error("args for plugin {plugin} were not of type {plugin}Args.{GROUP}, got {got}")]
    Kind {
        /// The plugin.
        plugin: &'static str,
        /// Kind and group as given.
        got: String,
    },
    /// The arguments do not match the schema.
    #[error("decoding args for plugin {plugin}")]
    Decode {
        /// The plugin.
        plugin: &'static str,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A value is not valid.
    #[error("args for plugin {plugin}: {field}: {problem}")]
    Value {
        /// The plugin.
        plugin: &'static str,
        /// Path of the field.
        field: String,
        /// The problem, in the words of kube-scheduler.
        problem: String,
    },
}

/// Arguments of one plugin.
pub trait PluginArgs: Default + DeserializeOwned {
    /// Name of the plugin.
    const PLUGIN: &'static str;

    /// Checks the values.
    ///
    /// # Errors
    /// The path of the first invalid field, with the reason.
    fn validate(&self) -> Result<(), (String, String)>;

    /// Decodes the `args` object of a `pluginConfig` entry. No object means all defaults.
    ///
    /// # Errors
    /// When the object does not match the schema or a value is not valid.
    fn decode(args: Option<&Value>) -> Result<Self, Error> {
        let plugin = Self::PLUGIN;
        let mut args = args.cloned().unwrap_or_default();
        if let Some(fields) = args.as_object_mut() {
            let mut take = |name| match fields.remove(name) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            };
            let (version, kind) = (take("apiVersion"), take("kind"));
            let group = version.as_deref().unwrap_or(GROUP).split('/').next();
            let kind = kind.unwrap_or_else(|| format!("{plugin}Args"));
            if group != Some(GROUP) || kind != format!("{plugin}Args") {
                let got = format!("{kind}.{}", group.unwrap_or_default());
                return Err(Error::Kind { plugin, got });
            }
        }
        if args.is_null() {
            return Ok(Self::default());
        }
        let decoded = Self::deserialize(args).map_err(|source| Error::Decode { plugin, source })?;
        decoded
            .validate()
            .map_err(|(field, problem)| Error::Value {
                plugin,
                field,
                problem,
            })?;
        Ok(decoded)
    }
}

fn invalid<T>(
    field: impl Into<String>,
    value: impl std::fmt::Display,
    rule: &str,
) -> Result<T, (String, String)> {
    Err((field.into(), format!("Invalid value: {value}: {rule}")))
}

fn unsupported<T>(
    field: impl Into<String>,
    value: &str,
    supported: &[&str],
) -> Result<T, (String, String)> {
    let supported: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
    let supported = supported.join(", ");
    Err((
        field.into(),
        format!("Unsupported value: {value:?}: supported values: {supported}"),
    ))
}

/// How many nodes DefaultPreemption tries.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultPreemptionArgs {
    /// Minimum number of candidates, in percent of the nodes.
    pub min_candidate_nodes_percentage: usize,
    /// Minimum number of candidates.
    pub min_candidate_nodes_absolute: usize,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

impl PluginArgs for DefaultPreemptionArgs {
    const PLUGIN: &'static str = "DefaultPreemption";

    fn validate(&self) -> Result<(), (String, String)> {
        let (percentage, absolute) = (
            self.min_candidate_nodes_percentage,
            self.min_candidate_nodes_absolute,
        );
        if percentage > 100 {
            return invalid(
                "minCandidateNodesPercentage",
                percentage,
                "not in valid range [0, 100]",
            );
        }
        if percentage == 0 && absolute == 0 {
            return invalid(
                "minCandidateNodesAbsolute",
                absolute,
                "cannot be zero at the same time as minCandidateNodesPercentage",
            );
        }
        Ok(())
    }
}

/// How InterPodAffinity treats the terms of other pods.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InterPodAffinityArgs {
    /// Score weight of a running pod's required affinity to pods like this one.
    pub hard_pod_affinity_weight: i64,
    /// Whether pods without preferences of their own ignore the preferences of running pods when they are scored.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

impl PluginArgs for InterPodAffinityArgs {
    const PLUGIN: &'static str = "InterPodAffinity";

    fn validate(&self) -> Result<(), (String, String)> {
        let weight = self.hard_pod_affinity_weight;
        if !(0..=100).contains(&weight) {
            return invalid(
                "hardPodAffinityWeight",
                weight,
                "not in valid range [0, 100]",
            );
        }
        Ok(())
    }
}

/// Node affinity that applies to every pod of the profile in addition to the pod's own.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeAffinityArgs {
    /// The added affinity.
    #[serde(deserialize_with = "strict")]
    pub added_affinity: Option<NodeAffinity>,
}

impl PluginArgs for NodeAffinityArgs {
    const PLUGIN: &'static str = "NodeAffinity";

    fn validate(&self) -> Result<(), (String, String)> {
        let Some(affinity) = &self.added_affinity else {
            return Ok(());
        };
        if let Some(required) = &affinity.required_during_scheduling_ignored_during_execution {
            let path =
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
            for (index, term) in required.node_selector_terms.iter().enumerate() {
                validate_term(&format!("{path}[{index}]"), term)?;
            }
        }
        let preferred = &affinity.preferred_during_scheduling_ignored_during_execution;
        let path = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in preferred.iter().flatten().enumerate() {
            validate_term(&format!("{path}[{index}]"), &term.preference)?;
        }
        Ok(())
    }
}

fn validate_term(path: &str, term: &NodeSelectorTerm) -> Result<(), (String, String)> {
    const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    const FIELD_OPERATORS: &[&str] = &["In", "NotIn"];
    for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let operator = expression.operator.as_str();
        if !OPERATORS.contains(&operator) {
            return invalid(
                format!("{path}.operator"),
                format!("{operator:?}"),
                "not a valid selector operator",
            );
        }
        let values = expression.values.as_deref().unwrap_or_default();
        let wrong = match operator {
            "In" | "NotIn" if values.is_empty() => {
                "for 'in', 'notin' operators, values set can't be empty"
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                "values set must be empty for exists and does not exist"
            }
            "Gt" | "Lt" if values.len() != 1 => {
                "for 'Gt', 'Lt' operators, exactly one value is required"
            }
            "Gt" | "Lt" if values.iter().any(|value| value.parse::<i64>().is_err()) => {
                "for 'Gt', 'Lt' operators, the value must be an integer"
            }
            _ => continue,
        };
        return invalid(format!("{path}.values"), format!("{values:?}"), wrong);
    }
    for (index, field) in term.match_fields.iter().flatten().enumerate() {
        let path = format!("{path}.matchFields[{index}]");
        if field.key != "metadata.name" {
            return unsupported(format!("{path}.key"), &field.key, &["metadata.name"]);
        }
        if !FIELD_OPERATORS.contains(&field.operator.as_str()) {
            return unsupported(format!("{path}.operator"), &field.operator, FIELD_OPERATORS);
        }
        if field.values.as_deref().unwrap_or_default().len() != 1 {
            return Err((
                format!("{path}.values"),
                "Required value: must have one element".to_owned(),
            ));
        }
    }
    Ok(())
}

/// A resource and its weight.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceSpec {
    /// Name of the resource.
    pub name: String,
    /// 1 to 100; if absent, 1.
    #[serde(default = "one", deserialize_with = "weight_or_one")]
    pub weight: i64,
}

fn one() -> i64 {
    1
}

/// Reads a weight; 0 means the default, as an absent weight does.
fn weight_or_one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let weight = i64::deserialize(deserializer)?;
    Ok(if weight == 0 { 1 } else { weight })
}

fn cpu_and_memory() -> Vec<ResourceSpec> {
    let mk = |name: &str| ResourceSpec {
        name: name.to_owned(),
        weight: 1,
    };
    vec![mk("cpu"), mk("memory")]
}

/// Reads a list of resources; an absent or empty list means CPU and memory.
fn resources_or_default<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<ResourceSpec>, D::Error> {
    let given = Option::<Vec<ResourceSpec>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(if given.is_empty() {
        cpu_and_memory()
    } else {
        given
    })
}

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

/// The resources whose usage should be balanced.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// The resources; their weights must be 1.
    #[serde(default = "cpu_and_memory", deserialize_with = "resources_or_default")]
    pub resources: Vec<ResourceSpec>,
}

impl Default for NodeResourcesBalancedAllocationArgs {
    fn default() -> Self {
        Self {
            resources: cpu_and_memory(),
        }
    }
}

impl PluginArgs for NodeResourcesBalancedAllocationArgs {
    const PLUGIN: &'static str = "NodeResourcesBalancedAllocation";

    fn validate(&self) -> Result<(), (String, String)> {
        let mut seen = BTreeSet::new();
        for (index, resource) in self.resources.iter().enumerate() {
            if !seen.insert(&resource.name) {
                return Err((
                    format!("resources[{index}].name"),
                    format!("Duplicate value: {:?}", resource.name),
                ));
            }
            if resource.weight != 1 {
                return invalid(
                    format!("resources[{index}].weight"),
                    resource.weight,
                    "must be 1",
                );
            }
        }
        Ok(())
    }
}

/// How pods without spread constraints of their own are spread.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodTopologySpreadArgs {
    /// The constraints of type `List`. They have no selectors: those are derived from a pod's services and controllers.
    #[serde(deserialize_with = "strict")]
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// Which constraints apply: the built-in ones of Kubernetes (`System`) or those of the list (`List`).
    pub defaulting_type: String,
}

impl PodTopologySpreadArgs {
    const SYSTEM: &'static str = "System";
    const LIST: &'static str = "List";

    /// Returns whether the built-in constraints of Kubernetes apply.
    pub fn is_system(&self) -> bool {
        self.defaulting_type == Self::SYSTEM
    }

    /// Returns the constraints of pods that have none: the list, or a skew of 3 between nodes and 5 between zones. The latter two never
    /// make a pod unschedulable.
    pub fn constraints(&self) -> Vec<TopologySpreadConstraint> {
        if !self.is_system() {
            return self.default_constraints.clone();
        }
        [
            ("kubernetes.io/hostname", 3),
            ("topology.kubernetes.io/zone", 5),
        ]
        .map(|(key, max_skew)| TopologySpreadConstraint {
            topology_key: key.to_owned(),
            max_skew,
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            ..TopologySpreadConstraint::default()
        })
        .into()
    }
}

impl Default for PodTopologySpreadArgs {
    fn default() -> Self {
        Self {
            default_constraints: Vec::new(),
            defaulting_type: Self::SYSTEM.to_owned(),
        }
    }
}

impl PluginArgs for PodTopologySpreadArgs {
    const PLUGIN: &'static str = "PodTopologySpread";

    fn validate(&self) -> Result<(), (String, String)> {
        const ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
        let kinds = [Self::SYSTEM, Self::LIST];
        if !kinds.contains(&self.defaulting_type.as_str()) {
            return unsupported(
                "defaultingType",
                &self.defaulting_type,
                &[Self::LIST, Self::SYSTEM],
            );
        }
        if self.is_system() && !self.default_constraints.is_empty() {
            return invalid(
                "defaultingType",
                format!("{:?}", self.defaulting_type),
                "when .defaultConstraints are not empty",
            );
        }
        for (index, constraint) in self.default_constraints.iter().enumerate() {
            let path = format!("defaultConstraints[{index}]");
            let required = |field: &str| {
                let problem = "Required value: can not be empty".to_owned();
                Err((format!("{path}.{field}"), problem))
            };
            if constraint.max_skew <= 0 {
                return invalid(
                    format!("{path}.maxSkew"),
                    constraint.max_skew,
                    "not in valid range (0, inf)",
                );
            }
            if constraint.topology_key.is_empty() {
                return required("topologyKey");
            }
            let action = constraint.when_unsatisfiable.as_str();
            if action.is_empty() {
                return required("whenUnsatisfiable");
            }
            if !ACTIONS.contains(&action) {
                return unsupported(format!("{path}.whenUnsatisfiable"), action, ACTIONS);
            }
            if constraint.label_selector.is_some() {
                return Err((
                    format!("{path}.labelSelector"),
                    "Forbidden: constraint must not define a selector, as they deduced for each pod"
                        .to_owned(),
                ));
            }
            let repeated = self.default_constraints[..index].iter().any(|other| {
                other.topology_key == constraint.topology_key && other.when_unsatisfiable == action
            });
            if repeated {
                let value = format!("{{{}, {action}}}", constraint.topology_key);
                return Err((path, format!("Duplicate value: {value:?}")));
            }
        }
        Ok(())
    }
}

/// Settings of volume binding.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VolumeBindingArgs {
    /// Timeout of binding, in seconds.
    pub bind_timeout_seconds: i64,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout_seconds: 600,
        }
    }
}

impl PluginArgs for VolumeBindingArgs {
    const PLUGIN: &'static str = "VolumeBinding";

    fn validate(&self) -> Result<(), (String, String)> {
        if self.bind_timeout_seconds < 0 {
            return invalid(
                "bindTimeoutSeconds",
                self.bind_timeout_seconds,
                "invalid BindTimeoutSeconds, should not be a negative value",
            );
        }
        Ok(())
    }
}

/// Settings of dynamic resource allocation. This scheduler does not support it, so no setting is accepted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct DynamicResourcesArgs {}

impl PluginArgs for DynamicResourcesArgs {
    const PLUGIN: &'static str = "DynamicResources";

    fn validate(&self) -> Result<(), (String, String)> {
        Ok(())
    }
}

/// Arguments of all default plugins that take any.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "one field for each plugin")]
pub struct DefaultPluginArgs {
    pub preemption: DefaultPreemptionArgs,
    pub inter_pod_affinity: InterPodAffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub node_resources_fit: NodeResourcesFitArgs,
    pub balanced_allocation: NodeResourcesBalancedAllocationArgs,
    pub pod_topology_spread: PodTopologySpreadArgs,
    pub volume_binding: VolumeBindingArgs,
}

impl DefaultPluginArgs {
    /// Reads the `args` object of a `pluginConfig` entry. Returns false if the plugin takes no arguments.
    ///
    /// # Errors
    /// When the object does not match the schema or a value is not valid.
    pub fn set(&mut self, plugin: &str, args: Option<&Value>) -> Result<bool, Error> {
        match plugin {
            DefaultPreemptionArgs::PLUGIN => self.preemption = PluginArgs::decode(args)?,
            InterPodAffinityArgs::PLUGIN => self.inter_pod_affinity = PluginArgs::decode(args)?,
            NodeAffinityArgs::PLUGIN => self.node_affinity = PluginArgs::decode(args)?,
            NodeResourcesFitArgs::PLUGIN => self.node_resources_fit = PluginArgs::decode(args)?,
            NodeResourcesBalancedAllocationArgs::PLUGIN => {
                self.balanced_allocation = PluginArgs::decode(args)?;
            }
            PodTopologySpreadArgs::PLUGIN => self.pod_topology_spread = PluginArgs::decode(args)?,
            VolumeBindingArgs::PLUGIN => self.volume_binding = PluginArgs::decode(args)?,
            DynamicResourcesArgs::PLUGIN => drop(DynamicResourcesArgs::decode(args)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads a Kubernetes object and refuses unknown fields, which its type by itself would accept.
fn strict<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: DeserializeOwned + Serialize,
{
    use serde::de::Error as _;
    let given = Value::deserialize(deserializer)?;
    let read: T = serde_json::from_value(given.clone()).map_err(D::Error::custom)?;
    let known = serde_json::to_value(&read).map_err(D::Error::custom)?;
    match unknown_field(&given, &known) {
        Some(field) => Err(D::Error::custom(format!("unknown field {field:?}"))),
        None => Ok(read),
    }
}

/// Returns the path of the first field that was given but not read.
fn unknown_field(given: &Value, read: &Value) -> Option<String> {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => given.iter().find_map(|(name, value)| {
            match read.get(name) {
                Some(read) => unknown_field(value, read).map(|inner| format!("{name}.{inner}")),
                // null means absent
                None if value.is_null() => None,
                None => Some(name.clone()),
            }
        }),
        (Value::Array(given), Value::Array(read)) => {
            given
                .iter()
                .zip(read)
                .enumerate()
                .find_map(|(index, (given, read))| {
                    unknown_field(given, read).map(|inner| format!("[{index}].{inner}"))
                })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use rstest::rstest;
    use serde_json::json;

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
}
