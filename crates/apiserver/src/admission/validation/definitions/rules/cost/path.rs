//! The path from a variable to a part of its value: `self`, `list`, `@items`.
//!
//! cel-go keeps paths in slices, and a longer path may share the memory of a shorter one. Two paths that extend the same path then share
//! the slot of their next step, and the later one overwrites it for both. Estimates depend on this, so this type behaves the same way.

use std::cell::RefCell;
use std::rc::Rc;

/// A path; an empty one stands for no path.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// The slots, used or not: its length is the capacity.
    storage: Rc<RefCell<Vec<String>>>,
    length: usize,
}

impl Path {
    /// Makes the path of a variable.
    pub(super) fn of(variable: &str) -> Self {
        Self::default().join(variable)
    }

    /// Returns whether there is no path.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the path extended by a step. Full storage is doubled and copied, as Go does.
    pub(super) fn join(&self, step: &str) -> Self {
        let capacity = self.storage.borrow().len();
        let storage = if self.length < capacity {
            Rc::clone(&self.storage)
        } else {
            let mut slots = self.steps();
            slots.resize((2 * capacity).max(1), String::new());
            Rc::new(RefCell::new(slots))
        };
        step.clone_into(&mut storage.borrow_mut()[self.length]);
        Self {
            storage,
            length: self.length + 1,
        }
    }

    /// Returns the steps as they are now.
    pub(super) fn steps(&self) -> Vec<String> {
        self.storage.borrow()[..self.length].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_share_their_storage_overwrite_each_other() {
        let items = Path::of("self").join("list").join("@items");
        let one = items.join("a");
        assert_eq!(one.steps(), ["self", "list", "@items", "a"]);
        let two = items.join("b");
        assert_eq!(two.steps(), ["self", "list", "@items", "b"]);
        assert_eq!(one.steps(), two.steps());
        assert_eq!(one.join("c").steps(), ["self", "list", "@items", "b", "c"]);
        // a full storage is copied
        let (one, two) = (Path::of("self").join("a"), Path::of("self").join("b"));
        assert_eq!(one.steps(), ["self", "a"]);
        assert_eq!(two.steps(), ["self", "b"]);
        assert!(Path::default().is_empty());
    }
}
