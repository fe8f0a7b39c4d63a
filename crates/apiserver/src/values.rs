//! Plain values.

pub(crate) mod fields;
pub(crate) mod go;
pub(crate) mod names;
pub(crate) mod pods;
pub(crate) mod quantity;
pub(crate) mod times;
pub(crate) mod words;
