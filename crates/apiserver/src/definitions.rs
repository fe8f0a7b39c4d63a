//! Definitions of custom resources: what of them is refused, what becomes of them after they were written, and what their schemas do to
//! custom objects.
//!
//! Reading order: [`validation`] (what is refused, judged in the form of `hub`), [`life`] (status, names, conditions, the end with all
//! objects), `names`, [`objects`] (custom objects cut to their schema and completed by it).

pub(crate) mod life;
pub(crate) mod objects;
pub(crate) mod validation;

mod go;
mod hub;
mod names;
