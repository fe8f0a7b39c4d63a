//! Refusals as the API reports them: `metav1.Status` with the wording that clients parse.

use serde_json::{Value, json};

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// HTTP status code.
    pub(crate) code: u16,
    /// Machine-readable reason; empty when the API gives none.
    pub(crate) reason: &'static str,
    /// Message for users.
    pub(crate) message: String,
    /// The `details` of the status; `Null` when there are none.
    pub(crate) details: Value,
    /// Seconds of a `Retry-After` header.
    pub(crate) retry_after: Option<u64>,
    /// Whether the answer is plain text and not a status, as for paths that belong to no API.
    pub(crate) is_text: bool,
    /// Continue token with which the client can resume the list anyway.
    pub(crate) continue_token: Option<String>,
    /// Whether the server retries the request for a short time before it refuses it.
    pub(crate) is_transient: bool,
}

/// The resource and the object that a refusal is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// API group, empty for the core group.
    pub(crate) group: &'a str,
    /// Resource in plural, or the kind where the API uses it.
    pub(crate) resource: &'a str,
    /// Name of the object; empty when the request names none.
    pub(crate) name: &'a str,
}

impl Subject<'_> {
    fn details(&self) -> Value {
        let mut details = json!({});
        for (key, value) in [
            ("name", self.name),
            ("group", self.group),
            ("kind", self.resource),
        ] {
            if !value.is_empty() {
                details[key] = json!(value);
            }
        }
        details
    }

    /// Returns the resource with its group: `deployments.apps`, `pods`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }
}

/// One invalid field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, ...
    pub(crate) reason: &'static str,
    /// Message without the path.
    pub(crate) message: String,
    /// Path of the field.
    pub(crate) field: String,
}

impl Cause {
    /// Makes the cause for a required field that is missing.
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self {
            reason: "FieldValueRequired",
            message,
            field: field.into(),
        }
    }

    /// Makes the cause for a field whose value is not allowed.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {detail}", quoted(value)),
            field: field.into(),
        }
    }

    /// Replaces the value in the message, where the server does not write it as JSON.
    pub(crate) fn with_value(mut self, written: &str) -> Self {
        if let Some((_, detail)) = self
            .message
            .strip_prefix("Invalid value: ")
            .and_then(|rest| rest.split_once(": "))
        {
            self.message = format!("Invalid value: {written}: {detail}");
        }
        self
    }

    /// Makes the cause for a field that may not be given or not be changed.
    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {detail}"),
            field: field.into(),
        }
    }

    /// Makes the cause for a value with more than `most` bytes.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {most} bytes"),
            field: field.into(),
        }
    }

    /// Makes the cause for more items or fields than allowed.
    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let ending = if most == 1 { "" } else { "s" };
        Self {
            reason: "FieldValueTooMany",
            message: format!("Too many: {count}: must have at most {most} item{ending}"),
            field: field.into(),
        }
    }

    /// Makes the cause for a value that occurs twice.
    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            message: format!("Duplicate value: {}", quoted(value)),
            field: field.into(),
        }
    }

    /// Makes the cause for a reference to something that does not exist.
    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueNotFound",
            message: format!("Not found: {}", quoted(value)),
            field: field.into(),
        }
    }

    /// Makes the cause for a field whose value does not have the type in the schema.
    pub(crate) fn of_type(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            ..Self::invalid(field, value, detail)
        }
    }

    /// Makes the cause for a value that is not one of the allowed ones.
    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, allowed: &[String]) -> Self {
        let list: Vec<String> = allowed.iter().map(|value| format!("{value:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {}: supported values: {}",
                quoted(value),
                list.join(", ")
            ),
            field: field.into(),
        }
    }

    /// Returns path and text, as they appear in the message of the refusal.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

fn quoted(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        other => other.to_string(),
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            retry_after: None,
            is_text: false,
            continue_token: None,
            is_transient: false,
        }
    }

    fn about(mut self, subject: &Subject<'_>) -> Self {
        self.details = subject.details();
        self
    }

    /// Makes a 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Makes a 401.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

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

    /// Makes a 403 for a path that does not belong to a resource.
    pub(crate) fn forbidden_path(why: &str) -> Self {
        let mut failure = Self::new(403, "Forbidden", format!("forbidden: {why}"));
        failure.details = json!({});
        failure
    }

    /// Makes a 404 for an object.
    pub(crate) fn not_found(subject: &Subject<'_>) -> Self {
        let message = format!("{} {:?} not found", subject.qualified(), subject.name);
        Self::new(404, "NotFound", message).about(subject)
    }

    /// Makes a 404 for a resource that the server does not have.
    pub(crate) fn resource_not_found() -> Self {
        let mut failure = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        failure.details = json!({});
        failure
    }

    /// Makes a 404 for a path that belongs to no API.
    pub(crate) fn path_not_found() -> Self {
        Self {
            is_text: true,
            ..Self::new(404, "NotFound", "404 page not found")
        }
    }

    /// Makes a 405 for a subresource of a custom resource; the message does not contain the subject's name.
    pub(crate) fn not_supported(subject: &Subject<'_>, verb: &str) -> Self {
        let message = format!(
            "{verb} is not supported on resources of kind {:?}",
            subject.qualified()
        );
        Self::new(405, "MethodNotAllowed", message).about(&Subject {
            name: "",
            ..*subject
        })
    }

    /// Makes a 405.
    pub(crate) fn method_not_allowed() -> Self {
        let mut failure = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        failure.details = json!({});
        failure
    }

    /// Makes a 406.
    pub(crate) fn not_acceptable() -> Self {
        let mut failure = Self::new(
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        );
        failure.details = json!({});
        failure
    }

    /// Makes a 406 of handlers that check the parameters of media types, not only the types.
    pub(crate) fn not_acceptable_parameters() -> Self {
        Self::not_acceptable_because(
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// Makes a 406 for a representation that the answer does not have.
    pub(crate) fn not_acceptable_because(message: &str) -> Self {
        Self::new(406, "NotAcceptable", message)
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
    pub(crate) fn too_many_evictions(cause: &str, retry_after: Option<u64>) -> Self {
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
            continue_token: Some(continue_token),
            ..Self::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            )
        }
    }

    /// Makes a 413.
    pub(crate) fn too_large() -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
        )
    }

    /// Makes a 415.
    pub(crate) fn unsupported_media_type(supported: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                supported.join(", ")
            ),
        )
    }

    /// Makes a 415 of the outer layer of built-in kinds.
    pub(crate) fn media_type_refused() -> Self {
        let mut failure = Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        failure.details = json!({});
        failure
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

    /// Makes a 422 without fields.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        let mut failure = Self::new(422, "Invalid", message);
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

    /// Returns the body of the answer.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        if let Some(token) = &self.continue_token {
            body["metadata"]["continue"] = json!(token);
        }
        body
    }
}

/// Returns the body of the answer to a deletion that succeeded immediately.
pub(crate) fn deleted(subject: &Subject<'_>, uid: &Value) -> Value {
    let mut details = subject.details();
    if let Some(uid) = uid.as_str() {
        details["uid"] = json!(uid);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
