//! The table of README.tests.md with the sizes of the images' programs, as `cargo xtask image --size` measured them last.

use super::page::Part;
use crate::image;

const BEGIN: &str = "<!-- begin: sizes of programs, by `cargo xtask codegen` -->\n";

/// Returns the table.
///
/// # Errors
/// Returns an error if the last measurement cannot be read.
pub(super) fn part() -> anyhow::Result<Part> {
    Ok(Part {
        begin: BEGIN,
        text: image::size_table()?,
    })
}
