use rstest::rstest;

use super::*;
use crate::failure::Cause;

/// Returns a definition with this schema.
fn definition(schema: &Value) -> Value {
    json!({
        "spec": {"group": "g.example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"storedVersions": ["v1"]}})
}

/// Returns what is wrong with a definition, with the path of its schema shortened to `S`.
fn wrong(definition: &Value) -> Vec<String> {
    of_new(definition)
        .iter()
        .map(|cause| cause.text().replace("spec.validation.openAPIV3Schema", "S"))
        .collect()
}

fn of_field(field: &Value) -> Value {
    definition(&json!({"type": "object", "properties": {"a": field}}))
}

#[rstest]
#[case::plain(json!({"type": "string"}))]
#[case::number_or_text(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}))]
#[case::anything(json!({"x-kubernetes-preserve-unknown-fields": true}))]
#[case::embedded(json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}))]
#[case::keyed(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
    "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}}))]
#[case::restricted(json!({"type": "object", "properties": {"b": {"type": "string"}}, "oneOf": [{"required": ["b"]}, {"properties": {"b": {"enum": ["x"]}}}]}))]
#[case::field_only_in_a_restriction(json!({"type": "object", "oneOf": [{"properties": {"b": {"minLength": 1}}}]}))]
#[case::default_of_parts(json!({"type": "object", "default": {}, "required": ["b"], "properties": {"b": {"type": "integer", "default": 1}}}))]
#[case::rules(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.size() > 1 && self == oldSelf", "message": "no"}]}))]
fn a_sound_schema_is_let_in(#[case] field: Value) {
    assert_eq!(wrong(&of_field(&field)), Vec::<String>::new());
}

#[rstest]
#[case::items_without_type(json!({"type": "array", "items": {}}),
    &["S.properties[a].items.type: Required value: must not be empty for specified array items"])]
#[case::type_in_a_restriction(json!({"type": "object", "properties": {"b": {"type": "string"}}, "anyOf": [{"properties": {"b": {"type": "string"}}}]}),
    &["S.properties[a].anyOf[0].properties[b].type: Forbidden: must be empty to be structural"])]
#[case::reference(json!({"type": "string", "$ref": "#/definitions/x"}), &["S.properties[a].$ref: Forbidden: $ref is not supported"])]
#[case::tuple(json!({"type": "array", "items": [{"type": "string"}]}),
    &["S.properties[a].items: Forbidden: items must be a schema object and not an array"])]
#[case::unique(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
    &["S.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"])]
#[case::keys_may_be_missing(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
    "items": {"type": "object", "properties": {"n": {"type": "string"}}}}),
    &["S.properties[a].items.properties[n].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"])]
#[case::keys_of_nothing(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["m"],
    "items": {"type": "object", "properties": {"n": {"type": "string"}}}}),
    &["S.properties[a].x-kubernetes-list-map-keys: Invalid value: [\"m\"]: entries must all be names of item properties"])]
#[case::unknown_list_type(json!({"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}),
    &["S.properties[a].x-kubernetes-list-type: Unsupported value: \"bag\": supported values: \"atomic\", \"set\", \"map\""])]
#[case::unknown_part_of_a_default(json!({"type": "object", "default": {"c": 1}, "properties": {"b": {"type": "string"}}}),
    &["S.properties[a].default: Invalid value: {\"c\":1}: must not have unknown fields"])]
#[case::default_against_a_part(json!({"type": "object", "default": {"b": -1}, "properties": {"b": {"type": "integer", "minimum": 0}}}),
    &["S.properties[a].default.b: Invalid value: -1: b in body should be greater than or equal to 0"])]
#[case::empty_rule(json!({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}),
    &["S.properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified"])]
#[case::unknown_reason(json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "Because"}]}),
    &["S.properties[a].x-kubernetes-validations[0].reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""])]
#[case::items_have_no_past(json!({"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
    &["S.properties[a].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within S.properties[a]"])]
fn a_broken_schema_is_refused(#[case] field: Value, #[case] expected: &[&str]) {
    assert_eq!(wrong(&of_field(&field)), expected);
}

