//! An object of the store.

use std::ops::Deref;
use std::sync::OnceLock;

use hyper::body::Bytes;
use serde_json::Value;

use crate::values::fields::members;

/// An object that is never changed, with its JSON once somebody has asked for it: all lists, watches and the history share one text.
#[derive(Debug)]
pub(crate) struct Object {
    value: Value,
    text: OnceLock<Text>,
}

/// An object as JSON.
#[derive(Debug)]
struct Text {
    bytes: Bytes,
    /// Where the fields after `apiVersion` and `kind` begin.
    rest: usize,
}

impl Object {
    /// Makes an object that has no text yet.
    pub(crate) fn new(value: Value) -> Self {
        Self {
            value,
            text: OnceLock::new(),
        }
    }

    /// Returns the object's fields.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the object as JSON.
    pub(crate) fn text(&self) -> Bytes {
        self.encoded().bytes.clone()
    }

    /// Returns what the text has after `apiVersion` and `kind`, up to and with the closing brace.
    pub(crate) fn rest(&self) -> &[u8] {
        let text = self.encoded();
        &text.bytes[text.rest..]
    }

    fn encoded(&self) -> &Text {
        self.text.get_or_init(|| encode(&self.value))
    }
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

fn encode(value: &Value) -> Text {
    let fields = members(value);
    let (head, others): (Vec<_>, Vec<_>) =
        fields.partition(|(name, _)| ["apiVersion", "kind"].contains(&name.as_str()));
    let mut text = vec![b'{'];
    write_fields(&head, &mut text);
    if !head.is_empty() && !others.is_empty() {
        text.push(b',');
    }
    let rest = text.len();
    write_fields(&others, &mut text);
    text.push(b'}');
    text.shrink_to_fit();
    Text {
        bytes: Bytes::from(text),
        rest,
    }
}

fn write_fields(fields: &[(&String, &Value)], text: &mut Vec<u8>) {
    for (index, (name, field)) in fields.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        // writing to memory cannot fail, and the keys of a `Value` are texts
        let _ = serde_json::to_writer(&mut *text, name);
        text.push(b':');
        let _ = serde_json::to_writer(&mut *text, field);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::of_a_kind(json!({"kind": "Pod", "apiVersion": "v1", "data": {}, "spec": {"a": "\"\n"}}), r#""data":{},"spec":{"a":"\"\n"}}"#)]
    #[case::of_none(json!({"metadata": {}}), r#""metadata":{}}"#)]
    #[case::with_nothing_else(json!({"kind": "Pod", "apiVersion": "v1"}), "}")]
    #[case::empty(json!({}), "}")]
    fn a_text_says_what_the_value_says(#[case] value: Value, #[case] rest: &str) {
        let object = Object::new(value.clone());
        let text = object.text();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
        assert_eq!(object.rest(), rest.as_bytes());
        assert!(text.ends_with(rest.as_bytes()));
    }

    #[test]
    fn a_text_is_written_once() {
        let object = Object::new(json!({"metadata": {"name": "a"}}));
        assert_eq!(object.text().as_ptr(), object.text().as_ptr());
    }
}
