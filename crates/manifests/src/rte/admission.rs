//! The admission policy of the exporters: each writes the topology of its own node and the status of its own pod only.
//!
//! The roles of the exporters let every one of them write every topology, and the status of every pod beside it, because roles do not know of nodes.
//! Whoever takes over one node could so tell lies about all others. The original has no such policy.

use api::{names, nrt};
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
    ValidatingAdmissionPolicySpec, Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::meta;

/// The node of the pod that a token was issued for, and the pod itself. API servers add the node to the user from Kubernetes 1.30 on, unless the
/// feature `ServiceAccountTokenPodNodeInfo` is switched off.
const NODE: &str =
    "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')";
const POD: &str = "request.userInfo.extra[?'authentication.kubernetes.io/pod-name'][0].orValue('')";
const NAME: &str = "(request.operation == 'DELETE' ? oldObject : object).metadata.name";

/// Returns the policy. It applies to the account of the exporters in this namespace; a token that names no pod and no node may write nothing.
pub(super) fn policy(namespace: &str) -> ValidatingAdmissionPolicy {
    let account = names::RTE;
    let variable = |name: &str, expression: &str| Variable {
        name: name.into(),
        expression: expression.into(),
    };
    let rule = |group: &str, resource: &str, operations: &[&str]| NamedRuleWithOperations {
        api_groups: Some(vec![group.into()]),
        api_versions: Some(vec!["*".into()]),
        operations: Some(
            operations
                .iter()
                .map(|&operation| operation.into())
                .collect(),
        ),
        resources: Some(vec![resource.into()]),
        ..NamedRuleWithOperations::default()
    };
    let spec = ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".into()),
        match_conditions: Some(vec![MatchCondition {
            name: "exporter".into(),
            expression: format!(
                "request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'"
            ),
        }]),
        match_constraints: Some(MatchResources {
            resource_rules: Some(vec![
                rule(nrt::GROUP, nrt::PLURAL, &["CREATE", "UPDATE", "DELETE"]),
                rule("", "pods/status", &["UPDATE"]),
            ]),
            // pods of other namespaces cost no look at the policy: the role of the exporters ends at their namespace
            namespace_selector: Some(LabelSelector {
                match_labels: Some(meta::labels([("kubernetes.io/metadata.name", namespace)])),
                match_expressions: None,
            }),
            ..MatchResources::default()
        }),
        validations: Some(vec![
            only(
                nrt::PLURAL,
                "node",
                "the NodeResourceTopology of its own node",
            ),
            only("pods", "pod", "the status of its own pod"),
        ]),
        variables: Some(vec![
            variable("node", NODE),
            variable("pod", POD),
            variable("name", NAME),
        ]),
        ..ValidatingAdmissionPolicySpec::default()
    };
    ValidatingAdmissionPolicy {
        metadata: meta::cluster_wide(names::RTE_OWN_NODE_POLICY),
        spec: Some(spec),
        status: None,
    }
}

/// Demands that the name of an object of this resource equals a variable that comes from the token.
fn only(resource: &str, variable: &str, what: &str) -> Validation {
    Validation {
        expression: format!(
            "request.resource.resource != '{resource}' || (variables.{variable} != '' && variables.{variable} == variables.name)"
        ),
        message_expression: Some(format!(
            "'an exporter writes {what} only; the {variable} of this token: \"' + variables.{variable} + '\", the object: \"' + variables.name + '\"'"
        )),
        reason: Some("Forbidden".into()),
        message: None,
    }
}

/// Returns what puts the policy into effect.
pub(super) fn binding() -> ValidatingAdmissionPolicyBinding {
    ValidatingAdmissionPolicyBinding {
        metadata: meta::cluster_wide(names::RTE_OWN_NODE_POLICY),
        spec: Some(ValidatingAdmissionPolicyBindingSpec {
            policy_name: Some(names::RTE_OWN_NODE_POLICY.into()),
            validation_actions: Some(vec!["Deny".into()]),
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }),
    }
}
