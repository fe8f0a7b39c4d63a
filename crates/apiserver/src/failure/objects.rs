//! Refusals that are about an object: it is missing, taken, changed, invalid, or its version is gone.

use serde_json::{Value, json};

use super::cause::Cause;
use super::{Failure, Special, Subject};

impl Failure {
    /// Makes a 403 with the reason of an authorizer or an admission plugin.
    pub(crate) fn forbidden(subject: &Subject<'_>, why: &str) -> Self {
        let message = if subject.name.is_empty() {
            format!("{} is forbidden: {why}", subject.qualified())
        } else {
            format!(
                "{} {:?} is forbidden: {why}",
                subject.qualified(),
                subject.name
            )
        };
        Self::new(403, "Forbidden", message).about(subject)
    }

    /// Makes a 404 for an object.
    pub(crate) fn not_found(subject: &Subject<'_>) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(404, "NotFound", message).about(subject)
    }

    /// Makes a 409 for a name that exists already.
    pub(crate) fn already_exists(subject: &Subject<'_>) -> Self {
        let message = format!("{} {:?} already exists", subject.qualified(), subject.name);
        Self::new(409, "AlreadyExists", message).about(subject)
    }

    /// Makes a 409.
    pub(crate) fn conflict(subject: &Subject<'_>, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            subject.qualified(),
            subject.name
        );
        Self::new(409, "Conflict", message).about(subject)
    }

    /// Makes a 409 for a write with an old resource version.
    pub(crate) fn modified(subject: &Subject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Makes a 409 for an apply that conflicts with fields of other owners.
    pub(crate) fn apply_conflict(message: String, causes: &[Value]) -> Self {
        let mut failure = Self::new(409, "Conflict", message);
        failure.details = json!({"causes": causes});
        failure
    }

    /// Makes a 429 for an eviction that a disruption budget does not allow.
    pub(crate) fn too_many_evictions(cause: &str, retry_after: Option<u32>) -> Self {
        let mut failure = Self::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
        failure.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        if let Some(seconds) = retry_after {
            failure.details["retryAfterSeconds"] = json!(seconds);
        }
        failure.retry_after = retry_after;
        failure
    }

    /// Makes a 410.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Makes a 410 for a page at a version that is no longer in the history. The token continues the list at the newest version.
    pub(crate) fn expired_page(continue_token: String) -> Self {
        Self {
            special: Some(Box::new(Special::Continue(continue_token))),
            ..Self::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            )
        }
    }

    /// Makes a 422 with the invalid fields; the subject's resource is the kind.
    pub(crate) fn invalid(subject: &Subject<'_>, causes: &[Cause]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(Cause::text) {
            // the message repeats no text
            if !texts.contains(&text) {
                texts.push(text);
            }
        }

        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!(
            "{} {:?} is invalid: {list}",
            subject.qualified(),
            subject.name
        );
        let mut failure = Self::new(422, "Invalid", message).about(subject);
        failure.details["causes"] = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        failure
    }

    /// Makes a 504 for a resource version that does not exist yet.
    pub(crate) fn future_version(requested: u64, current: u64) -> Self {
        let mut failure = Self::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        );
        failure.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        failure.retry_after = Some(1);
        failure
    }
}
