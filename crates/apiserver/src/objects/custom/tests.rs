use rstest::rstest;
use serde_json::json;

use super::*;

fn normalised(schema: &Value, mut object: Value) -> (Value, Vec<String>) {
    let found = normalise(schema, &mut object);
    assert_eq!(found.undecodable, None);
    (object, found.unknown)
}

fn schema(properties: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
}

#[rstest]
#[case::default_in_a_default(json!({"a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 1}}}}),
    json!({}), json!({"a": {"b": 1}}))]
#[case::null_with_a_default(json!({"a": {"type": "string", "default": "x"}}), json!({"a": null}), json!({"a": "x"}))]
#[case::null_without_a_default(json!({"a": {"type": "string"}}), json!({"a": null}), json!({}))]
#[case::null_that_may_be(json!({"a": {"type": "string", "nullable": true, "default": "x"}}), json!({"a": null}), json!({"a": null}))]
#[case::items(json!({"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}}}}),
    json!({"a": [{}, {"b": 2, "c": 3}]}), json!({"a": [{"b": 1}, {"b": 2}]}))]
#[case::map_values(json!({"a": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}}}}),
    json!({"a": {"x": {"c": 1}}}), json!({"a": {"x": {"b": 1}}}))]
#[case::object_without_fields(json!({"a": {"type": "object"}}), json!({"a": {"b": 1}}), json!({"a": {}}))]
#[case::kept_but_cut_where_it_is_known(
    json!({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"b": {"type": "object"}}}}),
    json!({"a": {"b": {"c": 1}, "d": {"e": 1}}}), json!({"a": {"b": {}, "d": {"e": 1}}}))]
fn objects_are_cut_and_completed(
    #[case] properties: Value,
    #[case] given: Value,
    #[case] expected: Value,
) {
    let (object, _) = normalised(&schema(&properties), json!({"kind": "K", "spec": given}));
    assert_eq!(object["spec"], expected);
}

#[test]
fn what_is_removed_is_told_metadata_first() {
    let schema = schema(
        &json!({"list": {"type": "array", "items": {"type": "object"}},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}),
    );
    let (object, unknown) = normalised(
        &schema,
        json!({"metadata": {"name": "a", "nothing": 1}, "more": 1, "spec": {"list": [{"b": 1}],
            "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "other": 1}, "spec": {}}}}),
    );
    assert_eq!(
        unknown,
        [
            "metadata.nothing",
            "more",
            "spec.list[0].b",
            "spec.template.metadata.other"
        ]
    );
    assert_eq!(object["spec"]["template"]["metadata"], json!({"name": "p"}));
}

#[test]
fn metadata_of_a_wrong_type_cannot_be_read() {
    let mut object = json!({"metadata": {"labels": {"a": 1}}});
    let found = normalise(&schema(&json!({})), &mut object);
    assert_eq!(
        found.undecodable.as_deref(),
        Some("json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string")
    );
}

/// Pseudo-random numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Returns a schema with everything that pruning and defaulting look at.
    fn schema(&mut self, depth: u64) -> Value {
        let mut schema = match self.below(if depth == 0 { 2 } else { 6 }) {
            0 => json!({"type": "integer"}),
            1 => json!({"type": "string"}),
            2 => json!({"type": "array", "items": self.schema(depth - 1)}),
            3 => json!({"type": "object", "additionalProperties": self.schema(depth - 1)}),
            _ => {
                let mut properties = json!({});
                for name in ["a", "b", "c"] {
                    if self.below(3) > 0 {
                        properties[name] = self.schema(depth - 1);
                    }
                }
                let keeps = self.below(3) == 0;
                let mut schema = json!({"type": "object", "properties": properties});
                if keeps {
                    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                }
                schema
            }
        };
        if self.below(4) == 0 {
            schema["nullable"] = json!(true);
        }
        if self.below(3) == 0 {
            let mut default = self.value(&schema, 1);
            // a definition with any other default is refused
            prune(Some(&schema), &mut default, false, "", &mut Vec::new());
            drop_nulls(&schema, &mut default);
            if !default.is_null() {
                schema["default"] = default;
            }
        }
        schema
    }

    /// Returns a value that more or less fits the schema.
    fn value(&mut self, schema: &Value, wild: u64) -> Value {
        if wild > 0 && self.below(8) == 0 {
            return Value::Null;
        }
        match schema["type"].as_str().unwrap_or_default() {
            "integer" => json!(self.below(9)),
            "string" => json!("text"),
            "array" => (0..self.below(3))
                .map(|_| self.value(&schema["items"], wild))
                .collect(),
            _ => {
                let mut object = json!({});
                for name in ["a", "b", "c", "d"] {
                    if self.below(2) == 0 {
                        let inner = schema["properties"].get(name);
                        let inner = inner.or_else(|| schema.get("additionalProperties"));
                        let (other, text) = (json!({"type": "object"}), json!({"type": "string"}));
                        let depth_left = inner.is_some() || self.below(3) > 0;
                        object[name] = if depth_left {
                            self.value(inner.unwrap_or(&text), wild)
                        } else {
                            self.value(&other, 0)
                        };
                    }
                }
                object
            }
        }
    }
}

#[test]
fn what_was_settled_once_is_settled() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let schema = json!({"type": "object", "properties": {"spec": random.schema(4)}});
        let written = json!({"kind": "K", "spec": random.value(&schema["properties"]["spec"], 1)});
        let mut once = written.clone();
        prune_and_default(&schema, &mut once);
        let mut twice = once.clone();
        prune_and_default(&schema, &mut twice);
        assert_eq!(once, twice, "seed {seed}: {schema} {written}");
        assert!(
            is_pruned_and_defaulted(Some(&schema), &once, true),
            "seed {seed}: {schema} {once}"
        );
        assert_eq!(
            is_pruned_and_defaulted(Some(&schema), &written, true),
            written == once,
            "seed {seed}: {schema} {written}"
        );
    }
}

#[test]
fn defaults_never_bring_what_is_cut_off() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let schema = json!({"type": "object", "properties": {"spec": random.schema(4)}});
        let mut object = json!({"spec": random.value(&schema["properties"]["spec"], 1)});
        prune_and_default(&schema, &mut object);
        let mut unknown = Vec::new();
        prune(Some(&schema), &mut object, true, "", &mut unknown);
        assert!(unknown.is_empty(), "seed {seed}: {schema} {unknown:?}");
    }
}
