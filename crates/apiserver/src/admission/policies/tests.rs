use std::sync::Arc;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::access::identity::{Identity, User};
use crate::registry::built_in;
use crate::storage::{Key, Store};

/// Asks one policy with one binding about the creation of a ConfigMap by `alice` in the namespace `a`.
fn ask(spec: &Value, binding: &Value, object: &Value) -> Result<Vec<String>, String> {
    let store = Store::new(10);
    let mut state = store.lock();
    let mut policy = json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]}}});
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    let mut binding_spec = json!({"policyName": "p", "validationActions": ["Deny"]});
    for (field, value) in binding.as_object().unwrap() {
        binding_spec[field] = value.clone();
    }
    state.put(Key::new(POLICIES, "", "p"), policy);
    state.put(Key::new(BINDINGS, "", "b"), json!({"spec": binding_spec}));
    let namespace = json!({"metadata": {"name": "a", "labels": {"team": "x"}}});
    state.put(Key::new("namespaces", "", "a"), namespace);
    let limit = json!({"metadata": {"name": "limit"}, "data": {"most": "2"}});
    state.put(Key::new("configmaps", "a", "limit"), limit);
    let resource = Arc::clone(built_in().find("", "v1", "configmaps").unwrap());
    let identity = Identity::of(User {
        name: "alice".into(),
        groups: vec!["system:masters".into()],
        ..User::default()
    });
    let attempt = Attempt {
        resource: &resource,
        subresource: "",
        namespace: "a",
        name: "c",
        identity: &identity,
        before: None,
        disabled: &[],
    };
    let review = Review {
        attempt,
        operation: Operation::Create,
        object: Some(object),
        options: Options::default(),
    };
    check(&state, &review).map_err(|failure| failure.message)
}

fn refusal(why: &str) -> Result<Vec<String>, String> {
    Err(format!(
        "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}"
    ))
}

#[test]
fn a_large_expression_has_room() {
    let long = ["true"; 200].join(" && ");
    let deep = format!(
        "{}object.metadata.name == 'c'{}",
        "(".repeat(90),
        ")".repeat(90)
    );
    let spec = json!({"validations": [{"expression": deep}, {"expression": long}]});
    assert_eq!(
        ask(&spec, &json!({}), &json!({"metadata": {"name": "c"}})),
        Ok(Vec::new())
    );
}

#[rstest]
#[case::passes(json!({"validations": [{"expression": "object.data.k == 'v'"}]}), Ok(vec![]))]
#[case::tells_the_expression(json!({"validations": [{"expression": " object.data.k == 'w' "}]}),
    refusal("failed expression: object.data.k == 'w'"))]
#[case::tells_the_message(json!({"validations": [{"expression": "false", "message": "no"}]}), refusal("no"))]
#[case::makes_a_message(json!({"validations": [{"expression": "false", "messageExpression": "'not ' + object.data.k", "message": "no"}]}),
    refusal("not v"))]
#[case::falls_back(json!({"validations": [{"expression": "false", "messageExpression": "object.none", "message": "no"}]}), refusal("no"))]
#[case::fails(json!({"validations": [{"expression": "object.none.k == 1"}]}),
    refusal("expression 'object.none.k == 1' resulted in error: no such key: none"))]
#[case::may_fail(json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.none.k == 1"}]}), Ok(vec![]))]
#[case::not_of_this_user(json!({"matchConditions": [{"name": "bob", "expression": "request.userInfo.username == 'bob'"}],
    "validations": [{"expression": "false"}]}), Ok(vec![]))]
#[case::of_this_user(json!({"matchConditions": [{"name": "alice", "expression": "request.userInfo.username == 'alice'"}],
    "validations": [{"expression": "false", "message": "no"}]}), refusal("no"))]
#[case::composes(json!({"variables": [{"name": "one", "expression": "object.data.k"}, {"name": "two", "expression": "variables.one + 'w'"}],
    "validations": [{"expression": "variables.two == 'vw'"}]}), Ok(vec![]))]
#[case::an_unused_variable_may_fail(json!({"variables": [{"name": "one", "expression": "object.none"}],
    "validations": [{"expression": "true"}]}), Ok(vec![]))]
