//! Why a strategic merge patch cannot be applied.

/// Why a patch cannot be applied. The texts are those of a real server.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Error {
    /// A `$deleteFromPrimitiveList` that names no list.
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    /// A `$retainKeys` that is not a list, or that does not name all fields which the patch sets.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// A `$setElementOrder` that is not a list or names no list.
    #[error("invalid patch format of setElementOrder list")]
    ElementOrder,
    /// The items of the patch have another order than its `$setElementOrder`.
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    Order {
        /// Items of the patch.
        patch: String,
        /// Order of the directive.
        order: String,
    },
    /// An item without the merge key of its list.
    #[error("map: {item} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The item.
        item: String,
        /// The field.
        key: String,
    },
    /// A `$patch` with an unknown value.
    #[error("unknown patch type: {directive} in map: {item}")]
    Directive {
        /// The value.
        directive: String,
        /// The object that has it.
        item: String,
    },
    /// A list of objects for which the schema names no key.
    #[error("cannot merge lists without merge key for {0}")]
    NoKeyOfList(String),
    /// A value that should be a list.
    #[error("expected a []interface {{}}, but received a {0}")]
    NoList(&'static str),
    /// A list with objects and other values.
    #[error("list element types are not identical")]
    Mixed,
}

impl Error {
    /// Returns whether the error is a bad request; otherwise it is a server error.
    pub(crate) fn is_bad_request(&self) -> bool {
        matches!(
            self,
            Self::PrimitiveList | Self::RetainKeys | Self::ElementOrder
        )
    }
}
