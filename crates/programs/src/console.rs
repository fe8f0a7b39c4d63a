//! Output for people while a command works.

use std::io::Write as _;

/// Writes a line to standard error. A failure is ignored, because there is no other place to report it.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
