//! Schemas: supported keywords, keyed lists, rules. For their structure see `structural`, for defaults `defaults`.

use serde_json::{Value, json};

use super::parts::{numbered, schemas, text};
use super::rules::budget::{Budget, Occurrences};
use super::structural::{self, list_keys};
use super::{defaults, go, rules};
use crate::failure::Cause;

/// Types of values.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Keywords, by their Go names, that the root may have when the status is a subresource.
const AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];
/// Fields that every object has.
const META: [&str; 3] = ["metadata", "kind", "apiVersion"];

/// Checks the schema of a version, or of all versions; `path` is the path of its parent. The rules of a schema that existed before may be
/// expensive.
pub(super) fn check(
    schema: &Value,
    has_status: bool,
    was_there: bool,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    if schema.is_null() {
        return;
    }
    let path = format!("{path}.openAPIV3Schema");
    if has_status {
        check_root(schema, &path, causes);
    }
    if schema["nullable"] == true {
        let why = "nullable cannot be true at the root";
        causes.push(Cause::forbidden(format!("{path}.nullable"), why));
    }
    let mut is_sound = structural::has_structural_form(schema);
    if is_sound {
        let mut found = structural::check(schema, &path);
        if found.is_empty() {
            found = defaults::check(schema, &path);
        }
        is_sound = found.is_empty();
        causes.extend(found);
    }
    let mut found = Found::default();
    found.budget.skips_rule_limit = was_there;
    let context = Context {
        is_root: true,
        checks_rules: is_sound,
        ..Context::default()
    };
    check_keywords(schema, &path, &context, &mut found);
    causes.extend(found.schema);
    causes.extend(found.rules);
    found.budget.check(&path, causes);
}

fn check_root(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for field in go::fields(schema) {
        if field == "Type" {
            if schema["type"] != "object" {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                causes.push(Cause::invalid(format!("{path}.type"), &schema["type"], why));
                return;
            }
        } else if !AT_ROOT.contains(&field) {
            let why = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                AT_ROOT.join(" ")
            );
            let cause = Cause::invalid(path, &Value::Null, &why);
            causes.push(cause.with_value(&go::schema(schema)));
            return;
        }
    }
}

/// What was found. Causes about rules come after all others.
#[derive(Debug, Default)]
struct Found {
    schema: Vec<Cause>,
    rules: Vec<Cause>,
    budget: Budget,
}

/// The position of a schema, as far as it matters.
#[derive(Clone, Debug, Default)]
struct Context {
    is_root: bool,
    /// Why a default is not allowed here.
    no_default: Option<String>,
    is_meta: bool,
    /// Path of the outermost schema below which old and new values cannot be correlated.
    uncorrelated: Option<String>,
    checks_rules: bool,
    /// How often its values can occur in an object.
    occurrences: Occurrences,
}

impl Context {
    /// Returns the position of the schemas inside a schema.
    fn within(&self, schema: &Value) -> Self {
        Self {
            is_root: false,
            occurrences: self.occurrences.within(schema),
            ..self.clone()
        }
    }

    fn uncorrelated(mut self, path: &str) -> Self {
        self.uncorrelated.get_or_insert_with(|| path.to_owned());
        self
    }

    fn without_rules(&self) -> Self {
        Self {
            is_root: false,
            checks_rules: false,
            ..self.clone()
        }
    }
}

