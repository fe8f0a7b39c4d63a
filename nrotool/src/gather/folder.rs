//! The folder that is written. Everything passes the redaction.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::redact::Redactor;

/// File with what could not be collected.
pub(super) const ERRORS: &str = "errors.txt";
/// Files that the cluster has no part in.
const OWN_FILES: [&str; 1] = ["version"];

/// A collection on disk.
pub(super) struct Folder {
    root: PathBuf,
    redactor: Redactor,
    written: RefCell<BTreeSet<String>>,
    /// How much may still be written, in bytes.
    room: Cell<u64>,
    errors: RefCell<Vec<String>>,
}

/// How a collection ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Files written.
    pub(super) files: usize,
    /// Files with something from the cluster.
    pub(super) objects: usize,
    /// Parts that could not be had.
    pub(super) errors: usize,
}

impl Folder {
    /// Creates the folder, for so many bytes of files beside the list of errors and the index.
    pub(super) fn create(root: &Path, max_bytes: u64) -> anyhow::Result<Self> {
        fs_err::create_dir_all(root)?;
        Ok(Self {
            root: root.to_owned(),
            redactor: Redactor::new()?,
            written: RefCell::default(),
            room: Cell::new(max_bytes),
            errors: RefCell::default(),
        })
    }

    /// Writes a text. The path is relative, its parts are [names](name).
    pub(super) fn text(&self, path: &str, text: &str) {
        self.write(path, &self.redactor.text(text));
    }

    /// Writes a value as JSON.
    pub(super) fn json(&self, path: &str, value: &Value) {
        let value = self.redactor.object(value.clone());
        match serde_json::to_string_pretty(&value) {
            Ok(text) => self.write(path, &(text + "\n")),
            Err(error) => self.failed(path, &error),
        }
    }

    /// Writes an object or a list as YAML. One of kind Secret is not written.
    pub(super) fn yaml(&self, path: &str, value: &Value) {
        let kind = value["kind"].as_str().unwrap_or_default();
        if kind == "Secret" || kind == "SecretList" {
            self.errors
                .borrow_mut()
                .push(format!("{path}: a {kind} is never collected"));
            return;
        }
        let value = self.redactor.object(value.clone());
        match serde_yaml::to_string(&value) {
            Ok(text) => self.write(path, &text),
            Err(error) => self.failed(path, &error),
        }
    }

    /// Returns the value; notes why there is none.
    pub(super) fn or_error<T, E: Error + 'static>(
        &self,
        what: &str,
        outcome: Result<T, E>,
    ) -> Option<T> {
        outcome.map_err(|error| self.failed(what, &error)).ok()
    }

    /// Notes what could not be collected.
    pub(super) fn failed(&self, what: &str, error: &(dyn Error + 'static)) {
        let line = format!("{what}: {}", daemon::log::chain(error));
        self.errors.borrow_mut().push(self.redactor.text(&line));
    }

    /// Returns what there is by now.
    pub(super) fn outcome(&self) -> Outcome {
        let written = self.written.borrow();
        let own = OWN_FILES.iter().filter(|file| written.contains(**file));
        Outcome {
            files: written.len(),
            objects: written.len() - own.count(),
            errors: self.errors.borrow().len(),
        }
    }

    /// Writes the file with what could not be collected; it is empty if all was.
    pub(super) fn write_errors(&self) -> std::io::Result<()> {
        let mut lines = self.errors.borrow().join("\n");
        if !lines.is_empty() {
            lines.push('\n');
        }
        fs_err::write(self.root.join(ERRORS), lines)
    }

    /// Writes the page that leads to the others.
    pub(super) fn write_index(&self, name: &str, page: &str) -> std::io::Result<()> {
        fs_err::write(self.root.join(name), page)
    }

    /// Returns the paths of the files, sorted.
    pub(super) fn files(&self) -> Vec<String> {
        self.written.borrow().iter().cloned().collect()
    }

    /// Returns what could not be collected.
    pub(super) fn errors(&self) -> Vec<String> {
        self.errors.borrow().clone()
    }

    fn write(&self, path: &str, text: &str) {
        let Some(room) = self.room.get().checked_sub(text.len() as u64) else {
            let line = format!("{path}: {} bytes are more than is left", text.len());
            self.errors.borrow_mut().push(line);
            return;
        };
        self.room.set(room);
        let file = self.root.join(path);
        let written = file
            .parent()
            .map_or(Ok(()), fs_err::create_dir_all)
            .and_then(|()| fs_err::write(&file, text));
        match written {
            Ok(()) => drop(self.written.borrow_mut().insert(path.to_owned())),
            Err(error) => self.failed(path, &error),
        }
    }
}

/// Makes the name of an object one part of a path, whatever an API server may send.
pub(super) fn name(text: &str) -> String {
    match text {
        "" | "." | ".." => "_".to_owned(),
        text => text.replace(['/', '\\', '\0'], "_"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_secret_is_refused_and_named_among_the_errors() {
        let directory = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(directory.path(), 100).expect("created");
        folder.yaml(
            "a/b.yaml",
            &json!({"kind": "Secret", "data": {"x": "eA=="}}),
        );
        assert!(folder.files().is_empty());
        assert_eq!(folder.errors(), ["a/b.yaml: a Secret is never collected"]);
        assert!(!directory.path().join("a").exists());
    }

    #[test]
    fn what_is_larger_than_the_rest_is_left_out_and_named() {
        let directory = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(directory.path(), 10).expect("created");
        folder.text("large", "12345678901");
        folder.text("small", "1234567890");
        folder.text("late", "1");
        assert_eq!(folder.files(), ["small"]);
        assert_eq!(
            folder.errors(),
            [
                "large: 11 bytes are more than is left",
                "late: 1 bytes are more than is left"
            ]
        );
    }

    #[test]
    fn names_stay_in_their_folder() {
        assert_eq!(name("../../etc"), ".._.._etc");
        assert_eq!(name(".."), "_");
        assert_eq!(name("worker-0.example.com"), "worker-0.example.com");
    }
}
