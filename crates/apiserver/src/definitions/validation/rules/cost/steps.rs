//! The path from a variable to a part of its value: `self`, `list`, `@items`.
//!
//! cel-go keeps paths in slices, and a longer path may share the memory of a shorter one. Two paths that extend the same path then share
//! the slot of their next step, and the later one overwrites it for both. Estimates depend on this, so this type behaves the same way.

use std::cell::RefCell;
use std::rc::Rc;

/// A path; an empty one stands for no path.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// The slots, used or not: its length is the capacity.
    storage: Rc<RefCell<Vec<String>>>,
    length: usize,
}

impl Steps {
    /// Makes the path of a variable.
    pub(super) fn of(variable: &str) -> Self {
        Self::default().to(variable)
    }

    /// Returns whether there is no path.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the path extended by a step. Full storage is doubled and copied, as Go does.
    pub(super) fn to(&self, step: &str) -> Self {
        let room = self.storage.borrow().len();
        let storage = if self.length < room {
            Rc::clone(&self.storage)
        } else {
            let mut places = self.all();
            places.resize((2 * room).max(1), String::new());
            Rc::new(RefCell::new(places))
        };
        step.clone_into(&mut storage.borrow_mut()[self.length]);
        Self {
            storage,
            length: self.length + 1,
        }
    }

    /// Returns the steps as they are now.
    pub(super) fn all(&self) -> Vec<String> {
        self.storage.borrow()[..self.length].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_share_their_storage_overwrite_each_other() {
        let items = Steps::of("self").to("list").to("@items");
        let one = items.to("a");
        assert_eq!(one.all(), ["self", "list", "@items", "a"]);
        let two = items.to("b");
        assert_eq!(two.all(), ["self", "list", "@items", "b"]);
        assert_eq!(one.all(), two.all());
        assert_eq!(one.to("c").all(), ["self", "list", "@items", "b", "c"]);
        // a full storage is copied
        let (one, two) = (Steps::of("self").to("a"), Steps::of("self").to("b"));
        assert_eq!(one.all(), ["self", "a"]);
        assert_eq!(two.all(), ["self", "b"]);
        assert!(Steps::default().is_empty());
    }
}
