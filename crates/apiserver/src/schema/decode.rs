//! Decoding of objects of built-in kinds: removes and reports unknown fields, checks types, and puts amounts into their canonical form. For
//! custom objects see `objects::custom`.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::node::Node;
use crate::values::fields::join;
use crate::values::{quantity, times};

/// The types that fields have in Go, by the schema that has the field, where they have names of their own.
static TYPES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/types.json")).unwrap_or_default()
});

/// The names of structures between a structure and those of its fields that another structure in it has, by the schema that shows the field.
static EMBEDDED: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/embedded.json")).unwrap_or_default()
});

/// Findings about an object.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Paths of fields that the schema does not have; they are removed.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type, in the words of Go's decoder.
    pub(crate) undecodable: Option<String>,
}

/// Checks and normalises an object in place.
pub(crate) fn decode(schema: Node<'_>, object: &mut Value) -> Findings {
    let mut reader = Reader {
        found: Findings::default(),
    };
    let root = Place {
        around: None,
        step: Step::Root(schema),
    };
    reader.value(schema, object, &root);
    reader.found
}

/// A place in an object.
#[derive(Clone, Copy)]
struct Place<'a> {
    around: Option<&'a Place<'a>>,
    step: Step<'a>,
}

/// The last step to a place.
#[derive(Clone, Copy)]
enum Step<'a> {
    /// The whole object.
    Root(Node<'a>),
    /// A field of a structure.
    Field(Node<'a>, &'a str),
    /// An item of a list.
    Item(usize),
    /// A value of a map.
    Key(&'a str),
}

impl<'a> Place<'a> {
    fn inner(&'a self, step: Step<'a>) -> Self {
        Self {
            around: Some(self),
            step,
        }
    }

    /// Returns the path.
    fn path(&self) -> String {
        let before = self.around.map(Place::path).unwrap_or_default();
        match self.step {
            Step::Root(_) => before,
            Step::Field(_, name) | Step::Key(name) => join(&before, name),
            Step::Item(index) => format!("{before}[{index}]"),
        }
    }

    /// Returns the path as Go's decoder shows it: without indices and keys of maps, and with the names of embedded structures.
    fn shown(&self) -> String {
        let before = self.around.map(Place::shown).unwrap_or_default();
        let Step::Field(owner, name) = self.step else {
            return before;
        };
        match EMBEDDED.get(owner.full_name()).map(|of| &of[name]) {
            Some(Value::String(embedded)) => join(&before, &format!("{embedded}.{name}")),
            _ => join(&before, name),
        }
    }

    /// Returns the structure that has the field in which this place is.
    fn owner(&self) -> Node<'a> {
        match (self.step, self.around) {
            (Step::Root(owner) | Step::Field(owner, _), _) => owner,
            (_, Some(around)) => around.owner(),
            (_, None) => Node::anything(),
        }
    }

    /// Returns the type of this place in Go if its field has a type with a name that its schema does not tell: texts, lists and maps have
    /// types of their own there.
    fn named_type(&self) -> Option<&'static str> {
        match self.step {
            Step::Root(_) => None,
            Step::Field(owner, name) => TYPES.get(owner.full_name())?.get(name)?.as_str(),
            Step::Item(_) => self.around?.named_type()?.strip_prefix("[]"),
            Step::Key(_) => {
                let map = self.around?.named_type()?.strip_prefix("map[")?;
                Some(map.split_once(']')?.1)
            }
        }
    }
}

struct Reader {
    found: Findings,
}

