//! Test clusters: lanes, simulated hardware, process runtime, faults.
//!
//! The programs under test are started as processes and never linked, so that a testbed can judge another implementation as well.
//!
//! Reading order: [`local`] brings a cluster of real Kubernetes parts up and down; [`node`] is what runs inside one node of it: the CRI
//! server and the process runtime. [`embedded`] is a cluster within one process, [`api_server`] is only the API server, for programs that
//! need no more. [`openshift`] makes a cluster an OpenShift. [`state`] knows which clusters exist, [`cli`] is `cluster up`.

pub mod api_server;
pub mod cargo;
pub mod cli;
pub mod configz;
pub mod embedded;
pub mod faults;
pub mod kubelet;
pub mod lane;
pub mod local;
pub mod node;
pub mod openshift;
pub mod permissions;
pub mod program;
pub mod state;
