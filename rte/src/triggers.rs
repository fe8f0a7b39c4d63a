//! What starts a scan: the timer, a file, changes that the API server reports, and failures.
//!
//! Reading order: [`Trigger`], `events` (all sources, and what comes next), `notify` (the file), `limiter` (how often the file counts),
//! `watch` (the API server), `probes` (when to look after a change), `retries` (when to try again after a failure).

use api::annotations;

pub(crate) mod events;
pub(crate) mod limiter;
pub(crate) mod notify;
mod probes;
mod retries;
pub(crate) mod watch;

/// What caused a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The timer.
    Periodic,
    /// The start, or a notification.
    Reactive,
}

impl Trigger {
    /// Returns the value of the annotation and of the metrics' label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => annotations::UPDATE_PERIODIC,
            Self::Reactive => annotations::UPDATE_REACTIVE,
        }
    }
}