impl Reader {
    fn value(&mut self, schema: Node<'_>, value: &mut Value, place: &Place<'_>) {
        if schema.is_opaque() {
            return;
        }
        if schema.is_quantity() {
            let text = match &*value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match quantity::canonical(&text) {
                Some(canonical) => *value = Value::String(canonical),
                None => self.undecodable(|| {
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into()
                }),
            }
            return;
        }
        if !has_type(schema, value) {
            self.mistyped(schema, value, place);
            return;
        }
        if let Some(number) = value.as_i64().filter(|_| is_too_large(schema, value)) {
            self.undecodable(|| {
                let place = go_place(place);
                format!("json: cannot unmarshal number {number} into {place} of type int32")
            });
            return;
        }
        if schema.format() == "byte"
            && let Some(at) = value.as_str().and_then(illegal_base64)
        {
            self.undecodable(|| format!("illegal base64 data at input byte {at}"));
        }
        if schema.format() == "date-time"
            && let Some(text) = value.as_str()
        {
            match times::canonical(text, schema.type_name() == "MicroTime") {
                Ok(text) => *value = Value::String(text),
                Err(why) => self.undecodable(|| why),
            }
        }
        match value {
            Value::Object(_) => self.object(schema, value, place),
            Value::Array(list) => {
                if let Some(items) = schema.items() {
                    for (index, item) in list.iter_mut().enumerate() {
                        self.value(items, item, &place.inner(Step::Item(index)));
                    }
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: Node<'_>, value: &mut Value, place: &Place<'_>) {
        let Some(fields) = value.as_object_mut() else {
            return;
        };
        fields.retain(|_, field| !field.is_null());
        let mut unknown = Vec::new();
        let is_map = schema.properties().is_none() && schema.additional().is_some();
        for (name, field) in fields.iter_mut() {
            let step = if is_map {
                Step::Key(name)
            } else {
                Step::Field(schema, name)
            };
            let inner = place.inner(step);
            if let Some(known) = schema.field(name) {
                self.value(known, field, &inner);
            } else {
                unknown.push(name.clone());
                self.found.unknown.push(inner.path());
            }
        }
        for name in unknown {
            fields.remove(&name);
        }
        let has_amounts = schema.additional().is_some_and(|inner| inner.is_quantity());
        // a real server rounds the amounts of resources when it fills in defaults, but not those that a class of runtimes needs
        if is_map && has_amounts && place.owner().type_name() != "Overhead" {
            for amount in fields.values_mut() {
                if let Some(rounded) = amount.as_str().and_then(quantity::rounded) {
                    *amount = Value::String(rounded);
                }
            }
        }
    }

    fn mistyped(&mut self, schema: Node<'_>, value: &Value, place: &Place<'_>) {
        let given = match type_of(value) {
            "boolean" => "bool",
            "integer" => "number",
            other => other,
        };
        self.undecodable(|| {
            // types that decode themselves
            let kind = match schema.format() {
                "date-time" => "string".to_owned(),
                _ if schema.is_int_or_string() => "int32".to_owned(),
                _ => match place.named_type() {
                    Some(name) => name.to_owned(),
                    None => go_type(schema),
                },
            };
            let place = go_place(place);
            format!("json: cannot unmarshal {given} into {place} of type {kind}")
        });
    }

    fn undecodable(&mut self, text: impl FnOnce() -> String) {
        self.found.undecodable.get_or_insert_with(text);
    }
}

/// Returns a place as Go's decoder names it: with the structure that has the field, if it is one.
fn go_place(place: &Place<'_>) -> String {
    let shown = place.shown();
    if shown.is_empty() {
        return "Go value".to_owned();
    }
    format!("Go struct field {}.{shown}", place.owner().type_name())
}

/// Returns the type of a value in Go, as far as the schema tells.
fn go_type(schema: Node<'_>) -> String {
    match (schema.kind(), schema.format()) {
        ("boolean", _) => "bool".to_owned(),
        ("integer", "") => "int64".to_owned(),
        ("integer", format) => format.to_owned(),
        ("number", _) => "float64".to_owned(),
        ("string", "byte") => "[]uint8".to_owned(),
        ("array", _) => schema.items().map_or_else(
            || "array".to_owned(),
            |items| format!("[]{}", go_type(items)),
        ),
        ("object", _) if !schema.type_name().is_empty() => {
            let mut parts = schema.full_name().rsplit('.');
            let (name, package) = (parts.next(), parts.next());
            format!(
                "{}.{}",
                package.unwrap_or_default(),
                name.unwrap_or_default()
            )
        }
        ("object", _) => match schema.additional() {
            Some(values) if values.is_quantity() => "v1.ResourceList".to_owned(),
            Some(values) => format!("map[string]{}", go_type(values)),
            None => "object".to_owned(),
        },
        (kind, _) => kind.to_owned(),
    }
}

/// Returns whether a number does not fit where 32 bits are.
fn is_too_large(schema: Node<'_>, value: &Value) -> bool {
    let is_small = schema.format() == "int32" || schema.is_int_or_string();
    is_small
        && value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_err())
}

/// Returns the first place where a text is not base64.
fn illegal_base64(text: &str) -> Option<usize> {
    use base64::Engine as _;
    let error = base64::prelude::BASE64_STANDARD.decode(text).err()?;
    Some(match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            at
        }
        _ => text.len(),
    })
}

