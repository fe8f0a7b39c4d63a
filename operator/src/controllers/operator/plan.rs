//! Decides what a `NUMAResourcesOperator` leads to. Pure: everything follows from the resource, from what was observed and from the
//! installation.
//!
//! - here: whether the resource is reconciled at all, and what may be wrong with it;
//! - [`machine_configs`], [`exporters`]: the objects wanted by the two steps that write some.

use api::operator::v1::NumaResourcesOperator;
use api::{annotations, conditions as condition, names};
use kube::ResourceExt as _;

use crate::controllers::{Admission, is_annotated};
use crate::images::Policy;
use crate::node_groups::Pool;
use crate::report::conditions::Outcome;

pub(super) mod exporters;
pub(super) mod machine_configs;

/// Decides whether the resource is reconciled (operator.md 4.2).
pub(super) fn admission(cr: &NumaResourcesOperator, images: &Policy) -> Admission {
    let name = cr.name_any();
    if name != names::OPERATOR_CR {
        return Admission::Refused(Outcome::Invalid {
            reason: condition::REASON_INCORRECT_OPERATOR_NAME,
            message: format!("incorrect NUMAResourcesOperator resource name: {name}"),
        });
    }
    if is_annotated(cr, annotations::PAUSE_RECONCILIATION, annotations::ENABLED) {
        return Admission::Paused;
    }
    let image = cr.spec.exporter_image.as_str();
    if !image.is_empty() && !images.exporter_image_allowed {
        return Admission::Refused(Outcome::Invalid {
            reason: condition::REASON_CUSTOM_USER_IMAGE,
            message: format!("custom operand image is not supported: {image}"),
        });
    }
    Admission::Granted
}

/// Returns whether the operator installs and updates the NRT definition.
pub(super) fn installs_definition(cr: &NumaResourcesOperator) -> bool {
    !is_annotated(cr, annotations::NRT_API_DEFINITION, annotations::CLUSTER)
}

/// Checks that every machine config pool has a node selector.
pub(super) fn check_selectors(pools: &[Pool]) -> Result<(), String> {
    let mut mcps = pools
        .iter()
        .filter_map(|pool| pool.machine_config_pool.as_ref());
    match mcps.find(|mcp| mcp.spec.node_selector.is_none()) {
        Some(mcp) => Err(format!(
            "the machine config pool {:?} does not have node selector",
            mcp.name_any()
        )),
        None => Ok(()),
    }
}

/// Returns the outcome to report: a success turns into a broken rule if a node group selects several pools, unless an annotation allows that.
pub(super) fn verdict(
    cr: &NumaResourcesOperator,
    multiple_pools_message: Option<String>,
    outcome: Outcome,
) -> Outcome {
    let tolerated = is_annotated(
        cr,
        annotations::MULTIPLE_POOLS_PER_TREE,
        annotations::ENABLED,
    );
    match multiple_pools_message {
        Some(message) if outcome == Outcome::Available && !tolerated => Outcome::Invalid {
            reason: condition::REASON_NODE_GROUPS,
            message,
        },
        _ => outcome,
    }
}

#[cfg(test)]
mod tests {
    use api::operator::v1::NumaResourcesOperatorSpec;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn resource(name: &str, annotation: Option<(&str, &str)>) -> NumaResourcesOperator {
        let mut cr = NumaResourcesOperator::new(name, NumaResourcesOperatorSpec::default());
        cr.metadata.annotations =
            annotation.map(|(key, value)| [(key.to_owned(), value.to_owned())].into());
        cr
    }

    fn invalid(reason: &'static str, message: &str) -> Outcome {
        Outcome::Invalid {
            reason,
            message: message.into(),
        }
    }

    const PAUSE: Option<(&str, &str)> =
        Some((annotations::PAUSE_RECONCILIATION, annotations::ENABLED));

    #[rstest]
    #[case::sound(names::OPERATOR_CR, None, "", false, Admission::Granted)]
    #[case::paused(names::OPERATOR_CR, PAUSE, "", false, Admission::Paused)]
    #[case::paused_with_an_image(names::OPERATOR_CR, PAUSE, "i", false, Admission::Paused)]
    #[case::other_name(
        "other",
        PAUSE,
        "",
        false,
        Admission::Refused(invalid(
            "IncorrectNUMAResourcesOperatorResourceName",
            "incorrect NUMAResourcesOperator resource name: other"
        ))
    )]
    #[case::image(
        names::OPERATOR_CR,
        None,
        "i",
        false,
        Admission::Refused(invalid(
            "CustomUserImage",
            "custom operand image is not supported: i"
        ))
    )]
    #[case::allowed_image(names::OPERATOR_CR, None, "i", true, Admission::Granted)]
    fn name_comes_before_the_pause_and_the_pause_before_the_image(
        #[case] name: &str,
        #[case] annotation: Option<(&str, &str)>,
        #[case] image: &str,
        #[case] exporter_image_allowed: bool,
        #[case] expected: Admission,
    ) {
        let mut cr = resource(name, annotation);
        cr.spec.exporter_image = image.into();
        let images = Policy {
            exporter_image_allowed,
            ..Policy::default()
        };
        assert_eq!(admission(&cr, &images), expected);
    }

    #[rstest]
    #[case::no_annotation(None, true)]
    #[case::installed_by_others(Some((annotations::NRT_API_DEFINITION, annotations::CLUSTER)), false)]
    #[case::other_value(Some((annotations::NRT_API_DEFINITION, "x")), true)]
    fn definition_is_installed_unless_others_do(
        #[case] annotation: Option<(&str, &str)>,
        #[case] expected: bool,
    ) {
        let cr = resource(names::OPERATOR_CR, annotation);
        assert_eq!(installs_definition(&cr), expected);
    }

    #[rstest]
    #[case::one_pool(None, None, Outcome::Available, Outcome::Available)]
    #[case::several(
        None,
        Some("m"),
        Outcome::Available,
        invalid(condition::REASON_NODE_GROUPS, "m")
    )]
    #[case::several_and_another_fault(None, Some("m"), invalid("r", "x"), invalid("r", "x"))]
    #[case::tolerated(
        Some((annotations::MULTIPLE_POOLS_PER_TREE, annotations::ENABLED)),
        Some("m"),
        Outcome::Available,
        Outcome::Available
    )]
    fn several_pools_for_a_group_spoil_only_a_success(
        #[case] annotation: Option<(&str, &str)>,
        #[case] message: Option<&str>,
        #[case] outcome: Outcome,
        #[case] expected: Outcome,
    ) {
        let cr = resource(names::OPERATOR_CR, annotation);
        assert_eq!(verdict(&cr, message.map(Into::into), outcome), expected);
    }

    #[rstest]
    #[case::selects(json!({"nodeSelector": {}}), Ok(()))]
    #[case::selects_nothing(json!({}), Err("the machine config pool \"worker\" does not have node selector".to_owned()))]
    fn machine_config_pools_need_a_node_selector(
        #[case] spec: serde_json::Value,
        #[case] expected: Result<(), String>,
    ) {
        let mcp = serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": spec}));
        let group = serde_json::from_value(json!({"poolName": "worker"})).unwrap();
        let selected =
            crate::node_groups::machine_pools::select(&[group], &[mcp.unwrap()]).unwrap();
        assert_eq!(check_selectors(&selected.pools), expected);
    }
}
