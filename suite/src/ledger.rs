//! The ledger of created and changed objects. Each entry is recorded before its call, with its undo; changes are undone in reverse order. What
//! was changed twice gets its first value at once ([`Undo::covers`]).

mod object;
mod undo;

use reports::changes::{Change, OpenChanges};

pub use object::ObjectRef;
pub use undo::{Error, Undo};

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Number within the unit, from 1.
    pub change: u32,
    /// The change, for people.
    pub what: String,
    /// How to undo it.
    pub undo: Undo,
}

/// The changes of one unit that are not undone yet.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: Vec<Entry>,
    next: u32,
}

impl Ledger {
    /// Records a change and returns its number. Must be called before the change is made.
    pub fn record(&mut self, what: &str, undo: Undo) -> u32 {
        self.next += 1;
        self.entries.push(Entry {
            change: self.next,
            what: what.to_owned(),
            undo,
        });
        self.next
    }

    /// Removes and returns the change to undo next: the latest.
    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop()
    }

    /// Returns whether what this undo restores is restored by that of a change that is still recorded.
    pub fn covers(&self, undo: &Undo) -> bool {
        self.entries.iter().any(|earlier| earlier.undo.covers(undo))
    }

    /// Forgets all changes: they are to stay.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns whether everything was undone.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Returns the changes of a run, oldest first, whose undo has something to do, each with its undo. An undo that cannot be read is `None`.
pub fn open_entries(
    open: &OpenChanges,
) -> impl DoubleEndedIterator<Item = (&Change, Option<Undo>)> {
    let entries = open.changes().iter().map(|change| {
        let undo = serde_json::from_value::<Undo>(change.undo.clone());
        (change, undo.ok())
    });
    entries.filter(|(_, undo)| undo.as_ref().is_none_or(Undo::is_needed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(name: &str) -> Undo {
        Undo::DeleteNamespace {
            name: name.to_owned(),
        }
    }

    #[test]
    fn changes_come_back_in_reverse() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.record("first", undo("a")), 1);
        assert_eq!(ledger.record("second", undo("b")), 2);
        assert_eq!(
            ledger.pop().map(|entry| entry.what),
            Some("second".to_owned())
        );
        assert_eq!(ledger.record("third", undo("c")), 3);
        let left: Vec<_> = std::iter::from_fn(|| ledger.pop())
            .map(|entry| entry.change)
            .collect();
        assert_eq!(left, [3, 1]);
        assert!(ledger.is_empty());
    }
}
