//! Routes a request by its path: to a resource, to another path, or to the control of faults.

use std::sync::Arc;

use http::{Request as HttpRequest, Response, StatusCode, header};
use hyper::body::Incoming;

use super::answers::{Body, refusal, warn};
use super::faulty;
use super::paths::serve_path;
use super::requests::text_header;
use super::resources::{find, serve_resource};
use super::shared::Shared;
use crate::access::authn;
use crate::access::identity::User;
use crate::access::target::{Target, parse_query, unescape_path};
use crate::failure::Failure;
use crate::objects::selectors::required_name;

/// Answers a request; the error is its refusal.
pub(super) async fn respond(
    shared: &Arc<Shared>,
    certificate: Option<&User>,
    request: HttpRequest<Incoming>,
) -> Result<Response<Body>, Failure> {
    let identity =
        authn::authenticate(&shared.store, &shared.users, request.headers(), certificate)?;
    let path = request.uri().path().to_owned();
    let query = parse_query(request.uri().query().unwrap_or_default());
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(unescape_path)
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if let ["testing", rest @ ..] = segments.as_slice() {
        return faulty::testing(shared, &identity.user, request, rest).await;
    }
    let Some(target) = Target::parse(&segments) else {
        let (parts, _) = request.into_parts();
        let accept = text_header(&parts, &header::ACCEPT);
        return serve_path(
            shared,
            &identity.user,
            &parts.method,
            &path,
            &segments,
            accept,
        );
    };
    let verb = target.verb(request.method(), &query);
    let name = query
        .get("fieldSelector")
        .and_then(|text| required_name(text));
    let resource = find(shared, &identity, &target, verb, name, &query)?;
    // a subresource that does not exist is a path of nothing
    let exists =
        target.subresource.is_empty() || resource.subresource(target.subresource).is_some();
    let deprecation = resource.deprecation().filter(|_| exists).map(str::to_owned);
    let answered = serve_resource(shared, &identity, request, target, &query, verb, resource).await;
    let Some(warning) = deprecation else {
        return answered;
    };
    let mut response = answered.unwrap_or_else(|failure| refusal(&failure, &[]));
    if verb == "patch" && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        // no such patch: refused before anything of the resource is looked at
        return Ok(response);
    }
    // the deprecation comes before what the request is warned of
    let headers = response.headers_mut();
    let others: Vec<_> = headers.get_all(header::WARNING).iter().cloned().collect();
    headers.remove(header::WARNING);
    warn(headers, &[warning]);
    for other in others {
        headers.append(header::WARNING, other);
    }
    Ok(response)
}
