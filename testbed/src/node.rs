//! What runs inside one node of the local lane: the CRI server and the process runtime behind it.

pub mod spec;
