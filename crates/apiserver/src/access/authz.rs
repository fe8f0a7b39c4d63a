//! Authorization: role-based access control by the roles and bindings in the store, and the node authorizer.

use super::identity::User;
use crate::storage::State;

mod attributes;
pub(crate) mod escalation;
mod node;
mod roles;

pub(crate) use self::attributes::Attributes;
pub(crate) use self::roles::rules_of;

/// Returns whether a user may do something.
pub(crate) fn allows(state: &State, user: &User, attributes: &Attributes<'_>) -> bool {
    decide(state, user, attributes).is_ok()
}

/// Decides whether a user may do something; the error is the authorizer's reason, empty when it gives none.
pub(crate) fn decide(
    state: &State,
    user: &User,
    attributes: &Attributes<'_>,
) -> Result<(), String> {
    let as_node = node::allows(state, user, attributes);
    if matches!(as_node, Some(Ok(()))) || roles::by_roles(state, user, attributes) {
        return Ok(());
    }
    Err(as_node.and_then(Result::err).unwrap_or_default())
}
