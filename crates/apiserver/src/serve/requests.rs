//! Parts of HTTP requests.

use http::header;

/// Largest request body, in bytes.
pub(super) const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// Returns a header as text; empty when it is missing.
pub(super) fn text_header<'a>(
    parts: &'a http::request::Parts,
    name: &header::HeaderName,
) -> &'a str {
    let value = parts.headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
