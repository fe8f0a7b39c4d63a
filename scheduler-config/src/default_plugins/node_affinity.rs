//! Arguments of NodeAffinity.

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorTerm};
use serde::{Deserialize, Serialize};

use super::{PluginArgs, invalid, strict, unsupported};

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
