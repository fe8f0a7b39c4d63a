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

/// Most letters of all warnings together; beyond, each is shortened, and those that then come too late are left out, as by a real server.
const MOST_LETTERS: usize = 4096;
/// Most letters of a warning that is shortened.
const SHORT: usize = 256;

/// Returns the warnings as they are sent: each once, and not too many.
fn sent(warnings: &[String]) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let once: Vec<&String> = warnings
        .iter()
        .filter(|warning| !warning.is_empty() && seen.insert(*warning))
        .collect();
    let letters = |text: &str| text.chars().count();
    let total: usize = once.iter().map(|warning| letters(warning)).sum();
    if total <= MOST_LETTERS {
        return once.into_iter().cloned().collect();
    }
    let mut written = 0;
    let short = once
        .into_iter()
        .map(|warning| -> String { warning.chars().take(SHORT).collect() });
    short
        .take_while(|warning| {
            let fits = written < MOST_LETTERS;
            written += letters(warning);
            fits
        })
        .collect()
}

/// Adds the warnings to the headers.
pub(super) fn warn(headers: &mut header::HeaderMap, warnings: &[String]) {
    for warning in sent(warnings) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_warnings_do_not_outgrow_the_headers_of_an_answer() {
        let few = ["a".to_owned(), "b".to_owned(), "a".to_owned()];
        assert_eq!(sent(&few), ["a", "b"]);
        let many: Vec<String> = (0..200)
            .map(|at| format!("{at}{}", "x".repeat(300)))
            .collect();
        let sent = sent(&many);
        assert_eq!(sent.len(), MOST_LETTERS / SHORT);
        assert!(sent.iter().all(|warning| warning.chars().count() == SHORT));
    }
}
