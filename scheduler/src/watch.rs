//! What is watched, and how changes are delivered.
//!
//! [`follow`]: watches one kind of objects.

pub mod follow;
