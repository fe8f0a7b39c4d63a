//! Refusals that are not about an object: of users, of this server, and of backends behind it.

use serde_json::{Value, json};

use super::{Failure, Special, Subject};

impl Failure {
    /// Makes a 401.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// Makes a 403 for a path that does not belong to a resource.
    pub(crate) fn forbidden_path(why: &str) -> Self {
        let mut failure = Self::new(403, "Forbidden", format!("forbidden: {why}"));
        failure.details = json!({});
        failure
    }

    /// Makes a 500.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let mut failure = Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        failure.details = json!({"causes": [{"message": message.to_string()}]});
        failure
    }

    /// Makes a 500 for an error without a reason.
    pub(crate) fn internal_without_reason(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Makes a 503 for a backend that cannot be reached.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// Makes the refusal of a backend behind this server, with its text as the cause.
    pub(crate) fn of_backend(code: u16, subject: &Subject<'_>, text: &str) -> Self {
        let (reason, message) = match code {
            401 => (
                "Unauthorized",
                "the server has asked for the client to provide credentials",
            ),
            403 => (
                "Forbidden",
                "the server does not allow access to the requested resource",
            ),
            404 => (
                "NotFound",
                "the server could not find the requested resource",
            ),
            405 => (
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted, but may still be processing the request",
            ),
            _ => (
                "",
                "the server responded with a status code that is not known",
            ),
        };
        let message = format!("{message} ({} {})", subject.qualified(), subject.name);
        let mut failure = Self::new(code, reason, message).about(subject);
        failure.details["causes"] =
            json!([{"reason": "UnexpectedServerResponse", "message": text}]);
        failure
    }

    /// Makes the refusal of a webhook, which chooses its status.
    pub(crate) fn of_webhook(code: u16, message: String, status: Value) -> Self {
        Self {
            special: Some(Box::new(Special::Status(status))),
            ..Self::new(code, "", message)
        }
    }

    /// Makes the failure of a request that is performed again when its webhooks have answered. No client sees it.
    pub(crate) fn unanswered() -> Self {
        Self::internal("a webhook has not answered yet")
    }

    /// Makes a 503.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// Makes a 504.
    pub(crate) fn timeout(message: &str) -> Self {
        let mut failure = Self::new(504, "Timeout", format!("Timeout: {message}"));
        failure.details = json!({});
        failure
    }
}