#[test]
fn metadata_may_restrict_names_only() {
    let with = |metadata: &Value| {
        wrong(&definition(
            &json!({"type": "object", "properties": {"metadata": metadata}}),
        ))
    };
    let name = json!({"type": "string", "maxLength": 5});
    assert!(with(&json!({"type": "object", "properties": {"name": name}})).is_empty());
    assert_eq!(
        with(&json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
        [
            "S.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ]
    );
}

#[test]
fn rules_are_not_compiled_in_a_broken_schema() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.nothing"}], "properties": {"a": {}}});
    assert_eq!(
        wrong(&definition(&schema)),
        ["S.properties[a].type: Required value: must not be empty for specified object fields"]
    );
}

#[test]
fn versions_with_schemas_of_their_own_are_named() {
    let mut two = of_field(&json!({"type": "string"}));
    two["spec"]["versions"].as_array_mut().unwrap().push(json!({
        "name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "array"}}}));
    assert_eq!(
        wrong(&two),
        [
            "spec.versions[1].schema.openAPIV3Schema.items: Required value: must be specified",
            "spec.versions[1].schema.openAPIV3Schema.type: Invalid value: \"array\": must be object at the root"
        ]
    );
}

#[test]
fn groups_of_kubernetes_need_an_approval() {
    let mut protected = of_field(&json!({"type": "string"}));
    protected["spec"]["group"] = json!("x.k8s.io");
    assert_eq!(
        wrong(&protected),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    protected["metadata"]["annotations"]["api-approved.kubernetes.io"] =
        json!("unapproved, a test");
    assert!(wrong(&protected).is_empty());
}

#[test]
fn versions_that_objects_may_be_kept_in_stay() {
    let mut changed = of_field(&json!({"type": "string"}));
    changed["status"]["storedVersions"] = json!(["v1alpha1", "v1"]);
    let before = changed.clone();
    let found: Vec<String> = of_change("", &before, &changed)
        .iter()
        .map(Cause::text)
        .collect();
    assert_eq!(
        found,
        [
            "status.storedVersions[0]: Invalid value: \"v1alpha1\": missing from spec.versions; v1alpha1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1alpha1 and removes v1alpha1 from status.storedVersions"
        ]
    );
}

#[test]
fn scope_and_kind_may_change_until_the_definition_is_established() {
    let before = of_field(&json!({"type": "string"}));
    let mut changed = before.clone();
    changed["spec"]["scope"] = json!("Cluster");
    assert!(of_change("", &before, &changed).is_empty());
    let mut established = before.clone();
    established["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    let found: Vec<String> = of_change("", &established, &changed)
        .iter()
        .map(Cause::text)
        .collect();
    assert_eq!(
        found,
        ["spec.scope: Invalid value: \"Cluster\": field is immutable"]
    );
}

#[rstest]
#[case::both(json!({"url": "https://example.com", "service": {"name": "s", "namespace": "n"}}),
    &["spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required"])]
#[case::scheme(json!({"url": "http://example.com"}),
    &["spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"])]
#[case::query(json!({"url": "https://example.com/a?b=c"}),
    &["spec.conversion.webhookClientConfig.url: Invalid value: \"b=c\": query parameters are not permitted in the URL"])]
#[case::path(json!({"service": {"name": "s", "namespace": "n", "path": "ab"}}),
    &["spec.conversion.webhookClientConfig.service.path: Invalid value: \"ab\": must start with a '/'"])]
#[case::good(json!({"service": {"name": "s", "namespace": "n", "path": "/a/b", "port": 443}}), &[])]
fn webhooks_are_told_how_to_be_reached(#[case] client: Value, #[case] expected: &[&str]) {
    let mut converted = of_field(&json!({"type": "string"}));
    converted["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
    assert_eq!(wrong(&converted), expected);
}

#[test]
fn selectable_fields_are_scalars_of_the_schema() {
    let mut selected =
        of_field(&json!({"type": "object", "properties": {"b": {"type": "string"}}}));
    selected["spec"]["versions"][0]["selectableFields"] =
        json!([{"jsonPath": ".a.b"}, {"jsonPath": ".a"}, {"jsonPath": ".c"}, {"jsonPath": ".a.b"}]);
    assert_eq!(
        wrong(&selected),
        [
            "spec.selectableFields[1].jsonPath: Invalid value: \".a\": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            "spec.selectableFields[2].jsonPath: Invalid value: \".c\": is an invalid path: does not refer to a valid field",
            "spec.selectableFields[3].jsonPath: Duplicate value: \".a.b\""
        ]
    );
}