/// Checks the keywords of a schema and of all schemas in it.
fn check_keywords(schema: &Value, path: &str, context: &Context, found: &mut Found) {
    let before = found.schema.len();
    supported(schema, path, context, &mut found.schema);
    if schema["uniqueItems"] == true {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found
            .schema
            .push(Cause::forbidden(format!("{path}.uniqueItems"), why));
    }
    fields(schema, path, context, found);
    let bare = context.without_rules();
    if schema["not"].is_object() {
        check_keywords(&schema["not"], &format!("{path}.not"), &bare, found);
    }
    for list in ["allOf", "oneOf", "anyOf"] {
        for (index, inner) in numbered(&schema[list]) {
            check_keywords(inner, &format!("{path}.{list}[{index}]"), &bare, found);
        }
    }
    for (name, inner) in schemas(&schema["definitions"]) {
        check_keywords(inner, &format!("{path}.definitions[{name}]"), &bare, found);
    }
    let mut of_items = context.within(schema);
    if schema["x-kubernetes-list-type"] != "map" {
        of_items = of_items.uncorrelated(path);
    }
    match &schema["items"] {
        items @ Value::Object(_) => {
            check_keywords(items, &format!("{path}.items"), &of_items, found);
        }
        items => {
            for (index, inner) in numbered(items) {
                check_keywords(inner, &format!("{path}.items[{index}]"), &of_items, found);
            }
        }
    }
    for (name, inner) in schemas(&schema["dependencies"]).filter(|(_, inner)| inner.is_object()) {
        check_keywords(inner, &format!("{path}.dependencies[{name}]"), &bare, found);
    }
    merging(schema, path, &mut found.schema);
    rules::check_fields(schema, path, &mut found.schema);
    if context.checks_rules && found.schema.len() == before {
        let context = rules::RulesContext {
            is_root: context.is_root,
            uncorrelated: context.uncorrelated.as_deref(),
            occurrences: context.occurrences,
        };
        rules::check(schema, path, context, &mut found.budget, &mut found.rules);
    }
}

fn fields(schema: &Value, path: &str, context: &Context, found: &mut Found) {
    let additional = &schema["additionalProperties"];
    let has_fields = schemas(&schema["properties"]).next().is_some();
    if has_fields && (additional.is_object() || *additional == false) {
        let why = "additionalProperties and properties are mutual exclusive";
        found.schema.push(Cause::forbidden(
            format!("{path}.additionalProperties"),
            why,
        ));
    }
    if additional.is_object() {
        let mut inner = context.within(schema);
        if context.is_meta {
            inner.no_default =
                Some("inside additionalProperties applying to object metadata".into());
        }
        check_keywords(
            additional,
            &format!("{path}.additionalProperties"),
            &inner,
            found,
        );
    }
    let is_object = context.is_root || schema["x-kubernetes-embedded-resource"] == true;
    for (name, field) in schemas(&schema["properties"]) {
        let mut inner = context.within(schema);
        if schema["x-kubernetes-map-type"] == "atomic" {
            inner = inner.uncorrelated(path);
        }
        if is_object && META.contains(&name.as_str()) {
            inner.is_meta = true;
            if context.is_root {
                inner.no_default = Some(format!("in top-level {name}"));
            }
        }
        check_keywords(field, &format!("{path}.properties[{name}]"), &inner, found);
    }
}

fn supported(schema: &Value, path: &str, context: &Context, causes: &mut Vec<Cause>) {
    let kind = text(&schema["type"]);
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let known = TYPES.map(str::to_owned);
        causes.push(Cause::unsupported(
            format!("{path}.type"),
            &json!(kind),
            &known,
        ));
    }
    let mut forbid = |word: &str, why: &str| {
        causes.push(Cause::forbidden(format!("{path}.{word}"), why));
    };
    if let Some(why) = &context.no_default
        && !schema["default"].is_null()
    {
        forbid("default", &format!("must not be set {why}"));
    }
    for word in [
        "id",
        "additionalItems",
        "patternProperties",
        "definitions",
        "dependencies",
        "$ref",
    ] {
        if !schema[word].is_null() {
            forbid(word, &format!("{word} is not supported"));
        }
    }
    if kind == "null" {
        forbid(
            "type",
            "type cannot be set to null, use nullable as an alternative",
        );
    }
    if schema["items"].is_array() {
        forbid("items", "items must be a schema object and not an array");
    }
    if context.is_meta && schema["x-kubernetes-embedded-resource"] == true {
        forbid(
            "x-kubernetes-embedded-resource",
            "must not be used inside of resource meta",
        );
    }
}

