//! Changes of objects, as watches read them.

use std::sync::Arc;

use hyper::body::Bytes;

use super::key::Key;
use super::object::Object;

/// An object in the history.
#[derive(Clone, Debug)]
pub(crate) enum HistoricObject {
    /// As a value.
    Value(Arc<Object>),
    /// As JSON.
    Text(Bytes),
}

impl HistoricObject {
    /// Returns the object, parsed from the text if necessary.
    pub(crate) fn value(&self) -> Arc<Object> {
        match self {
            Self::Value(value) => Arc::clone(value),
            // the text was encoded by this server, so it can be parsed
            Self::Text(text) => Arc::new(Object::new(
                serde_json::from_slice(text).unwrap_or_default(),
            )),
        }
    }

    /// Returns the object as JSON.
    pub(crate) fn text(&self) -> Bytes {
        match self {
            Self::Value(value) => value.text(),
            Self::Text(text) => text.clone(),
        }
    }

    pub(super) fn shrink(&mut self) {
        *self = Self::Text(self.text());
    }

    /// Returns the size of the text in bytes; 0 for a value.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Value(_) => 0,
            Self::Text(text) => text.len(),
        }
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Resource version of the change.
    pub(crate) version: u64,
    /// Key of the object.
    pub(crate) key: Key,
    /// The object after the change; for a deletion, its last state with the version of the deletion.
    pub(crate) object: HistoricObject,
    /// The object before the change; `None` for a new one.
    pub(crate) before: Option<HistoricObject>,
    /// Whether the object was deleted.
    pub(crate) deleted: bool,
}
