//! The result model of a run and its readers.
//!
//! A run is one append-only stream of [`event::Record`]s. Everything that people look at (the terminal, the `JUnit` file, the
//! summary, the event log itself) is a [`stream::Reader`] of that stream. So a view can be made during the run or later from the
//! log ([`log::read`]), with the same result.
//!
//! This package knows neither Kubernetes nor the scenarios, and no view changes the stream.
//!
//! Reading order: [`event`], [`stream`], [`log`], then the views [`summary`], [`changes`], [`terminal`] (behind [`grouped`]) and
//! [`junit`].

pub mod changes;
pub mod event;
pub mod grouped;
pub mod junit;
pub mod log;
pub mod stream;
pub mod summary;
pub mod terminal;
