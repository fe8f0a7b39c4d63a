//! Answers of the server as HTTP responses.

use http::{Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use serde_json::Value;

use crate::failure::Failure;

/// The body of an answer, which may be endless.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// Why a body ends early.
pub(super) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The connection ends before the answer is complete.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection was closed by a fault")]
pub(super) struct ClosedByFault;

/// Returns the answer to a refused request.
pub(super) fn refusal(failure: &Failure, warnings: &[String]) -> Response<Body> {
    if failure.is_text {
        let body = text_body(format!("{}\n", failure.message));
        return respond_with(failure.code, "text/plain; charset=utf-8", body, &[]);
    }
    let mut response = json_response(failure.code, &failure.body(), warnings);
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Makes a body of a text.
pub(super) fn text_body(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// Makes an answer of JSON.
pub(super) fn json_response(code: u16, body: &Value, warnings: &[String]) -> Response<Body> {
    let text = text_body(format!("{body}\n"));
    respond_with(code, "application/json", text, warnings)
}

/// Adds the warnings to the headers.
pub(super) fn warn(headers: &mut header::HeaderMap, warnings: &[String]) {
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            headers.append(header::WARNING, value);
        }
    }
}

/// Makes an answer.
pub(super) fn respond_with(
    code: u16,
    content_type: &'static str,
    body: Body,
    warnings: &[String],
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    warn(headers, warnings);
    response
}
