//! Replaces what looks like a secret: values by their names, and texts by their form.

use regex::{Captures, Regex};
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// Stands for what was replaced.
pub(super) const REDACTED: &str = "REDACTED";
/// Annotation in which kubectl keeps the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Ends of names that have secret values. Names such as `secretName` and `TOKEN_FILE` have none.
const SECRET_NAME: &str = "(?:token|passwd|password|passphrase|secret|credentials?|api[-_.]?key|access[-_.]?key|private[-_.]?key|client[-_.]?key\
                           |encryption[-_.]?key|dockerconfigjson|dockercfg)(?:[-_.]?data)?";

/// Knows how secrets look.
#[derive(Debug)]
pub(super) struct Redactor {
    /// A name whose value is secret.
    name: Regex,
    /// Such a name with its value, in text.
    assignment: Regex,
    /// Texts that are secret by their form, with what stands for them.
    forms: Vec<(Regex, String)>,
}

impl Redactor {
    /// Creates a redactor.
    pub(super) fn new() -> Result<Self, regex::Error> {
        let form = |pattern: &str, replacement: &str| {
            Ok::<_, regex::Error>((Regex::new(pattern)?, replacement.to_owned()))
        };
        Ok(Self {
            name: Regex::new(&format!("(?i){SECRET_NAME}$"))?,
            assignment: Regex::new(&format!(
                r#"(?i)([\w.-]*{SECRET_NAME})(\\?["']?[ \t]*[:=][ \t]*)(\\?"[^"]*"|'[^']*'|[^\s"',;&\\]+)"#
            ))?,
            forms: vec![
                // the end may be missing, in a log that was cut
                form(
                    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
                    REDACTED,
                )?,
                // JSON web tokens, such as those of service accounts
                form(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", REDACTED)?,
                form(
                    r"(?i)\b(bearer|basic) +[\w.~+/=-]{8,}",
                    &format!("$1 {REDACTED}"),
                )?,
                // tokens of OpenShift, GitHub and AWS
                form(r"\bsha256~[\w-]{16,}", REDACTED)?,
                form(r"\bgh[pousr]_\w{20,}", REDACTED)?,
                form(r"\bAKIA[0-9A-Z]{16}\b", REDACTED)?,
                form(r"(\w://)[^\s/@:]+:[^\s/@]+@", &format!("${{1}}{REDACTED}@"))?,
            ],
        })
    }

    /// Redacts a text, such as a log.
    pub(super) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (form, replacement) in &self.forms {
            if let std::borrow::Cow::Owned(changed) = form.replace_all(&text, replacement) {
                text = changed;
            }
        }
        let replaced = self.assignment.replace_all(&text, |parts: &Captures<'_>| {
            let (name, separator, value) = (&parts[1], &parts[2], &parts[3]);
            let quote = value
                .chars()
                .next()
                .filter(|first| matches!(first, '"' | '\''));
            match quote {
                Some(quote) => format!("{name}{separator}{quote}{REDACTED}{quote}"),
                None if value.starts_with('\\') => format!("{name}{separator}\\\"{REDACTED}\\\""),
                None => format!("{name}{separator}{REDACTED}"),
            }
        });
        replaced.into_owned()
    }

    /// Redacts an object, or a list of objects. What the API server keeps of managers of fields is left out.
    pub(super) fn object(&self, value: Value) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fields(fields)),
            Value::Array(items) => Value::Array(self.items(items)),
            Value::String(text) => Value::String(self.embedded(&text)),
            other => other,
        }
    }

    /// Redacts a list. In a command line the word after the name of a secret is the secret.
    fn items(&self, items: Vec<Value>) -> Vec<Value> {
        let mut is_secret = false;
        let redacted = items.into_iter().map(|item| {
            let word = item.as_str().unwrap_or_default();
            let is_named = word.starts_with('-') && self.name.is_match(word);
            let item = match item {
                Value::String(_) if is_secret => Value::String(REDACTED.to_owned()),
                item => self.object(item),
            };
            is_secret = is_named;
            item
        });
        redacted.collect()
    }

    fn fields(&self, mut fields: Map<String, Value>) -> Map<String, Value> {
        fields.remove("managedFields");
        // a variable of a container, or an argument of a plugin: its name decides about its value
        let is_secret_pair = fields
            .get("name")
            .and_then(Value::as_str)
            .is_some_and(|name| self.name.is_match(name));
        let redacted = fields.into_iter().map(|(key, value)| {
            let is_secret = self.name.is_match(&key) || (is_secret_pair && key == "value");
            let value = match value {
                Value::String(text) if is_secret && !text.is_empty() => {
                    Value::String(REDACTED.to_owned())
                }
                Value::String(text) if key == LAST_APPLIED => {
                    Value::String(self.embedded_or_nothing(&text))
                }
                Value::Object(binary) if key == "binaryData" => binary
                    .into_iter()
                    .map(|(name, _)| (name, Value::String(REDACTED.to_owned())))
                    .collect::<Map<_, _>>()
                    .into(),
                value => self.object(value),
            };
            (key, value)
        });
        redacted.collect()
    }

    /// Redacts a text that may be YAML or JSON itself, such as a file in a ConfigMap. It is written anew only where its structure shows a secret
    /// that its lines do not.
    fn embedded(&self, text: &str) -> String {
        if text.contains('\n') || text.starts_with(['{', '[']) {
            let documents: Result<Vec<Value>, _> = serde_yaml::Deserializer::from_str(text)
                .map(Value::deserialize)
                .collect();
            if let Ok(documents) = documents
                && documents.iter().any(|it| it.is_object() || it.is_array())
            {
                let redacted: Vec<Value> =
                    documents.iter().map(|it| self.object(it.clone())).collect();
                if redacted != documents {
                    let written: Result<Vec<String>, _> =
                        redacted.iter().map(serde_yaml::to_string).collect();
                    if let Ok(written) = written {
                        return self.text(&written.join("---\n"));
                    }
                }
            }
        }
        self.text(text)
    }

    /// Redacts a whole object that is kept as JSON. What cannot be parsed cannot be trusted.
    fn embedded_or_nothing(&self, text: &str) -> String {
        match serde_json::from_str::<Value>(text) {
            Ok(object) => self.object(object).to_string(),
            Err(_) => REDACTED.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
