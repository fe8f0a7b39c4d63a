//! Connections, who asks, and which part answers.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::authn::{self, Identity};
use super::authz::{self, Attributes, User};
use super::discovery;
use super::failure::{Failure, Subject};
use super::faults::{self, Effects, Met};
use super::openapi;
use super::protobuf;
use super::registry::{Resource, Table};
use super::reviews;
use super::verbs::{Answer, Request};
use super::views::View;

mod faulty;
mod kubelet;
mod target;
mod watch;

pub(crate) use self::target::{Target, is_watch, query};
use self::target::{parse_query, unescape_path};
use self::watch::watch;

type Body = UnsyncBoxBody<Bytes, BodyError>;
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The connection ends without the rest of an answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection was cut")]
struct Cut;

/// Largest body that is read, in bytes.
const LARGEST_BODY: usize = 3 * 1024 * 1024;
/// How long something is waited for that controllers are about to make.
const PASSES_WITHIN: Duration = Duration::from_secs(2);

/// Serves connections until it is aborted, which ends them as well.
pub(super) async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shared.faults.taken_down() => {
                match faulty::outage(listener, &mut connections, &shared).await {
                    Ok(again) => listener = again,
                    Err(error) => {
                        tracing::error!(%error, "Cannot listen again");
                        return;
                    }
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "Connection not accepted");
                // out of file descriptors, mostly: others have to close first
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (acceptor, shared) = (acceptor.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let stream = match acceptor.accept(stream).await {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::debug!(%error, "TLS handshake failed");
                    return;
                }
            };
            let certificate = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| authn::of_certificate(chain.first()?));
            let service = service_fn(|request| answer(&shared, certificate.as_ref(), request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "Connection ended");
            }
        });
    }
}

async fn answer(
    shared: &Arc<Shared>,
    certificate: Option<&User>,
    mut request: HttpRequest<Incoming>,
) -> Result<Response<Body>, Cut> {
    let (parts, body) = request.into_parts();
    let user = || {
        authn::authenticate(shared, &parts.headers, certificate)
            .map_or_else(|_| String::new(), |who| who.user.name)
    };
    let effects = match faults::meet(shared, &parts, user).await {
        Met::Served(effects) => effects,
        Met::Refused(failure) => return Ok(refusal(&failure)),
        Met::Busy(seconds) => return Ok(faulty::busy(seconds)),
        Met::Cut => return Err(Cut),
    };
    request = HttpRequest::from_parts(parts, body);
    request.extensions_mut().insert(Arc::clone(&effects));
    let response = respond(shared, certificate, request)
        .await
        .unwrap_or_else(|failure| refusal(&failure));
    if effects.answer_lost {
        return Err(Cut);
    }
    Ok(response)
}

fn refusal(failure: &Failure) -> Response<Body> {
    let mut response = json_response(failure.code, &failure.body(), &[]);
    if let Some(seconds) = failure.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn text_body(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn json_response(code: u16, body: &Value, warnings: &[String]) -> Response<Body> {
    let text = text_body(format!("{body}\n"));
    respond_with(code, "application/json", text, warnings)
}

fn respond_with(
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
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            headers.append(header::WARNING, value);
        }
    }
    response
}

async fn respond(
    shared: &Arc<Shared>,
    certificate: Option<&User>,
    request: HttpRequest<Incoming>,
) -> Result<Response<Body>, Failure> {
    let who = authn::authenticate(shared, request.headers(), certificate)?;
    let effects = request.extensions().get::<Arc<Effects>>().cloned();
    let path = request.uri().path().to_owned();
    let query = parse_query(request.uri().query().unwrap_or_default());
    let segments: Vec<String> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(unescape_path)
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    if let ["testing", rest @ ..] = segments.as_slice() {
        return faulty::testing(shared, &who.user, request, rest).await;
    }
    let Some(target) = Target::parse(&segments) else {
        let (parts, _) = request.into_parts();
        let accept = text_header(&parts, &header::ACCEPT);
        return plain(shared, &who.user, &parts.method, &path, &segments, accept);
    };
    let verb = target.verb(request.method(), &query);
    let resource = find(shared, &who, &target, verb)?;
    check_verb(&resource, &target, verb)?;
    if kubelet::answers(&target) {
        return kubelet::pass(shared, request, &target).await;
    }
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY)
        .collect()
        .await
        .map_err(|_| Failure::too_large())?
        .to_bytes();
    let content_type = match text_header(&parts, &header::CONTENT_TYPE) {
        "" => "application/json",
        text => text.split(';').next().unwrap_or_default().trim(),
    };
    let (content_type, body) = match content_type {
        "application/vnd.kubernetes.protobuf" if resource.custom.is_none() => {
            ("application/json", read_protobuf(body)?)
        }
        other => (other, body),
    };
    let request = Request {
        who: &who,
        disabled: &shared.disabled_admission,
        resource: &resource,
        subresource: target.subresource,
        // the namespace of a Namespace is a matter of authorization only
        namespace: if resource.namespaced {
            target.namespace
        } else {
            ""
        },
        name: target.name,
        query: &query,
        body: &body,
        content_type,
        user_agent: text_header(&parts, &header::USER_AGENT),
        effects: effects.as_deref(),
    };
    let include = query.get("includeObject").map_or("", String::as_str);
    let view = View::negotiate(text_header(&parts, &header::ACCEPT), include)
        .ok_or_else(Failure::not_acceptable)?;
    if verb == "watch" {
        return watch(shared, &request, Arc::clone(&resource), view);
    }
    let Answer {
        code,
        body,
        warnings,
    } = perform(shared, verb, &request).await?;
    Ok(json_response(code, &view.of(&resource, body), &warnings))
}

