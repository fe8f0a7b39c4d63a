//! Pages for people with parts that are generated, each between two marks.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;

/// Ends the generated part.
const END: &str = "<!-- end -->\n";

/// A generated part of a page.
pub(super) struct Part {
    /// The line before it.
    pub(super) begin: &'static str,
    pub(super) text: String,
}

/// A page.
pub(super) struct Page {
    /// Its path, relative to the root of the repository.
    path: &'static str,
    /// As it is.
    before: String,
    /// As it must be.
    after: String,
}

impl Page {
    /// Reads a page and puts its parts in their places.
    ///
    /// # Errors
    /// Returns an error if the page cannot be read or has no place for a part.
    pub(super) fn new(path: &'static str, parts: &[Part]) -> anyhow::Result<Self> {
        let before = read(path)?;
        let after = parts.iter().try_fold(before.clone(), |page, part| {
            let begin = part.begin;
            let place = page
                .split_once(begin)
                .and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
            let (head, tail) = place.with_context(|| {
                format!("{path} has no place for a table: {begin:?} and {END:?}")
            })?;
            anyhow::Ok(format!("{head}{begin}{}{END}{tail}", part.text))
        })?;
        Ok(Self {
            path,
            before,
            after,
        })
    }

    /// Checks that the page is as it must be.
    ///
    /// # Errors
    /// Returns an error if it is not.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.before == self.after,
            "a table of {} differs from what it is made of, run `cargo xtask codegen`",
            self.path
        );
        Ok(())
    }

    /// Writes the page.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let path = self.path;
        std::fs::write(full(path), &self.after).with_context(|| format!("failed to write {path}"))
    }
}

/// Reads a list in YAML that a part is made of.
///
/// # Errors
/// Returns an error if it cannot be read or has another form.
pub(super) fn list<T: DeserializeOwned>(path: &str) -> anyhow::Result<T> {
    serde_yaml::from_str(&read(path)?).with_context(|| format!("failed to parse {path}"))
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(full(path)).with_context(|| format!("failed to read {path}"))
}

fn full(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
