//! The stream of a run and its readers.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::event::{Event, Record};

/// A view of the stream: sees every record once, in order.
///
/// A reader never stops the run: one that cannot write keeps the reason and continues. The run asks for the reason at its end.
pub trait Reader: Send {
    /// Takes one record in.
    fn read(&mut self, record: &Record);

    /// Ensures that what was read survives the end of the process, and of the machine where that matters. Returns the reason if it does not.
    fn secure(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns why the view is not complete, if it is not.
    fn failure(&self) -> Option<String> {
        None
    }
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
    /// What else could not be reported.
    failures: Vec<String>,
}

impl Stream {
    /// Creates a stream with these readers.
    pub fn new(readers: Vec<Box<dyn Reader>>) -> Self {
        Self::resumed(0, readers)
    }

    /// Creates a stream that continues another one, whose next event would have this number.
    pub fn resumed(next: u64, readers: Vec<Box<dyn Reader>>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                next,
                readers,
                failures: Vec::new(),
            })),
        }
    }

    /// Appends an event.
    pub fn emit(&self, event: Event) {
        self.inner.lock().append(event);
    }

    /// Appends an event that must not get lost whatever follows, such as the undo of a change. Returns the reason if it may get lost.
    pub fn secure(&self, event: Event) -> Result<(), String> {
        let mut inner = self.inner.lock();
        inner.append(event);
        inner
            .readers
            .iter_mut()
            .try_for_each(|reader| reader.secure())
    }

    /// Notes that something which belongs to the reports could not be written.
    pub fn fail(&self, failure: String) {
        self.inner.lock().failures.push(failure);
    }

    /// Returns what could not be reported. If there is something, the run must not count as good.
    pub fn failures(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let readers = inner.readers.iter().filter_map(|reader| reader.failure());
        readers.chain(inner.failures.iter().cloned()).collect()
    }
}

impl Inner {
    fn append(&mut self, event: Event) {
        let record = Record {
            seq: self.next,
            at: Timestamp::now(),
            event,
        };
        self.next += 1;
        for reader in &mut self.readers {
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

    fn secure(&mut self) -> Result<(), String> {
        self.0.lock().secure()
    }

    fn failure(&self) -> Option<String> {
        self.0.lock().failure()
    }
}

/// Formats an error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
