//! Conversion between NodeResourceTopology (NRT) objects and topology: what the exporter writes and the scheduler reads.
//!
//! No I/O and no clock. Exporter and scheduler use the same code; test vectors of the original implementation pin the format.
//!
//! Reading order: [`encode`] (zones and attributes as the exporter publishes them), [`decode`] (an object in the form the scheduler
//! needs), [`fingerprint`] (which pods an object accounts for), [`placement`] (which container runs on which NUMA node), [`request`] (what a pod
//! requests).

pub mod decode;
pub mod encode;
pub mod fingerprint;
pub mod placement;
pub mod request;
