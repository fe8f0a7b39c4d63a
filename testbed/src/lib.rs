//! Test clusters of both lanes behind one interface.
//!
//! The programs under test are started as processes and never linked, so that a testbed can judge another implementation as well.
//!
//! Reading order: [`lane`] (both lanes as one type), [`embedded`] (the embedded lane; the local one is the package `local-cluster`),
//! [`api_server`] (only an API server, for programs that need no more), [`cli`] (`cluster up`), [`program`] (the program with the inner
//! processes of the lanes), [`configz`] (kubelets that only tell their configuration), [`permissions`] (who uses which right),
//! [`eventually`] (how tests wait).

pub mod api_server;
pub mod cli;
pub mod configz;
pub mod embedded;
mod eventually;
pub mod lane;
pub mod permissions;
pub mod program;

pub use eventually::eventually;
