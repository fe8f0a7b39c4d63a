//! The conformance suite: scenarios that test a NUMA-aware scheduling stack, and the engine that runs them one after another.
//!
//! The suite drives a cluster only through its API and links none of the products, so it can also test another implementation.
//! The scenarios contain the expected values as literals.
//!
//! Reading order: [`scenario`] (what one is), [`context`] (what it works with; [`arena`], [`padding`], [`settle`], [`checks`], `stack` and
//! `faults` extend it), [`scenarios`] (all of them), [`session`] (one run), [`setup`] (how a cluster becomes ready), [`select`] and
//! [`labels`] (which scenarios run), [`cli`] (the command line).

pub mod binaries;
pub mod cli;
mod collect;
pub mod context;
pub mod facts;
pub mod interrupt;
pub mod labels;
pub mod ledger;
pub mod machine_pools;
pub mod observed;
mod pace;
pub mod recorder;
pub mod resources;
pub mod run;
pub mod scenario;
pub mod scenarios;
pub mod select;
pub mod session;
pub mod setup;
#[cfg(test)]
mod testing;
pub mod workload;
