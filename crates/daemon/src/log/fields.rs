//! The fields of an event or a span, written in the form of the log.

use std::fmt::{self, Write as _};

use tracing::Level;
use tracing::field::{Field, Visit};

use super::Format;

/// Field that says how verbose an event is, as the number of klog's `-v`.
const VERBOSITY: &str = "v";
/// Fields of the package `log` begin so.
const LOG: &str = "log.";

/// Looks only for the verbosity: most events of a verbose program are not written.
#[derive(Debug, Default)]
pub(super) struct Verbosity(Option<i64>);

impl Verbosity {
    /// Returns the verbosity of an event of this level.
    pub(super) fn of(&self, level: Level) -> i64 {
        self.0.unwrap_or(match level {
            Level::ERROR | Level::WARN | Level::INFO => 0,
            Level::DEBUG => 4,
            Level::TRACE => 6,
        })
    }
}

impl Visit for Verbosity {
    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() == VERBOSITY {
            self.0 = Some(value);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// Fields that are written already, apart from those with a place of their own.
#[derive(Debug)]
pub(super) struct Fields {
    format: Format,
    pub(super) message: String,
    /// The field `error`, which is named `err` and comes first.
    pub(super) error: String,
    pub(super) others: String,
    /// File and line of an event of the package `log`.
    pub(super) file: Option<String>,
    pub(super) line: u32,
}

impl Fields {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            message: String::new(),
            error: String::new(),
            others: String::new(),
            file: None,
            line: 0,
        }
    }

    fn text(&mut self, name: &str, value: &str) {
        let value = match self.format {
            Format::Json => json(value),
            Format::Text if value.contains('\n') => lines(value),
            Format::Text => quoted(value),
        };
        self.put(name, &value);
    }

    /// Adds a field whose value is written already.
    fn put(&mut self, name: &str, value: &dyn fmt::Display) {
        let (name, out) = match name {
            "error" | "err" => ("err", &mut self.error),
            name => (name, &mut self.others),
        };
        match self.format {
            Format::Text => write!(out, " {name}={value}"),
            Format::Json => write!(out, ",{}:{value}", json(name)),
        }
        .expect("writing to a string cannot fail");
    }
}

/// Writes a text of several lines as klog does.
fn lines(text: &str) -> String {
    let text = text.trim_end_matches('\n').replace('\n', "\n\t");
    format!("<\n\t{text}\n >")
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "log.file" => self.file = Some(value.to_owned()),
            name if name.starts_with(LOG) => {}
            name => self.text(name, value),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if field.name() != VERBOSITY {
            self.put(field.name(), &value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "log.line" => self.line = u32::try_from(value).unwrap_or_default(),
            name => self.put(name, &value),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.put(field.name(), &value);
        } else {
            self.text(field.name(), &value.to_string());
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        let is_written = text.starts_with(['"', '[', '{']) && !text.contains('\n');
        match field.name() {
            "message" => self.message = text,
            // a list, a map or a text in quotes, written as Rust does
            name if self.format == Format::Text && is_written => self.put(name, &text),
            name => self.text(name, &text),
        }
    }
}

/// Writes a text as a JSON string.
pub(super) fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a text in quotes, as Go's `strconv.Quote`.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a string cannot fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
