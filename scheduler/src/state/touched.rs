//! Which nodes changed since they were last read.

use std::collections::BTreeSet;

/// Maximum number of names that are kept; beyond it every node counts as changed.
const LIMIT: usize = 1_000;

/// Nodes that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    names: BTreeSet<String>,
    everything: bool,
}

impl Touched {
    /// Records that a node changed.
    pub fn note(&mut self, node: &str) {
        if self.everything || self.names.contains(node) {
            return;
        }
        if self.names.len() == LIMIT {
            self.note_all();
        } else {
            self.names.insert(node.to_owned());
        }
    }

    /// Records a change that affects every node.
    pub fn note_all(&mut self) {
        self.names.clear();
        self.everything = true;
    }

    /// Returns what changed since the last call.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns whether every node may be affected; then there are no names.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Iterates over the names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_names_are_everything() {
        let mut touched = Touched::default();
        for number in 0..LIMIT {
            touched.note(&format!("n-{number}"));
        }
        touched.note("n-0");
        assert_eq!(
            (touched.names().count(), touched.is_everything()),
            (LIMIT, false)
        );
        touched.note("one more");
        assert_eq!(
            (touched.names().count(), touched.is_everything()),
            (0, true)
        );
        assert_eq!(
            touched.take(),
            Touched {
                everything: true,
                ..Touched::default()
            }
        );
        assert_eq!(touched, Touched::default());
    }
}