/// Checks the keywords about merging lists and maps.
fn merging(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(&schema["type"]);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let path = format!("{path}.x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(
            path,
            &json!(false),
            "must be true or undefined",
        ));
    }
    let wrong_type = |wanted: &str, word: &str| {
        let path = format!("{path}.type");
        let why = format!("must be {wanted} if {word} is specified");
        if kind.is_empty() {
            Cause::required(path, &why)
        } else {
            Cause::invalid(path, &json!(kind), &why)
        }
    };
    let unknown = |word: &str, value: &str, known: &[&str]| {
        let known: Vec<String> = known.iter().map(|&word| word.to_owned()).collect();
        Cause::unsupported(format!("{path}.{word}"), &json!(value), &known)
    };
    if let Some(map) = schema["x-kubernetes-map-type"].as_str() {
        if kind != "object" {
            causes.push(wrong_type("object", "x-kubernetes-map-type"));
        }
        if !["atomic", "granular"].contains(&map) {
            causes.push(unknown(
                "x-kubernetes-map-type",
                map,
                &["atomic", "granular"],
            ));
        }
    }
    let list = schema["x-kubernetes-list-type"].as_str();
    if let Some(list) = list {
        if kind != "array" {
            causes.push(wrong_type("array", "x-kubernetes-list-type"));
        } else if list == "set" {
            set_items(&schema["items"], path, causes);
        }
        if !["atomic", "set", "map"].contains(&list) {
            causes.push(unknown(
                "x-kubernetes-list-type",
                list,
                &["atomic", "set", "map"],
            ));
        }
    }
    if list_keys(schema).next().is_some() && list != Some("map") {
        let path = format!("{path}.x-kubernetes-list-type");
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match list {
            None => Cause::required(path, why),
            Some(list) => Cause::invalid(path, &json!(list), why),
        });
    }
    if list == Some("map") {
        keyed_items(schema, path, causes);
    }
    if let Some(list @ ("set" | "map")) = list {
        item_keys(schema, list, path, causes);
    }
}

/// Checks that the items of a set are atomic.
fn set_items(items: &Value, path: &str, causes: &mut Vec<Cause>) {
    const WHY: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list = &items["x-kubernetes-list-type"];
    let mut refuse = |word: &str| {
        let cause = Cause::invalid(format!("{path}.items.{word}"), list, WHY);
        causes.push(cause);
    };
    match text(&items["type"]) {
        "array" if !list.is_null() && list != "atomic" => refuse("x-kubernetes-list-type"),
        "object" if items["x-kubernetes-map-type"] != "atomic" => refuse("x-kubernetes-map-type"),
        _ => {}
    }
}

/// Checks that the items of a keyed list are objects with these keys.
fn keyed_items(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let keys_path = format!("{path}.x-kubernetes-list-map-keys");
    if list_keys(schema).next().is_none() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(keys_path.clone(), why));
    }
    let items = &schema["items"];
    if items.is_null() {
        let why = "must have a schema if x-kubernetes-list-type is map";
        causes.push(Cause::required(format!("{path}.items"), why));
    }
    if !items.is_object() {
        return;
    }
    if items["type"] != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        let found = json!(text(&items["type"]));
        causes.push(Cause::invalid(format!("{path}.items.type"), &found, why));
        return;
    }
    let all: Vec<&str> = list_keys(schema).collect();
    for (index, key) in all.iter().enumerate() {
        let mut refuse = |why: &str| {
            let keys = &schema["x-kubernetes-list-map-keys"];
            causes.push(Cause::invalid(keys_path.clone(), keys, why));
        };
        match items["properties"].get(*key) {
            None => refuse("entries must all be names of item properties"),
            Some(field) if ["array", "object"].contains(&text(&field["type"])) => {
                let path = format!("{path}.items.properties[{key}].type");
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid(path, &items["type"], why));
            }
            Some(_) => {}
        }
        if all[..index].contains(key) {
            let keys = &schema["x-kubernetes-list-map-keys"];
            let why = "must not contain duplicate entries";
            causes.push(Cause::invalid(keys_path.clone(), keys, why));
        }
    }
}

/// Checks that the keys of list items are always present.
fn item_keys(schema: &Value, list: &str, path: &str, causes: &mut Vec<Cause>) {
    let items = &schema["items"];
    if items["nullable"] == true {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        causes.push(Cause::forbidden(format!("{path}.items.nullable"), &why));
    }
    if list != "map" {
        return;
    }
    for key in list_keys(schema) {
        let Some(field) = items["properties"].get(key) else {
            continue;
        };
        let path = format!("{path}.items.properties[{key}]");
        let is_required = numbered(&items["required"]).any(|(_, name)| name == key);
        if !is_required && field["default"].is_null() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(format!("{path}.default"), why));
        }
        if field["nullable"] == true {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(format!("{path}.nullable"), why));
        }
    }
}
