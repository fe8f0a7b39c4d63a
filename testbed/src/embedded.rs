//! The `embedded` lane: a whole cluster in this process, without privileges and with nothing but our binaries.
//!
//! The API server is `apiserver`; everything else is a client of it over loopback, as in a real cluster. The programs of the stack are
//! plain child processes.
//!
//! Reading order: [`cluster`] (the entry point and the order of start and stop), [`hold`] (a cluster that outlives the process that asked
//! for it), [`node`] (simulated kubelets and the processes of their pods).

pub mod cluster;
pub mod controllers;
pub mod default_scheduler;
pub mod hold;
pub mod light;
pub mod node;

pub use cluster::{EmbeddedCluster, EmbeddedSpec};
