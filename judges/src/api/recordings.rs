//! Files of recordings: the answers to each conversation, one a line. What comes more than once in a file is written once, in the list `=` at
//! its head; elsewhere stands `{"=": N}` for the item N of that list, from 1.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::LoadError;

/// The answers to the conversations of a file, by their names.
pub type Recordings = BTreeMap<String, Vec<Value>>;

/// Name of the list of what is written once, and of references to it.
const SHARED: &str = "=";
/// Length of the shortest text that is worth a reference.
const SHORTEST: usize = 150;

/// Reads a file; there are no recordings where there is no file.
pub fn read(path: &Path) -> Result<Recordings, LoadError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Recordings::new()),
        Err(source) => {
            return Err(LoadError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let parsed: Result<Recordings, _> = serde_json::from_str(&text);
    let mut all = parsed.map_err(|source| LoadError::Recording {
        path: path.to_owned(),
        source,
    })?;
    let shared = all.remove(SHARED).unwrap_or_default();
    for answer in all.values_mut().flatten() {
        *answer = unfold(answer, &shared);
    }
    Ok(all)
}

/// Renders the recordings of a file.
pub fn render(recordings: &Recordings) -> String {
    let mut folder = Folder::default();
    for answer in recordings.values().flatten() {
        folder.count(answer);
    }
    let mut folded: Recordings = recordings
        .iter()
        .map(|(id, answers)| {
            let answers = answers.iter().map(|answer| folder.fold(answer));
            (id.clone(), answers.collect())
        })
        .collect();
    if !folder.shared.is_empty() {
        folded.insert(SHARED.to_owned(), folder.shared);
    }
    let mut text = String::from("{");
    for (number, (id, answers)) in folded.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let lines: Vec<String> = answers.iter().map(|answer| format!("  {answer}")).collect();
        // writing to a `String` cannot fail
        let _ = write!(text, "{comma}\n{}: [\n{}\n]", json!(id), lines.join(",\n"));
    }
    text.push_str("\n}\n");
    text
}

/// Puts what references stand for in their place. An item refers to earlier ones only, so this ends.
fn unfold(value: &Value, shared: &[Value]) -> Value {
    match value {
        Value::Object(map) => {
            let number = map.get(SHARED).and_then(Value::as_u64);
            if let Some(number) = number.and_then(|number| usize::try_from(number).ok()) {
                let place = number.wrapping_sub(1);
                return shared
                    .get(place)
                    .map_or(Value::Null, |item| unfold(item, &shared[..place]));
            }
            let fields = map.iter();
            fields
                .map(|(key, item)| (key.clone(), unfold(item, shared)))
                .collect()
        }
        Value::Array(list) => list.iter().map(|item| unfold(item, shared)).collect(),
        other => other.clone(),
    }
}

/// Finds what comes more than once.
#[derive(Default)]
struct Folder {
    counts: HashMap<String, usize>,
    numbers: HashMap<String, usize>,
    shared: Vec<Value>,
}

impl Folder {
    fn count(&mut self, value: &Value) {
        if let Some(text) = shareable(value) {
            let count = self.counts.entry(text).or_default();
            *count += 1;
            if *count > 1 {
                return;
            }
        }
        match value {
            Value::Object(map) => map.values().for_each(|item| self.count(item)),
            Value::Array(list) => list.iter().for_each(|item| self.count(item)),
            _ => {}
        }
    }

    fn fold(&mut self, value: &Value) -> Value {
        let text = shareable(value);
        let Some(text) = text.filter(|text| self.counts.get(text).is_some_and(|n| *n > 1)) else {
            return self.parts(value);
        };
        if let Some(number) = self.numbers.get(&text) {
            return json!({SHARED: number});
        }
        let item = self.parts(value);
        self.shared.push(item);
        let number = self.shared.len();
        self.numbers.insert(text, number);
        json!({SHARED: number})
    }

    fn parts(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let fields = map.iter();
                fields
                    .map(|(key, item)| (key.clone(), self.fold(item)))
                    .collect()
            }
            Value::Array(list) => list.iter().map(|item| self.fold(item)).collect(),
            other => other.clone(),
        }
    }
}

/// Returns the text of a value that is long enough to be written once.
fn shareable(value: &Value) -> Option<String> {
    if !value.is_object() && !value.is_array() {
        return None;
    }
    Some(value.to_string()).filter(|text| text.len() >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_is_written_once_and_read_again() {
        let long = json!({"inner": {"text": "x".repeat(200)}, "other": 1});
        let answers = |value: Value| vec![json!({"status": 200, "body": value})];
        let recordings: Recordings = [
            ("a/one".to_owned(), answers(long.clone())),
            ("a/three".to_owned(), answers(long["inner"].clone())),
            ("a/two".to_owned(), answers(long)),
        ]
        .into();
        let text = render(&recordings);
        assert_eq!(text.matches("xxx").count(), 200 / 3, "{text}");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("it can be written");
        assert_eq!(read(file.path()).expect("it can be read"), recordings);
    }

    #[test]
    fn a_reference_to_nothing_or_to_itself_is_null() {
        let shared = [json!({"a": {"=": 1}})];
        assert_eq!(unfold(&json!({"=": 1}), &shared), json!({"a": null}));
        assert_eq!(unfold(&json!({"=": 0}), &shared), Value::Null);
        assert_eq!(unfold(&json!({"=": 7}), &shared), Value::Null);
    }
}
