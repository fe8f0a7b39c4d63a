//! What is watched, and how changes are delivered.
//!
//! In reading order:
//! - [`kinds`]: the table of the watched kinds, and how each object is read.
//! - [`follow`](mod@follow): watches one kind and delivers its changes.
//! - [`start`](mod@start): starts the watches of all kinds that the profiles need.

pub mod follow;
pub mod kinds;
pub mod start;
