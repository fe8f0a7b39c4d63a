//! Requests for paths that are not resources: health, version, discovery, OpenAPI.

use http::{Method, Response};

use super::answers::{Body, json_response, respond_with, text_body};
use super::shared::Shared;
use crate::access::authz::{self, Attributes};
use crate::access::identity::User;
use crate::failure::Failure;
use crate::registry::{Table, discovery, openapi};

/// Type of the second version of OpenAPI in protobuf, as clients ask for it, and as it is answered.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const PROTOBUF_ANSWER: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// That document without paths and definitions: version `2.0`, and `Kubernetes` with an empty version. kubectl asks for it where the third
/// version has no kind, as for a `List`, and checks nothing of a kind that it does not find; the server checks each object anyway.
const DOCUMENT: &[u8] = b"\x0a\x032.0\x12\x0e\x0a\x0aKubernetes\x12\x00\x42\x00";

/// Answers requests for OpenAPI documents: in JSON, those of the second version also in protobuf.
fn serve_openapi(table: &Table, path: &[&str], accept: &str) -> Result<Response<Body>, Failure> {
    if path == ["v2"] && accept.contains(PROTOBUF) {
        let body = text_body(DOCUMENT);
        return Ok(respond_with(200, PROTOBUF_ANSWER, body, &[]));
    }
    let reads_json = accept.is_empty()
        || accept
            .split(',')
            .any(|clause| clause.contains("json") || clause.contains("*/*"));
    if !reads_json {
        return Err(Failure::not_acceptable());
    }
    let document = match path {
        ["v2"] => Some(openapi::version_2(table)),
        ["v3"] => Some(openapi::index(table)),
        ["v3", part @ ..] => openapi::document(table, &part.join("/")),
        _ => None,
    };
    let document = document.ok_or_else(Failure::resource_not_found)?;
    Ok(json_response(200, &document, &[]))
}

/// Answers requests for paths that are not resources: health, version, discovery.
pub(super) fn serve_path(
    shared: &Shared,
    user: &User,
    method: &Method,
    path: &str,
    segments: &[&str],
    accept: &str,
) -> Result<Response<Body>, Failure> {
    let verb = method.as_str().to_lowercase();
    let state = shared.store.lock();
    let attributes = Attributes {
        verb: &verb,
        path,
        ..Attributes::default()
    };
    let allowed = authz::allows(&state, user, &attributes);
    shared.audit.add(user, &attributes, allowed);
    if !allowed {
        return Err(Failure::forbidden_path(&attributes.refusal(user)));
    }
    if let ["healthz" | "livez" | "readyz", ..] = segments {
        let body = text_body("ok");
        return Ok(respond_with(200, "text/plain; charset=utf-8", body, &[]));
    }
    match segments {
        [".well-known", "openid-configuration"] => {
            return Ok(json_response(200, &shared.users.accounts.discovery(), &[]));
        }
        ["openid", "v1", "jwks"] => {
            return Ok(respond_with(
                200,
                "application/jwk-set+json",
                text_body(shared.users.accounts.public_keys().to_string()),
                &[],
            ));
        }
        _ => {}
    }
    if segments == ["version"] {
        return Ok(json_response(200, &discovery::version(), &[]));
    }
    let table = shared.registry.table(&state);
    drop(state);
    if let ["openapi", rest @ ..] = segments {
        return serve_openapi(&table, rest, accept);
    }
    if let [part @ ("api" | "apis")] = segments
        && accept.contains("APIGroupDiscoveryList")
        && accept.contains("v=v2")
    {
        let body = text_body(discovery::aggregated(&table, part).to_string());
        return Ok(respond_with(
            200,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            body,
            &[],
        ));
    }
    let document =
        discovery::legacy(&table, segments, shared.address).ok_or_else(Failure::path_not_found)?;
    Ok(json_response(200, &document, &[]))
}
