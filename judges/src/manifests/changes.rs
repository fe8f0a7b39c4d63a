//! What can be changed in a valid object so that one rule may be broken.
//!
//! The changes of an object are a list that depends on nothing but the object and its schema, so that each can be tried once.

use std::fmt;

use serde_json::{Value, json};

use super::documents::Document;
use super::schemas::{Form, Schema};

/// Texts at the edge of what names, labels, addresses, paths and choices may be.
const TEXTS: &[&str] = &[
    "",
    "x",
    "Not_Valid",
    "-x",
    "x.y",
    "x/y",
    "x y",
    "*",
    "1",
    "-1",
    "192.0.2.300",
    "192.0.2.8",
    "2001:db8::1",
    "https://x.example.com/y",
    "$(A)",
    "/x",
    "/x/../y",
    "kubernetes.io/x",
];
/// Lengths of texts that are too long for a label, a name of a port, and a name.
const LENGTHS: [usize; 3] = [16, 64, 254];
/// Amounts.
const QUANTITIES: &[&str] = &["0", "-1", "1", "1.5", "100m", "1n", "9Ei", "1 Gi", "x", ""];
/// Numbers at the edge of ports, of counts and of their types.
const NUMBERS: &[i64] = &[
    0,
    1,
    -1,
    2,
    100,
    101,
    3600,
    65_535,
    65_536,
    2_147_483_647,
    2_147_483_648,
];
/// What an `IntOrString` may and may not be.
const PORTS: &[&str] = &[
    "",
    "x",
    "1",
    "50%",
    "101%",
    "-1%",
    "1.5%",
    "Not_Valid",
    "abcdefghijklmnop",
];
/// Keys of maps.
const KEYS: &[&str] = &[
    "",
    "x",
    "Not_Valid",
    "x/y/z",
    "-x",
    "example.com/x",
    "cpu",
    "x y",
];
/// How often an item is repeated so that there are too many.
const COPIES: [usize; 2] = [2, 130];
/// How deep a field that is added may have fields of its own that are added, too.
const DEPTH: usize = 2;

/// A change of one place of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What.
    edit: Edit,
}

#[derive(Clone, Debug, PartialEq)]
enum Edit {
    /// The value is set, whether there was one or not.
    Set(Value),
    /// The field or item is removed.
    Remove,
    /// The first item of the list is there this often in all.
    Repeat(usize),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.edit {
            Edit::Set(value) => write!(f, "{} = {value}", self.pointer),
            Edit::Remove => write!(f, "{} removed", self.pointer),
            Edit::Repeat(times) => write!(f, "{} x {times}", self.pointer),
        }
    }
}

impl Change {
    /// Makes the change; returns false where the object has no such place.
    pub fn make(&self, object: &mut Value) -> bool {
        let Some((parent, last)) = self.pointer.rsplit_once('/') else {
            return false;
        };
        let name = last.replace("~1", "/").replace("~0", "~");
        let Some(parent) = object.pointer_mut(parent) else {
            return false;
        };
        match (&self.edit, parent) {
            (Edit::Set(value), Value::Object(fields)) => {
                fields.insert(name, value.clone());
                true
            }
            (Edit::Remove, Value::Object(fields)) => fields.remove(&name).is_some(),
            (Edit::Repeat(times), Value::Object(fields)) => match fields.get_mut(&name) {
                Some(Value::Array(list)) => repeat(list, *times),
                _ => false,
            },
            (edit, Value::Array(list)) => {
                let Some(at) = name.parse().ok().filter(|at: &usize| *at < list.len()) else {
                    return false;
                };
                match edit {
                    Edit::Set(value) => list[at] = value.clone(),
                    Edit::Remove => drop(list.remove(at)),
                    Edit::Repeat(times) => match &mut list[at] {
                        Value::Array(list) => return repeat(list, *times),
                        _ => return false,
                    },
                }
                true
            }
            _ => false,
        }
    }
}

fn repeat(list: &mut Vec<Value>, times: usize) -> bool {
    let Some(first) = list.first().cloned() else {
        return false;
    };
    list.extend(std::iter::repeat_n(first, times.saturating_sub(1)));
    true
}

/// Returns all changes of a document.
pub fn changes(document: &Document) -> Vec<Change> {
    let mut walk = Walk {
        found: Vec::new(),
        // metadata is the same for all kinds; this one has all of it
        whole_metadata: document.id == "configmap",
    };
    walk.fields(Schema::named(&document.schema), &document.object, "", DEPTH);
    walk.found
}

struct Walk {
    found: Vec<Change>,
    whole_metadata: bool,
}

impl Walk {
    fn add(&mut self, pointer: &str, edit: Edit) {
        self.found.push(Change {
            pointer: pointer.to_owned(),
            edit,
        });
    }

    fn set(&mut self, pointer: &str, value: Value) {
        self.add(pointer, Edit::Set(value));
    }

