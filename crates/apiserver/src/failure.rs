//! Refusals as the API reports them: `metav1.Status` with the wording that clients parse.

use serde_json::{Value, json};

mod cause;
mod objects;
mod requests;
mod server;

pub(crate) use self::cause::{Cause, NO_PATH};

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
    pub(crate) retry_after: Option<u32>,
    /// Whether the answer is plain text and not a status, as for paths that belong to no API.
    pub(crate) is_text: bool,
    /// What only few refusals have.
    special: Option<Box<Special>>,
    /// Whether the server retries the request for a short time before it refuses it.
    pub(crate) is_transient: bool,
    /// Warnings about the object that came before the refusal.
    pub(crate) warnings: Box<[String]>,
}

impl Failure {
    /// Makes a refusal without details.
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            retry_after: None,
            is_text: false,
            special: None,
            is_transient: false,
            warnings: Box::default(),
        }
    }

    /// Adds the warnings that came before.
    pub(crate) fn after(self, warnings: &[String]) -> Self {
        Self {
            warnings: warnings.into(),
            ..self
        }
    }

    /// Adds warnings that came before those that it has already.
    pub(crate) fn after_all(self, warnings: &[String]) -> Self {
        let all = [warnings, &self.warnings].concat();
        self.after(&all)
    }

    /// Adds details about a subject.
    fn about(mut self, subject: &Subject<'_>) -> Self {
        self.details = subject.details();
        self
    }

    /// Returns the body of the answer.
    pub(crate) fn body(&self) -> Value {
        if let Some(Special::Status(status)) = self.special.as_deref() {
            return status.clone();
        }
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
        if let Some(Special::Continue(token)) = self.special.as_deref() {
            body["metadata"]["continue"] = json!(token);
        }
        body
    }
}

/// What only few refusals have.
#[derive(Clone, Debug, PartialEq)]
enum Special {
    /// Continue token with which the client can resume the list anyway.
    Continue(String),
    /// The whole status, where a webhook has made it.
    Status(Value),
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

/// Returns the body of the answer to a deletion that succeeded immediately.
pub(crate) fn deleted(subject: &Subject<'_>, uid: &Value) -> Value {
    let mut details = subject.details();
    if let Some(uid) = uid.as_str() {
        details["uid"] = json!(uid);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
