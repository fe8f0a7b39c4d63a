//! What schemas say about values.

pub(crate) mod decode;
mod node;
pub(crate) mod rules;
pub(crate) mod shape;
pub(crate) mod source;
pub(crate) mod strategic;
pub(crate) mod unstructured;

pub(crate) use self::node::{Node, built_in};
