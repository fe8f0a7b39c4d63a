//! Tickets of open watches, through which faults end watches or hold them back.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::rule::{RequestAttributes, WatchEnd};

/// An open watch.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) id: u64,
    attributes: RequestAttributes,
    /// How many events may still be sent, and how the watch ends then.
    pub(super) limit: Option<(AtomicU64, WatchEnd)>,
    ended: Mutex<Option<WatchEnd>>,
}

impl Ticket {
    /// Makes the ticket of a watch that may send a limited number of events.
    pub(super) fn new(
        id: u64,
        attributes: RequestAttributes,
        limit: Option<(u64, WatchEnd)>,
    ) -> Self {
        Self {
            id,
            attributes,
            limit: limit.map(|(events, how)| (AtomicU64::new(events), how)),
            ended: Mutex::default(),
        }
    }

    /// Returns the attributes of the request that opened the watch.
    pub(crate) fn attributes(&self) -> &RequestAttributes {
        &self.attributes
    }

    /// Ends the watch; returns false when it was ended before.
    pub(crate) fn end_now(&self, how: WatchEnd) -> bool {
        let mut ended = self.ended.lock();
        let first = ended.is_none();
        ended.get_or_insert(how);
        first
    }

    /// Returns how the watch was ended.
    pub(super) fn end(&self) -> Option<WatchEnd> {
        *self.ended.lock()
    }
}