    /// Adds the changes below a structure or map: of the fields that are there, and of those that are not.
    fn fields(&mut self, schema: Schema, object: &Value, pointer: &str, depth: usize) {
        let top = pointer.is_empty();
        for (name, value) in object.as_object().into_iter().flatten() {
            // they decide which kind this is, not whether it is valid
            if top && (name == "apiVersion" || name == "kind") {
                continue;
            }
            let inner = below(pointer, name);
            self.add(&inner, Edit::Remove);
            self.value(schema.field(name), value, &inner, depth);
        }
        match schema.form() {
            Form::Structure => {
                self.set(&below(pointer, "nobodyKnows"), json!(1));
                if pointer == "/metadata" && !self.whole_metadata {
                    return;
                }
                let missing = schema.fields().filter(|name| object[*name].is_null());
                for name in missing {
                    // the server ignores what a client says of it
                    if top && name == "status" {
                        continue;
                    }
                    self.absent(schema.field(name), &below(pointer, name), depth);
                }
            }
            Form::Map => {
                let sample = object.as_object().and_then(|fields| fields.values().next());
                let sample = sample
                    .cloned()
                    .unwrap_or_else(|| schema.field("x").sample());
                for key in KEYS {
                    self.set(&below(pointer, key), sample.clone());
                }
                self.set(&below(pointer, &"x".repeat(64)), sample);
            }
            _ => {}
        }
    }

    /// Adds a field that is not there, as a minimal value and with a value at each edge.
    fn absent(&mut self, schema: Schema, pointer: &str, depth: usize) {
        let sample = schema.sample();
        match schema.form() {
            Form::Text => {
                self.set(pointer, json!("Not_Valid"));
                self.choices(schema, pointer);
            }
            Form::Integer => [0, -1, 2_147_483_647]
                .iter()
                .for_each(|number| self.set(pointer, json!(number))),
            Form::IntOrString => self.set(pointer, json!("Not_Valid")),
            Form::Quantity => self.set(pointer, json!("-1")),
            Form::Boolean => self.set(pointer, json!(false)),
            Form::List => self.set(pointer, json!([])),
            Form::Structure if depth > 0 => {
                self.set(pointer, json!({}));
                for name in schema.fields().filter(|name| sample[*name].is_null()) {
                    let mut with = sample.clone();
                    with[name] = schema.field(name).sample();
                    self.set(pointer, with);
                }
            }
            _ => {}
        }
        self.set(pointer, sample);
    }

    /// Adds the changes of a value that is there.
    fn value(&mut self, schema: Schema, value: &Value, pointer: &str, depth: usize) {
        match schema.form() {
            Form::Structure | Form::Map => {
                self.set(pointer, json!({}));
                self.set(pointer, json!("x"));
                self.fields(schema, value, pointer, depth.saturating_sub(1));
            }
            Form::List => {
                self.set(pointer, json!([]));
                self.set(pointer, json!({}));
                for times in COPIES {
                    self.add(pointer, Edit::Repeat(times));
                }
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    let inner = format!("{pointer}/{at}");
                    self.add(&inner, Edit::Remove);
                    self.value(schema.items(), item, &inner, depth);
                }
            }
            Form::Text => {
                self.set(pointer, json!(1));
                for text in TEXTS {
                    self.set(pointer, json!(text));
                }
                for length in LENGTHS {
                    self.set(pointer, json!("x".repeat(length)));
                }
                self.choices(schema, pointer);
            }
            Form::Bytes | Form::Time => {
                for wrong in [json!(1), json!("%"), json!("")] {
                    self.set(pointer, wrong);
                }
            }
            Form::Quantity => {
                for amount in QUANTITIES {
                    self.set(pointer, json!(amount));
                }
            }
            Form::IntOrString => {
                for text in PORTS {
                    self.set(pointer, json!(text));
                }
                for number in NUMBERS {
                    self.set(pointer, json!(number));
                }
            }
            Form::Integer => {
                self.set(pointer, json!("1"));
                for number in NUMBERS {
                    self.set(pointer, json!(number));
                }
            }
            Form::Boolean => {
                self.set(pointer, json!(value != true));
                self.set(pointer, json!("true"));
            }
            Form::Anything => self.set(pointer, json!({"a": 1})),
        }
    }

    fn choices(&mut self, schema: Schema, pointer: &str) {
        for choice in schema.choices() {
            self.set(pointer, choice);
        }
    }
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::super::documents::documents;
    use super::*;

    fn changed(id: &str) -> Vec<(String, Value)> {
        let all = documents().unwrap();
        let document = all.iter().find(|one| one.id == id).unwrap();
        let made = |change: Change| {
            let mut object = document.object.clone();
            assert!(change.make(&mut object), "{change}");
            (change.to_string(), object)
        };
        changes(document).into_iter().map(made).collect()
    }

    #[test]
    fn rules_of_every_sort_are_broken() {
        let all = changed("deployment");
        let has = |name: &str| all.iter().any(|(change, _)| change == name);
        for name in [
            "/metadata/name removed",
            "/spec/replicas = -1",
            "/spec/nobodyKnows = 1",
            "/spec/strategy/type = \"Recreate\"",
            "/spec/strategy/type = \"Not_Valid\"",
            "/spec/strategy/rollingUpdate/maxSurge = \"101%\"",
            "/spec/template/spec/containers x 2",
            "/spec/selector/matchLabels/app = \"-x\"",
            "/spec/template/spec/hostNetwork = true",
            "/spec/template/spec/tolerations = [{}]",
        ] {
            assert!(has(name), "{name}");
        }
    }

    #[test]
    fn keys_with_slashes_stay_one_key() {
        let all = changed("configmap");
        let found = all
            .iter()
            .find(|(change, _)| change == "/metadata/annotations/x~1y~1z = \"free text\"");
        let (_, object) = found.unwrap();
        assert_eq!(object["metadata"]["annotations"]["x/y/z"], "free text");
    }

    #[test]
    fn a_place_that_is_not_there_is_told() {
        let change = Change {
            pointer: "/a/3/b".into(),
            edit: Edit::Remove,
        };
        assert!(!change.make(&mut json!({"a": [{"b": 1}]})));
    }
}
