//! The termination message of a container.

use super::Worker;

/// Limits of the termination message: bytes of the file, and bytes and lines of the log.
const MESSAGE_LIMIT: usize = 4096;
const LOG_LIMIT: usize = 2048;
const LOG_LINES: usize = 80;

impl Worker {
    /// Returns the termination message of a container.
    pub(super) fn termination_message(&self, index: usize, code: i32) -> Option<String> {
        let prepared = &self.prepared[index];
        let written = std::fs::read(&prepared.messages).unwrap_or_default();
        let written = String::from_utf8_lossy(&written[..written.len().min(MESSAGE_LIMIT)]);
        if !written.is_empty() {
            return Some(written.into_owned());
        }
        let container = &self.slots[index].facts.container;
        let from_log =
            container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if code == 0 || !from_log {
            return None;
        }
        let log = prepared
            .log
            .join(format!("{}.log", self.slots[index].facts.restarts));
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // Time, stream and tag precede the text of each line.
        let lines: Vec<&str> = text
            .lines()
            .filter_map(|line| line.splitn(4, ' ').nth(3))
            .collect();
        let lines = &lines[lines.len().saturating_sub(LOG_LINES)..];
        let mut text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
        while text.len() > LOG_LIMIT {
            text.remove(0);
        }
        Some(text).filter(|text| !text.is_empty())
    }
}
