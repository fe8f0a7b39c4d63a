//! The Kubernetes types of the stack and every name that others match.
//!
//! - [`nrt`]: `NodeResourceTopology`, what a node's exporter publishes and the scheduler reads;
//! - [`operator`], [`scheduler`]: the two custom resources that an administrator writes;
//! - [`openshift`]: the kinds of OpenShift that the stack reads or writes, with the fields that it uses;
//! - [`crd`]: the three `CustomResourceDefinition` objects, both versions each;
//! - [`quantity`], [`duration`]: the two number formats of Kubernetes;
//! - [`names`], [`labels`], [`annotations`], [`attributes`], [`conditions`], [`metrics`]: strings that other programs match.
//!
//! It never talks to a cluster, reads no clock and decides nothing: rules live with who applies them.

pub mod annotations;
pub mod attributes;
pub mod conditions;
pub mod crd;
pub mod duration;
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
