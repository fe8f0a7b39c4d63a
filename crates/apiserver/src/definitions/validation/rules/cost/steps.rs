//! The way from a variable to a part of it: `self`, `list`, `@items`.
//!
//! cel-go keeps ways in slices, and a longer way may lie in the memory of a shorter one: two ways that go on from the same part then
//! share the place of their next step, and the later one overwrites it for both. Estimates depend on that, so it is done here as well.

use std::cell::RefCell;
use std::rc::Rc;

/// A way; an empty one is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// Has as many places as it can hold.
    storage: Rc<RefCell<Vec<String>>>,
    length: usize,
}

impl Steps {
    /// The way to a variable.
    pub(super) fn of(variable: &str) -> Self {
        Self::default().to(variable)
    }

    /// Whether it leads nowhere.
    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// One step further; storage that is full is doubled, as Go does it.
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

    /// The steps as they are now.
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
        // a full storage is left
        let (one, two) = (Steps::of("self").to("a"), Steps::of("self").to("b"));
        assert_eq!(one.all(), ["self", "a"]);
        assert_eq!(two.all(), ["self", "b"]);
        assert!(Steps::default().is_empty());
    }
}
