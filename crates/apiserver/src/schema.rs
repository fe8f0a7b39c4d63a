//! What schemas say about values: which fields there are, of which types, with which defaults, how lists are merged, and which rules hold.
//!
//! May import `values` and `failure`. It knows no kinds: `registry` says which schema a kind has.
//!
//! Reading order: `node` (a [`Node`] is a place in a schema, and all others read schemas through it), `decode` and `shape` (bodies of built-in
//! kinds, and the form in which the server writes them), `strategic` with `unstructured` (strategic merge patches and their results), `rules`
//! with `source` and `room` (rules in CEL).

pub(crate) mod decode;
mod node;
pub(crate) mod room;
pub(crate) mod rules;
pub(crate) mod shape;
pub(crate) mod source;
pub(crate) mod strategic;
pub(crate) mod unstructured;

pub(crate) use self::node::{Node, built_in};