/// The resource that is asked for, when it may be.
fn find(
    shared: &Shared,
    who: &Identity,
    target: &Target<'_>,
    verb: &str,
) -> Result<Arc<Resource>, Failure> {
    let state = shared.store.lock();
    let table = shared.registry.table(&state);
    let asked = Attributes {
        verb,
        group: target.group,
        resource: target.plural,
        subresource: target.subresource,
        namespace: target.namespace,
        name: target.name,
        path: "",
    };
    if !authz::allows(&state, &who.user, &asked) {
        let subject = Subject {
            group: target.group,
            resource: target.plural,
            name: target.name,
        };
        return Err(Failure::forbidden(&subject, &asked.refusal(&who.user)));
    }
    table
        .find(target.group, target.version, target.plural)
        .cloned()
        .ok_or_else(Failure::no_resource)
}

/// Does it in one transaction; what may pass soon is tried again whenever something changed.
async fn perform(shared: &Shared, verb: &str, request: &Request<'_>) -> Result<Answer, Failure> {
    let until = Instant::now() + PASSES_WITHIN;
    let mut newest = shared.store.subscribe();
    loop {
        let done = once(shared, verb, request);
        match done {
            Err(failure) if failure.may_pass_soon => {
                let changed = tokio::time::timeout_at(until, newest.changed()).await;
                if !matches!(changed, Ok(Ok(()))) {
                    return Err(failure);
                }
            }
            other => return other,
        }
    }
}

fn once(shared: &Shared, verb: &str, request: &Request<'_>) -> Result<Answer, Failure> {
    if verb == "create" && reviews::is_review(&request.resource.storage) {
        return reviews::answer(shared, request);
    }
    let state = &mut shared.store.lock();
    let past = request.past(state);
    match (request.subresource, verb) {
        ("scale", "get") => request.get_scale(state),
        ("scale", "update") => request.replace_scale(state),
        ("scale", "patch") => request.patch_scale(state),
        ("binding", "create") => request.bind(state),
        ("", "create") if request.resource.storage == "bindings" => request.bind(state),
        ("eviction", "create") => request.evict(state),
        ("token", "create") => request.token(state, &shared.accounts),
        (_, "get") => request.get(past.as_ref().unwrap_or(state)),
        (_, "list") => request.list(past.as_ref().unwrap_or(state)),
        ("", "create") => request.create(state),
        (_, "update") => request.replace(state),
        (_, "patch") => request.patch(state),
        (_, "delete") => request.delete(state),
        (_, "deletecollection") => request.delete_collection(state),
        _ => Err(Failure::method_not_allowed()),
    }
}

/// A body in protobuf as JSON.
fn read_protobuf(body: Bytes) -> Result<Bytes, Failure> {
    if body.is_empty() {
        return Ok(body);
    }
    let object =
        protobuf::decode(&body).map_err(|error| Failure::bad_request(error.to_string()))?;
    Ok(Bytes::from(object.to_string()))
}

fn text_header<'a>(parts: &'a http::request::Parts, name: &header::HeaderName) -> &'a str {
    let value = parts.headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Whether the resource has the verb, and the server the subresource.
fn check_verb(resource: &Resource, target: &Target<'_>, verb: &str) -> Result<(), Failure> {
    let verbs = match target.subresource {
        "" => &resource.verbs,
        name => {
            &resource
                .subresource(name)
                .ok_or_else(Failure::no_resource)?
                .verbs
        }
    };
    if verbs.iter().any(|known| known == verb) {
        Ok(())
    } else {
        Err(Failure::method_not_allowed())
    }
}

/// OpenAPI documents, in JSON only.
fn describe(table: &Table, path: &[&str], accept: &str) -> Result<Response<Body>, Failure> {
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
    let document = document.ok_or_else(Failure::no_resource)?;
    Ok(json_response(200, &document, &[]))
}

/// What is no resource: health, version, discovery.
fn plain(
    shared: &Shared,
    user: &User,
    method: &Method,
    path: &str,
    segments: &[&str],
    accept: &str,
) -> Result<Response<Body>, Failure> {
    let verb = method.as_str().to_lowercase();
    let state = shared.store.lock();
    let asked = Attributes {
        verb: &verb,
        path,
        ..Attributes::default()
    };
    if !authz::allows(&state, user, &asked) {
        return Err(Failure::forbidden_path(&asked.refusal(user)));
    }
    if let ["healthz" | "livez" | "readyz", ..] = segments {
        let body = text_body("ok");
        return Ok(respond_with(200, "text/plain; charset=utf-8", body, &[]));
    }
    if segments == ["version"] {
        return Ok(json_response(200, &discovery::version(), &[]));
    }
    let table = shared.registry.table(&state);
    drop(state);
    if let ["openapi", rest @ ..] = segments {
        return describe(&table, rest, accept);
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
    let document = discovery::legacy(&table, segments).ok_or_else(Failure::no_resource)?;
    Ok(json_response(200, &document, &[]))
}
