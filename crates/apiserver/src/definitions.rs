//! Definitions of custom resources: which ones are refused, what happens to them after they are written, and what their schemas do to
//! custom objects.
//!
//! Reading order: [`validation`] (what is refused, checked in the form of `hub`), [`lifecycle`] (status, names, conditions, and deletion with
//! all objects), `names`, [`objects`] (custom objects pruned and defaulted by their schema).

pub(crate) mod lifecycle;
pub(crate) mod objects;
pub(crate) mod validation;

mod go;
mod hub;
mod names;
