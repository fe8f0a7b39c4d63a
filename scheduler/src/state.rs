//! What the scheduler knows: plain structures without I/O, updated by every change.
//!
//! In reading order:
//! - [`pod`]: a pod in the form that placing needs; [`images`]: the images of pods and nodes.
//! - [`selector`]: label and node selectors.
//! - [`cluster`]: nodes and the pods on them; [`storage`]: volumes, claims and what they depend on.
//! - [`cache`]: the zones of every node, each with its ledger of [`crate::numa`].
//! - [`node_info`]: a node as an attempt sees it.
//! - [`touched`]: which nodes changed since they were last read.

pub mod cache;
pub mod cluster;
pub mod images;
pub mod node_info;
pub mod pod;
pub mod selector;
pub mod storage;
pub mod touched;
