//! What a person sees while a command works.

use std::io::Write as _;

/// A line on standard error. Nobody is left to tell when that fails.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
