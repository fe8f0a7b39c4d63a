//! Decodes bodies in Kubernetes' protobuf form to JSON.
//!
//! `corpus/facts/protobuf.json` says which number is which field. It is made from the tags of the Go types and has, per message and field
//! number, the JSON name, the kind and flags (`i` inlined, `p` may be left out even when it is zero, `o` left out of JSON when it is zero).
//! Kinds: `#message`, `[` list of, `{` map to, `(` message that is a list, `|message` that or something simpler (parts of schemas), or a
//! scalar.

use std::sync::LazyLock;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

static FACTS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/facts/protobuf.json")).unwrap_or_default()
});

/// Prefix of every body.
const MAGIC: &[u8] = b"k8s\0";
/// Schemas within definitions of custom resources.
const SCHEMA: &str = "#apiextensions/v1.JSONSchemaProps";
/// Deepest nesting that is decoded.
const MAX_DEPTH: usize = 100;

/// Why a body cannot be decoded.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Error {
    /// The body is not in protobuf form.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoMagic,
    /// The messages of the kind are not known.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    UnknownKind {
        /// Version.
        version: String,
        /// Kind.
        kind: String,
    },
    /// The bytes are not a valid message.
    #[error("unexpected EOF")]
    Malformed,
}

/// Decodes a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Error> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Error::NoMagic)?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields(envelope) {
        match field? {
            (1, Wire::Bytes(meta)) => {
                for field in Fields(meta) {
                    match field? {
                        (1, Wire::Bytes(text)) => version = string(text)?,
                        (2, Wire::Bytes(text)) => kind = string(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let package = FACTS["packages"][&version].as_str().unwrap_or_default();
    let name = [format!("{package}.{kind}"), format!("meta/v1.{kind}")]
        .into_iter()
        .find(|name| FACTS["messages"][name].is_object())
        .ok_or_else(|| Error::UnknownKind {
            version: version.clone(),
            kind: kind.clone(),
        })?;
    let mut object = message(&name, raw, 0)?;
    object.insert("apiVersion".into(), json!(version));
    object.insert("kind".into(), json!(kind));
    Ok(Value::Object(object))
}

/// A value on the wire.
enum Wire<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a message, with their numbers.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Error::Malformed))
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Option<(u64, Wire<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Double(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?.try_into().ok()?;
                Wire::Double(f64::from(f32::from_le_bytes(bytes)))
            }
            _ => return None,
        };
        Some((key >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

fn string(bytes: &[u8]) -> Result<String, Error> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Error::Malformed)
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, Error> {
    if depth > MAX_DEPTH {
        return Err(Error::Malformed);
    }
    let known = &FACTS["messages"][name];
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, wire) = field?;
        let fact = &known[number.to_string()];
        let text = |index: usize| fact[index].as_str().unwrap_or_default();
        let (field, kind, flags) = (text(0), text(1), text(2));
        if fact.is_null() {
            continue;
        }
        if flags.contains('i') {
            if let Value::Object(inner) = value(kind, &wire, depth)? {
                object.extend(inner);
            }
            continue;
        }
        if let Some(item) = kind.strip_prefix('[') {
            let item = value(item, &wire, depth)?;
            let list = object.entry(field).or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut() {
                list.push(item);
            }
        } else if let Some(entry) = kind.strip_prefix('{') {
            let (key, entry) = map_entry(entry, &wire, depth)?;
            let map = object.entry(field).or_insert_with(|| json!({}));
            if let Some(map) = map.as_object_mut() {
                map.insert(key, entry);
            }
        } else {
            let value = value(kind, &wire, depth)?;
            let is_zero = value.is_null()
                || !flags.contains('p')
                    && flags.contains('o')
                    && (value == "" || value == json!(0) || value == json!(0.0) || value == false);
            if !is_zero {
                object.insert(field.to_owned(), value);
            }
        }
    }
    Ok(object)
}

fn map_entry(kind: &str, wire: &Wire<'_>, depth: usize) -> Result<(String, Value), Error> {
    let Wire::Bytes(bytes) = wire else {
        return Err(Error::Malformed);
    };
    let (mut key, mut entry) = (String::new(), value(kind, &Wire::Bytes(&[]), depth)?);
    for field in Fields(bytes) {
        match field? {
            (1, Wire::Bytes(text)) => key = string(text)?,
            (2, wire) => entry = value(kind, &wire, depth)?,
            _ => {}
        }
    }
    Ok((key, entry))
}

fn value(kind: &str, wire: &Wire<'_>, depth: usize) -> Result<Value, Error> {
    if let Some(name) = kind.strip_prefix('#') {
        let Wire::Bytes(bytes) = wire else {
            return Err(Error::Malformed);
        };
        return message(name, bytes, depth + 1).map(Value::Object);
    }
    if let Some(name) = kind.strip_prefix('|') {
        let Wire::Bytes(bytes) = wire else {
            return Err(Error::Malformed);
        };
        return alternative(name, bytes, depth + 1);
    }
    if let Some(item) = kind.strip_prefix('(') {
        let Wire::Bytes(bytes) = wire else {
            return Err(Error::Malformed);
        };
        return Fields(bytes)
            .map(|field| value(item, &field?.1, depth))
            .collect();
    }
    Ok(match (kind, wire) {
        ("bool", Wire::Number(number)) => json!(*number != 0),
        ("int", Wire::Number(number)) => json!(*number as i64),
        // Go writes whole numbers without a fraction
        ("double", Wire::Double(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
            json!(*number as i64)
        }
        ("double", Wire::Double(number)) => json!(number),
        ("string", Wire::Bytes(bytes)) => json!(string(bytes)?),
        ("bytes", Wire::Bytes(bytes)) => {
            json!(base64::engine::general_purpose::STANDARD.encode(bytes))
        }
        ("quantity", Wire::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Wire::Bytes(text)) => json!(string(text)?),
            _ => json!("0"),
        },
        ("raw", Wire::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Wire::Bytes(text)) if !text.is_empty() => {
                serde_json::from_slice(text).map_err(|_| Error::Malformed)?
            }
            _ => Value::Null,
        },
        ("time" | "microtime", Wire::Bytes(bytes)) => time(kind, bytes)?,
        ("duration", Wire::Bytes(bytes)) => match single(bytes, 1)? {
            Some(Wire::Number(nanoseconds)) => json!(duration(nanoseconds as i64)),
            _ => json!("0s"),
        },
        ("intorstring", Wire::Bytes(bytes)) => {
            let is_text = matches!(single(bytes, 1)?, Some(Wire::Number(1)));
            match single(bytes, if is_text { 3 } else { 2 })? {
                Some(Wire::Bytes(text)) => json!(string(text)?),
                Some(Wire::Number(number)) => json!(number as i64),
                _ if is_text => json!(""),
                _ => json!(0),
            }
        }
        _ => return Err(Error::Malformed),
    })
}

