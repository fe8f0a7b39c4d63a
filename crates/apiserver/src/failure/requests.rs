//! Refusals of requests that the server cannot read or does not serve: paths, methods, media types, bodies.

use serde_json::json;

use super::{Failure, Subject};

impl Failure {
    /// Makes a 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
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

    /// Makes a 422 without fields.
    pub(crate) fn unprocessable(message: impl Into<String>) -> Self {
        let mut failure = Self::new(422, "Invalid", message);
        failure.details = json!({});
        failure
    }
}
