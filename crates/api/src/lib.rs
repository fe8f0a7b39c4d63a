//! The Kubernetes types of the stack, and every name that other programs match.
//!
//! - [`nrt`]: `NodeResourceTopology`, which the exporter of a node publishes and the scheduler reads;
//! - [`operator`], [`scheduler`]: the two custom resources that an administrator writes;
//! - [`openshift`]: the kinds of OpenShift that the stack reads or writes, with the fields that it uses;
//! - [`crd`]: the three `CustomResourceDefinition` objects, each with both versions;
//! - [`quantity`]: the number format of Kubernetes;
//! - [`names`], [`labels`], [`annotations`], [`attributes`], [`conditions`], [`metrics`]: strings that other programs match.
//!
//! The crate never talks to a cluster, reads no clock and makes no decision: each rule is in the crate that applies it.

pub mod annotations;
pub mod attributes;
pub mod conditions;
pub mod crd;
pub mod labels;
pub mod metrics;
pub mod names;
pub mod nrt;
mod object;
pub mod openshift;
pub mod operator;
pub mod quantity;
pub mod scheduler;
mod schema;
