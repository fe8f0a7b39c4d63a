//! Tools for people who look into a cluster: what the original has as small programs, `kubectl nrt`, and must-gather.
//!
//! They are clients of the API server and link no product, so that they serve other versions of the stack, too.
//!
//! Reading order: [`run`] (the names of the tools), `flags` (their command lines), `output` (how they end), `cluster` (the client), `platform`; then each tool by its
//! name, and [`gather`] for must-gather.

mod catkubeletconfmap;
mod cluster;
mod exec;
mod flags;
pub mod gather;
mod getdigests;
mod inspectfeatures;
mod lsplatform;
mod mkginkgolabelfilter;
mod nrovalidate;
mod nrt;
mod output;
mod pfpsyncchk;
pub mod run;
mod schedlogs;
mod watchnrtattr;
