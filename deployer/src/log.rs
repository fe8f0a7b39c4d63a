//! What the program says while it works, on stderr (deployer.md 2): lines with the time, the component and pairs of keys and values. On a terminal
//! the lines have colours, and a last line shows what is being done.

use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use owo_colors::{OwoColorize as _, Style};
use parking_lot::Mutex;

/// A value of a line.
#[derive(Clone, Debug)]
pub enum Value {
    /// Written in quotes.
    Text(String),
    /// Written as it is.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&usize> for Value {
    fn from(number: &usize) -> Self {
        Self::Number(i64::try_from(*number).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Rust escapes quotes, backslashes and control characters as Go does
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// Takes the line that the cursor is in away.
const CLEAR_LINE: &str = "\r\u{1b}[2K";
/// Stops the terminal from breaking lines, for the display, and lets it break them again.
const NO_WRAP: [&str; 2] = ["\u{1b}[?7l", "\u{1b}[?7h"];

/// Writes lines up to a verbosity. On a terminal a last line, without an end, shows what is being done.
#[derive(Clone, Debug)]
pub struct Log {
    verbosity: i32,
    name: Option<&'static str>,
    has_colours: bool,
    /// On a terminal: what is being done now, which all clones share.
    doing: Option<Arc<Mutex<String>>>,
}

impl Log {
    /// Returns the log of the program. Where stderr is no terminal, or `NO_COLOR` is set, lines are plain.
    pub fn stderr(verbosity: i32) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            verbosity,
            name: None,
            has_colours: is_terminal && !wants_none,
            doing: is_terminal.then(Arc::default),
        }
    }

    /// Returns this log for a component: its lines begin with the name.
    #[must_use]
    pub fn named(&self, name: &'static str) -> Self {
        Self {
            name: Some(name),
            ..self.clone()
        }
    }

    /// Writes a line if its level is shown.
    pub fn line(&self, level: i32, message: &str, pairs: &[(&str, Value)]) {
        if level > self.verbosity {
            return;
        }
        let now = jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string();
        let text = format_line(&now, self.name, level, message, pairs, self.has_colours);
        match &self.doing {
            Some(doing) => write(&format!("{CLEAR_LINE}{text}\n{}", display(&doing.lock()))),
            None => write(&format!("{text}\n")),
        }
    }

    /// Shows on a terminal what is being done now.
    pub fn doing(&self, what: impl fmt::Display) {
        if let Some(doing) = &self.doing {
            *doing.lock() = what.to_string();
            write(&format!("{CLEAR_LINE}{}", display(&doing.lock())));
        }
    }

    /// Takes the display of what is being done away.
    pub fn done(&self) {
        if let Some(doing) = &self.doing {
            doing.lock().clear();
            write(CLEAR_LINE);
        }
    }
}

/// Returns the last line, without an end: the next line takes its place.
fn display(doing: &str) -> String {
    if doing.is_empty() {
        return String::new();
    }
    let [off, on] = NO_WRAP;
    format!("{off}... {doing}{on}")
}

fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    // there is nowhere else to report to, so an error is dropped
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

fn format_line(
    time: &str,
    name: Option<&str>,
    level: i32,
    message: &str,
    pairs: &[(&str, Value)],
    has_colours: bool,
) -> String {
    let [dim, head, loud] = if has_colours {
        let loud = match message {
            text if text.starts_with("error") || text.starts_with("failed") => Style::new().red(),
            _ => Style::new().bold(),
        };
        [Style::new().dimmed(), Style::new().cyan(), loud]
    } else {
        [Style::new(); 3]
    };
    let name = name.map_or_else(String::new, |name| {
        let name = format!("{name}:");
        format!("{} ", name.style(head))
    });
    let level = format!("\"level\"={level}");
    let quoted = format!("{message:?}");
    let pairs = pairs.iter().fold(String::new(), |all, (key, value)| {
        format!("{all} \"{key}\"={value}")
    });
    format!(
        "{} {name}{} \"msg\"={}{pairs}",
        time.style(dim),
        level.style(dim),
        quoted.style(loud)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2026/01/02 03:04:05";

    /// The example of the reference.
    #[test]
    fn a_line_has_the_form_of_the_original() {
        let pairs = [
            ("kind", "CustomResourceDefinition".into()),
            ("name", "noderesourcetopologies.topology.node.k8s.io".into()),
        ];
        assert_eq!(
            format_line(TIME, Some("API"), 0, "created", &pairs, false),
            "2026/01/02 03:04:05 API: \"level\"=0 \"msg\"=\"created\" \"kind\"=\"CustomResourceDefinition\" \
             \"name\"=\"noderesourcetopologies.topology.node.k8s.io\""
        );
        assert_eq!(
            format_line(TIME, None, 3, "say \"hi\"", &[("n", 2.into())], false),
            "2026/01/02 03:04:05 \"level\"=3 \"msg\"=\"say \\\"hi\\\"\" \"n\"=2"
        );
    }

    #[test]
    fn colours_change_nothing_but_colours() {
        let line = |colours| format_line(TIME, Some("SCD"), 0, "error creating", &[], colours);
        let coloured = line(true);
        assert!(coloured.contains("\u{1b}["), "{coloured:?}");
        assert_eq!(
            anstream::adapter::strip_str(&coloured).to_string(),
            line(false)
        );
    }
}
