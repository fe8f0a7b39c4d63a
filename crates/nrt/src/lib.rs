//! NodeResourceTopology (NRT) to topology and back: what the exporter writes and the scheduler reads.
//!
//! No I/O and no clock; both sides of the wire use the same code, pinned by the vectors of the original implementation.
//!
//! Reading order: [`decode`] (an object as the scheduler needs it), [`encode`] (zones as the exporter publishes them),
//! [`attributes`] (lookup and merge), [`fingerprint`] (which pods an object accounts for), [`placement`] (which container sits on
//! which NUMA node).

pub mod attributes;
pub mod decode;
pub mod encode;
pub mod fingerprint;
pub mod placement;