#[case::a_used_variable_may_not(json!({"variables": [{"name": "one", "expression": "object.none"}],
    "validations": [{"expression": "variables.one"}]}),
    refusal("expression 'variables.one' resulted in error: composited variable \"one\" fails to evaluate: no such key: none"))]
#[case::sees_the_namespace(json!({"validations": [{"expression": "namespaceObject.metadata.labels.team == 'x'"}]}), Ok(vec![]))]
#[case::asks_the_authorizer(json!({"validations": [
    {"expression": "authorizer.group('').resource('pods').namespace('a').check('get').allowed()"},
    {"expression": "!authorizer.requestResource.check('create').allowed()", "message": "may create"}]}), refusal("may create"))]
#[case::asks_about_an_account(json!({"validations": [
    {"expression": "authorizer.serviceAccount('a', 'b').group('').resource('pods').check('get').allowed()", "message": "may not"}]}), refusal("may not"))]
#[case::selects_what_may_be_missing(json!({"validations": [
    {"expression": "object.metadata.?none.a.orValue('b') == 'b' && !object.metadata.?none.hasValue() && object.data.?k.orValue('b') == 'v'"}]}), Ok(vec![]))]
#[case::is_stopped(json!({"validations": [{"expression": "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a + b + c + d + e < 100)))))"}]}),
    refusal("expression '[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a + b + c + d + e < 100)))))' resulted in error: operation cancelled: actual cost limit exceeded"))]
fn a_policy_lets_pass_what_a_real_server_lets_pass(
    #[case] spec: Value,
    #[case] expected: Result<Vec<String>, String>,
) {
    let object = json!({"metadata": {"name": "c"}, "data": {"k": "v"}});
    assert_eq!(ask(&spec, &json!({}), &object), expected);
}

#[rstest]
#[case::by_name(json!({"name": "limit", "parameterNotFoundAction": "Deny"}), refusal("too many: most 2"))]
#[case::of_another_namespace(json!({"name": "limit", "namespace": "b", "parameterNotFoundAction": "Deny"}),
    refusal("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"))]
#[case::missing(json!({"name": "none", "parameterNotFoundAction": "Allow"}), Ok(vec![]))]
#[case::selected(json!({"selector": {}, "parameterNotFoundAction": "Deny"}), refusal("too many: most 2"))]
fn a_policy_is_asked_with_the_parameters_of_its_binding(
    #[case] reference: Value,
    #[case] expected: Result<Vec<String>, String>,
) {
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
        {"expression": "int(params.data.most) >= 3", "messageExpression": "'too many: most ' + params.data.most"}]});
    let object = json!({"metadata": {"name": "c"}});
    assert_eq!(
        ask(&spec, &json!({"paramRef": reference}), &object),
        expected
    );
}

#[rstest]
#[case::of_another_resource(json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["secrets"]}]}), false)]
#[case::of_another_operation(json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["*"]}]}), false)]
#[case::of_a_subresource(json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps/status"]}]}), false)]
#[case::of_everything(json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}), true)]
#[case::by_name(json!({"resourceRules": [{"resourceNames": ["d"], "apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}), false)]
#[case::of_the_cluster(json!({"resourceRules": [{"scope": "Cluster", "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]}), false)]
#[case::excluded(json!({"excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["*"], "operations": ["*"], "resources": ["configmaps"]}]}), false)]
#[case::in_this_namespace(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), true)]
#[case::in_another_namespace(json!({"namespaceSelector": {"matchLabels": {"team": "y"}}}), false)]
#[case::by_another_label(json!({"objectSelector": {"matchLabels": {"l": "m"}}}), false)]
fn a_binding_narrows_what_its_policy_is_about(#[case] resources: Value, #[case] matches: bool) {
    let spec = json!({"validations": [{"expression": "false", "message": "no"}]});
    let object = json!({"metadata": {"name": "c"}});
    let asked = ask(&spec, &json!({"matchResources": resources}), &object);
    assert_eq!(asked.is_err(), matches, "{asked:?}");
}

#[test]
fn a_binding_can_warn_in_place_of_refusing() {
    let spec = json!({"validations": [{"expression": "false", "message": "no"}]});
    let asked = ask(
        &spec,
        &json!({"validationActions": ["Warn"]}),
        &json!({"metadata": {"name": "c"}}),
    );
    assert_eq!(
        asked,
        Ok(vec![
            "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no".to_owned()
        ])
    );
}
