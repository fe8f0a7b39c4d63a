//! The stream of a run and its readers.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::event::{Event, Record};

/// A view of the stream: sees every record once, in order.
///
/// A reader never fails the run: a reader that cannot write reports that in its own way and continues.
pub trait Reader: Send {
    /// Takes one record in.
    fn read(&mut self, record: &Record);
}

/// The stream of one run: gives each event a number and a time and passes it to the readers.
///
/// Cheap to clone; all clones are the same stream. Readers are called one after another, in the order given.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    next: u64,
    readers: Vec<Box<dyn Reader>>,
}

impl Stream {
    /// Creates a stream with these readers.
    pub fn new(readers: Vec<Box<dyn Reader>>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner { next: 0, readers })),
        }
    }

    /// Appends an event.
    pub fn emit(&self, event: Event) {
        // A reader that panicked must not keep events from the other readers.
        let mut inner = self.inner.lock();
        let record = Record {
            seq: inner.next,
            at: Timestamp::now(),
            event,
        };
        inner.next += 1;
        for reader in &mut inner.readers {
            reader.read(&record);
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// A reader whose state others need to see.
#[derive(Debug, Default)]
pub struct Shared<R>(Arc<Mutex<R>>);

impl<R> Clone for Shared<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Shared<R> {
    /// Wraps a reader.
    pub fn new(reader: R) -> Self {
        Self(Arc::new(Mutex::new(reader)))
    }

    /// Calls `read` with the reader.
    pub fn with<T>(&self, read: impl FnOnce(&R) -> T) -> T {
        read(&self.0.lock())
    }
}

impl<R: Reader> Reader for Shared<R> {
    fn read(&mut self, record: &Record) {
        self.0.lock().read(record);
    }
}
