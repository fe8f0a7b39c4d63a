//! Arguments of PodTopologySpread.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::{Deserialize, Serialize};

use super::{PluginArgs, invalid, strict, unsupported};

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