/// Decodes what is a schema or something simpler. Which of its forms it has depends on the type: the first field is the schema, or, where
/// the second one is, whether any value is allowed; the second field may also be a list of schemas or of names.
fn alternative(name: &str, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let (mut found, mut list) = (Value::Null, Vec::new());
    for field in Fields(bytes) {
        match (name, field?) {
            ("JSONSchemaPropsOrBool", (1, Wire::Number(allows))) if found.is_null() => {
                found = json!(allows != 0);
            }
            ("JSONSchemaPropsOrBool", (2, wire)) | (_, (1, wire)) => {
                found = value(SCHEMA, &wire, depth)?;
            }
            ("JSONSchemaPropsOrArray", (2, wire)) => list.push(value(SCHEMA, &wire, depth)?),
            (_, (2, wire)) => list.push(value("string", &wire, depth)?),
            _ => {}
        }
    }
    Ok(if list.is_empty() { found } else { json!(list) })
}

/// Returns the last value of a field of a message.
fn single(bytes: &[u8], wanted: u64) -> Result<Option<Wire<'_>>, Error> {
    let mut found = None;
    for field in Fields(bytes) {
        let (number, wire) = field?;
        if number == wanted {
            found = Some(wire);
        }
    }
    Ok(found)
}

fn time(kind: &str, bytes: &[u8]) -> Result<Value, Error> {
    let number = |wanted| {
        Ok(match single(bytes, wanted)? {
            Some(Wire::Number(number)) => Some(number as i64),
            _ => None,
        })
    };
    let Some(seconds) = number(1)? else {
        return Ok(Value::Null);
    };
    let nanoseconds = number(2)?.unwrap_or(0) as i32;
    let timestamp = Timestamp::new(seconds, nanoseconds).map_err(|_| Error::Malformed)?;
    let form = if kind == "time" {
        "%Y-%m-%dT%H:%M:%SZ"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6fZ"
    };
    Ok(json!(timestamp.strftime(form).to_string()))
}

/// Returns a number of nanoseconds in Go's notation, such as `1h2m3.5s`.
fn duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let all = nanoseconds.unsigned_abs();
    let (seconds, rest) = (all / 1_000_000_000, all % 1_000_000_000);
    let decimals = |whole: u64, part: u64, width: usize| {
        let part = format!("{part:0width$}");
        let part = part.trim_end_matches('0');
        if part.is_empty() {
            whole.to_string()
        } else {
            format!("{whole}.{part}")
        }
    };
    let text = match (seconds, rest) {
        (0, 0) => "0s".to_owned(),
        (0, rest) if rest < 1_000 => format!("{rest}ns"),
        (0, rest) if rest < 1_000_000 => format!("{}µs", decimals(rest / 1_000, rest % 1_000, 3)),
        (0, rest) => format!("{}ms", decimals(rest / 1_000_000, rest % 1_000_000, 6)),
        (seconds, rest) => {
            let tail = format!("{}s", decimals(seconds % 60, rest, 9));
            match (seconds / 3600, seconds / 60 % 60) {
                (0, 0) => tail,
                (0, minutes) => format!("{minutes}m{tail}"),
                (hours, minutes) => format!("{hours}h{minutes}m{tail}"),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests;
