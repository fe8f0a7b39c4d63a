//! Refuses roles and bindings that grant more than their writer has.

use serde_json::Value;

use crate::access::authz::escalation;
use crate::admission::attempt::Attempt;
use crate::failure::{Failure, Subject};
use crate::storage::State;

/// Refuses roles and bindings that would grant permissions which their writer does not have.
pub(super) fn check(state: &State, attempt: &Attempt<'_>, object: &Value) -> Result<(), Failure> {
    let user = &attempt.identity.user;
    let resource = attempt.resource.plural.as_str();
    let same = |field: &str| {
        attempt
            .before
            .is_some_and(|before| before[field] == object[field])
    };
    if resource.ends_with("roles") {
        if same("rules") && same("aggregationRule") {
            return Ok(());
        }
        let why = escalation::role_refusal(state, user, resource, attempt.namespace, object);
        return why.map_or(Ok(()), |why| Err(attempt.forbidden(&why)));
    }
    if same("roleRef") && same("subjects") {
        return Ok(());
    }
    match escalation::binding_refusal(state, user, attempt.namespace, object) {
        None => Ok(()),
        Some(escalation::Refusal::Grants(why)) => Err(attempt.forbidden(&why)),
        Some(escalation::Refusal::NoRole(name)) => Err(Failure::not_found(&Subject {
            group: &attempt.resource.group,
            resource,
            name: &name,
        })),
    }
}
