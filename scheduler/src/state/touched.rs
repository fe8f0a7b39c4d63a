//! Which nodes changed since they were last read.

use std::collections::BTreeSet;

/// Maximum number of names that are kept; beyond it every node counts as changed.
const LIMIT: usize = 1_000;

/// Nodes that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// The nodes of these names.
    Nodes(BTreeSet<String>),
    /// Every node may be affected.
    Everything,
}

impl Default for Touched {
    fn default() -> Self {
        Self::Nodes(BTreeSet::new())
    }
}

impl Touched {
    /// Records that a node changed.
    pub fn note(&mut self, node: &str) {
        let Self::Nodes(names) = self else { return };
        if names.contains(node) {
            return;
        }
        if names.len() == LIMIT {
            self.note_all();
        } else {
            names.insert(node.to_owned());
        }
    }

    /// Records a change that affects every node.
    pub fn note_all(&mut self) {
        *self = Self::Everything;
    }

    /// Returns what changed since the last call.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns whether every node may be affected; then there are no names.
    pub fn is_everything(&self) -> bool {
        *self == Self::Everything
    }

    /// Iterates over the names of the nodes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Nodes(names) => Some(names),
            Self::Everything => None,
        };
        names.into_iter().flatten().map(String::as_str)
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
        assert_eq!(touched.take(), Touched::Everything);
        assert_eq!(touched, Touched::default());
    }
}
