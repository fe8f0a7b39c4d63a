//! What a request draws: unique ids and the time.
//!
//! A request that has to wait for a webhook is performed again from its beginning. It draws the same then, because the webhook has seen it.

use std::cell::RefCell;

use jiff::Timestamp;
use uuid::Uuid;

/// What one request has drawn, in order.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    ids: Vec<Uuid>,
    /// Number of ids that this performance has taken.
    taken: usize,
    time: Option<Timestamp>,
}

thread_local! {
    static CURRENT: RefCell<Option<Draws>> = const { RefCell::new(None) };
}

/// Performs work that draws what it has drawn before, and afterwards anew. Returns the result with all that was drawn.
pub(crate) fn repeat<R>(mut draws: Draws, work: impl FnOnce() -> R) -> (R, Draws) {
    draws.taken = 0;
    CURRENT.set(Some(draws));
    // a panic ends the task of the request; the next request of the thread must not draw what that one has drawn
    let cleared = Cleared;
    let result = work();
    let draws = CURRENT.take().unwrap_or_default();
    drop(cleared);
    (result, draws)
}

struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Draws a unique id.
pub(crate) fn id() -> Uuid {
    CURRENT.with_borrow_mut(|current| {
        let Some(draws) = current else {
            return Uuid::new_v4();
        };
        let known = draws.ids.get(draws.taken).copied();
        draws.taken += 1;
        known.unwrap_or_else(|| {
            let id = Uuid::new_v4();
            draws.ids.push(id);
            id
        })
    })
}

/// Returns the present time, or that of the first performance of the request.
pub(crate) fn time() -> Timestamp {
    CURRENT.with_borrow_mut(|current| match current {
        Some(draws) => *draws.time.get_or_insert_with(Timestamp::now),
        None => Timestamp::now(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_performed_again_draws_the_same_and_others_do_not() {
        let work = || (id(), time(), id());
        let (first, draws) = repeat(Draws::default(), work);
        let (second, draws) = repeat(draws, || (work(), id()));
        assert_eq!(first, second.0);
        assert_ne!(first.0, first.2);
        let (third, _) = repeat(draws, || (work(), id()));
        assert_eq!(second, third);
        assert_ne!(id(), first.0);
        let (other, _) = repeat(Draws::default(), work);
        assert_ne!(other.0, first.0);
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let (first, draws) = repeat(Draws::default(), id);
        let panicked = std::panic::catch_unwind(|| repeat(draws, || panic!("on purpose")).0);
        assert!(panicked.is_err());
        assert_ne!(id(), first);
    }
}