fn has_type(schema: Node<'_>, value: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if schema.is_int_or_string() {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema.kind() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "number" => value.is_number(),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_of_a_pod_are_named_and_removed() {
        let mut pod = json!({"metadata": {"foo": 1}, "spec": {"containers": [{"name": "c", "bar": 1,
            "resources": {"limits": {"cpu": "0.5"}}}]}});
        let found = decode(Node::of_type("io.k8s.api.core.v1.Pod"), &mut pod);
        assert_eq!(found.unknown, ["metadata.foo", "spec.containers[0].bar"]);
        assert_eq!(
            pod["spec"]["containers"][0],
            json!({"name": "c", "resources": {"limits": {"cpu": "500m"}}})
        );
    }

    #[rstest]
    #[case::number("apps.v1.Deployment", json!({"spec": {"replicas": "x"}}), "string into Go struct field DeploymentSpec.spec.replicas of type int32")]
    #[case::text_of_its_own_type("core.v1.Pod", json!({"spec": {"restartPolicy": 1}}), "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy")]
    #[case::item_of_its_own_type("core.v1.PersistentVolume", json!({"spec": {"accessModes": [1]}}), "number into Go struct field PersistentVolumeSpec.spec.accessModes of type v1.PersistentVolumeAccessMode")]
    #[case::list_of_such("core.v1.PersistentVolume", json!({"spec": {"accessModes": {}}}), "object into Go struct field PersistentVolumeSpec.spec.accessModes of type []v1.PersistentVolumeAccessMode")]
    #[case::map_of_its_own_type("core.v1.ResourceQuota", json!({"spec": {"hard": "x"}}), "string into Go struct field ResourceQuotaSpec.spec.hard of type v1.ResourceList")]
    #[case::value_of_a_map("core.v1.Pod", json!({"spec": {"nodeSelector": {"a": 1}}}), "number into Go struct field PodSpec.spec.nodeSelector of type string")]
    #[case::number_or_text("core.v1.Service", json!({"spec": {"ports": [{"targetPort": true}]}}), "bool into Go struct field ServicePort.spec.ports.targetPort of type int32")]
    #[case::too_large_a_number_or_text("core.v1.Service", json!({"spec": {"ports": [{"targetPort": 2_147_483_648_u32}]}}), "number 2147483648 into Go struct field ServicePort.spec.ports.targetPort of type int32")]
    #[case::field_of_an_embedded_structure("core.v1.PersistentVolume", json!({"spec": {"local": {"path": 1}}}), "number into Go struct field LocalVolumeSource.spec.PersistentVolumeSource.local.path of type string")]
    #[case::structure_in_a_map("resource.v1.ResourceSlice", json!({"spec": {"devices": [{"capacity": {"m": "x"}}]}}), "string into Go struct field Device.spec.devices.capacity of type v1.DeviceCapacity")]
    fn a_wrong_type_is_reported_as_the_decoder_says_it(
        #[case] kind: &str,
        #[case] mut object: Value,
        #[case] expected: &str,
    ) {
        let kind = format!("io.k8s.api.{kind}");
        let found = decode(Node::of_type(&kind), &mut object);
        let expected = format!("json: cannot unmarshal {expected}");
        assert_eq!(found.undecodable, Some(expected));
    }

    #[test]
    fn amounts_of_resources_are_rounded_up_to_thousandths() {
        let mut pod = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "1n"}}}]}});
        decode(Node::of_type("io.k8s.api.core.v1.Pod"), &mut pod);
        let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(*limits, json!({"cpu": "1m"}));
    }
}
