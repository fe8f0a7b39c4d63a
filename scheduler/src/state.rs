//! What the scheduler knows: plain structures without I/O, updated by every change.
//!
//! In reading order:
//! - [`pod`]: a pod in the form that placing needs; [`images`]: the images of pods and nodes.
//! - [`selector`]: label and node selectors.
//! - [`volume_source`]: what a node attaches for a volume.
//! - [`cluster`]: nodes ([`node`]) and the pods on them; [`group_kind`]: the kinds that say which pods belong together; [`storage`]: volumes, claims and what they depend on.
//! - [`totals`]: sums of requests.
//! - [`touched`]: which nodes changed since they were last read.

pub mod cluster;
pub mod group_kind;
pub mod images;
pub mod node;
pub mod pod;
pub mod selector;
pub mod storage;
pub mod totals;
pub mod touched;
pub mod volume_source;
