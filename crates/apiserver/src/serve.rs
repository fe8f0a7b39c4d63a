//! Connections, authentication and routes of requests.

use std::collections::HashMap;
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

use crate::access::authn;
use crate::access::authz::{self, Attributes};
use crate::access::identity::{Identity, User};
use crate::failure::{Failure, Subject};
use crate::faults::{self, Effects, Outcome};
use crate::objects::selectors::required_name;
use crate::objects::views::View;
use crate::registry::{Resource, Table, discovery, openapi};
use crate::storage::{DEFINITIONS, State};
use crate::verbs::{Answer, Request, definitions, reviews};

mod faulty;
mod kubelet;
mod lists;
mod protobuf;
mod shared;
mod watch;

pub(crate) use self::shared::Shared;
use self::watch::watch;
use crate::access::target::Target;
use crate::access::target::{parse_query, unescape_path};

type Body = UnsyncBoxBody<Bytes, BodyError>;
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The connection ends before the answer is complete.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the connection was closed by a fault")]
struct ClosedByFault;

/// Largest request body, in bytes.
const LARGEST_BODY: usize = 3 * 1024 * 1024;
/// Warning about jobs, the one built-in kind whose dependents are orphaned by default.
const JOBS_ORPHAN: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";
/// How long a request waits for objects that controllers create.
const TRANSIENT_RETRY_LIMIT: Duration = Duration::from_secs(2);

/// Serves connections until the task is aborted, which also ends the connections.
pub(super) async fn accept(mut listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shared.faults.wait_until_down() => {
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
                tracing::warn!(%error, "Cannot accept a connection");
                // mostly because there are no free file descriptors; other connections have to close first
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
                .and_then(|chain| authn::user_of_certificate(chain.first()?));
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
) -> Result<Response<Body>, ClosedByFault> {
    let (parts, body) = request.into_parts();
    let user = || {
        authn::authenticate(&shared.store, &shared.users, &parts.headers, certificate)
            .map_or_else(|_| String::new(), |identity| identity.user.name)
    };
    let effects = match faults::apply_rules(&shared.faults, &parts, user).await {
        Outcome::Served(effects) => effects,
        Outcome::Refused(failure) => return Ok(refusal(&failure, &[])),
        Outcome::Busy(seconds) => return Ok(faulty::busy(seconds)),
        Outcome::Disconnected => return Err(ClosedByFault),
    };
    request = HttpRequest::from_parts(parts, body);
    request.extensions_mut().insert(Arc::clone(&effects));
    let response = respond(shared, certificate, request)
        .await
        .unwrap_or_else(|failure| refusal(&failure, &[]));
    if effects.answer_lost {
        return Err(ClosedByFault);
    }
    Ok(response)
}

fn refusal(failure: &Failure, warnings: &[String]) -> Response<Body> {
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

fn text_body(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn json_response(code: u16, body: &Value, warnings: &[String]) -> Response<Body> {
    let text = text_body(format!("{body}\n"));
    respond_with(code, "application/json", text, warnings)
}

fn warn(headers: &mut header::HeaderMap, warnings: &[String]) {
    for warning in warnings {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = header::HeaderValue::from_str(&format!("299 - \"{text}\"")) {
            headers.append(header::WARNING, value);
        }
    }
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
    warn(headers, warnings);
    response
}

async fn respond(
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
    let deprecation = resource.deprecation().map(str::to_owned);
    let answered = serve_resource(shared, &identity, request, target, &query, verb, resource).await;
    let Some(warning) = deprecation else {
        return answered;
    };
    let mut response = answered.unwrap_or_else(|failure| refusal(&failure, &[]));
    warn(response.headers_mut(), &[warning]);
    Ok(response)
}

/// Serves a request for a resource that exists and that the user may access.
async fn serve_resource(
    shared: &Arc<Shared>,
    identity: &Identity,
    request: HttpRequest<Incoming>,
    target: Target<'_>,
    query: &HashMap<String, String>,
    verb: &str,
    resource: Arc<Resource>,
) -> Result<Response<Body>, Failure> {
    let effects = request.extensions().get::<Arc<Effects>>().cloned();
    check_verb(&resource, &target, verb)?;
    if kubelet::answers(&target) {
        return kubelet::proxy(shared, request, &target).await;
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
        identity,
        disabled: &shared.disabled_admission,
        resource: &resource,
        subresource: target.subresource,
        // the namespace of a Namespace matters for authorization only
        namespace: if resource.namespaced {
            target.namespace
        } else {
            ""
        },
        name: target.name,
        query,
        body: &body,
        content_type,
        user_agent: text_header(&parts, &header::USER_AGENT),
        effects: effects.as_deref(),
    };
    let include = query.get("includeObject").map_or("", String::as_str);
    let accept = text_header(&parts, &header::ACCEPT);
    let view = negotiate(accept, include, &resource, verb)?;
    if verb == "watch" {
        return watch(shared, &request, Arc::clone(&resource), view);
    }
    if verb == "list"
        && view == View::Whole
        && !wants_yaml(accept)
        && !crate::objects::events::is_in_events_group(&resource)
    {
        let page = {
            let state = shared.store.lock();
            let past = request.past_state(&state);
            request.page(past.as_ref().unwrap_or(&state))?
        };
        let body = lists::body(resource, page);
        return Ok(respond_with(200, "application/json", body, &[]));
    }
    let request_warnings: Vec<String> = request_warning(&request, verb).into_iter().collect();
    let Answer {
        code,
        body,
        mut warnings,
    } = match perform(shared, verb, &request).await {
        Ok(answer) => answer,
        Err(failure) => return Ok(refusal(&failure, &request_warnings)),
    };
    warnings.extend(request_warnings);
    let body = view.of(&resource, body);
    if wants_yaml(accept)
        && let Ok(text) = serde_yaml::to_string(&body)
    {
        return Ok(respond_with(
            code,
            "application/yaml",
            text_body(text),
            &warnings,
        ));
    }
    Ok(json_response(code, &body, &warnings))
}

/// Returns whether YAML is the first supported format that a client accepts.
fn wants_yaml(accept: &str) -> bool {
    let first = accept.split(',').find(|clause| {
        ["application/json", "application/yaml", "*/*"]
            .iter()
            .any(|known| clause.trim().starts_with(known))
    });
    first.is_some_and(|clause| clause.trim().starts_with("application/yaml"))
}

/// Returns the view that a request asks for.
fn negotiate(
    accept: &str,
    include: &str,
    resource: &Resource,
    verb: &str,
) -> Result<View, Failure> {
    let is_custom = resource.custom.is_some();
    let view = View::negotiate(accept, include).filter(|_| is_custom || accept != "application/*");
    let Some(view) = view else {
        // for built-in kinds, the outer layer of a real server checks the media type only
        return Err(if is_custom || accept.contains("json") {
            Failure::not_acceptable_parameters()
        } else {
            Failure::not_acceptable()
        });
    };
    if view == View::Metadata && !accept.contains(',') {
        let of_list = accept.contains("PartialObjectMetadataList");
        if verb == "list" && !of_list {
            let (package, kind) = if is_custom {
                ("unstructured", "UnstructuredList")
            } else {
                let group = resource.group.split('.').next().unwrap_or_default();
                let package = if group.is_empty() { "core" } else { group };
                (package, resource.list_kind.as_str())
            };
            return Err(Failure::not_acceptable_because(&format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{package}.{kind})"
            )));
        }
        if verb == "get" && of_list {
            return Err(Failure::internal_without_reason("content is not a list"));
        }
    }
    Ok(view)
}

/// Returns the requested resource, if it exists and the user may access it.
fn find(
    shared: &Shared,
    identity: &Identity,
    target: &Target<'_>,
    verb: &str,
    selected_name: Option<&str>,
    query: &std::collections::HashMap<String, String>,
) -> Result<Arc<Resource>, Failure> {
    let state = shared.store.lock();
    let table = shared.registry.table(&state);
    let attributes = Attributes {
        verb,
        group: target.group,
        resource: target.plural,
        subresource: target.subresource,
        namespace: target.namespace,
        // a list selected by name counts as a request for one object, so that users who may read only that object can list it
        name: match selected_name {
            Some(name) if target.name.is_empty() => name,
            _ => target.name,
        },
        path: "",
        fields: query.get("fieldSelector").map_or("", String::as_str),
    };
    let decision = authz::decide(&state, &identity.user, &attributes);
    shared
        .audit
        .add(&identity.user, &attributes, decision.is_ok());
    if let Err(why) = decision {
        let subject = Subject {
            group: target.group,
            resource: target.plural,
            name: attributes.name,
        };
        let mut refusal = attributes.refusal(&identity.user);
        if !why.is_empty() {
            refusal = format!("{refusal}: {why}");
        }
        return Err(Failure::forbidden(&subject, &refusal));
    }
    let found = table
        .find(target.group, target.version, target.plural)
        .filter(|resource| {
            resource.namespaced || target.namespace.is_empty() || resource.plural == "namespaces"
        });
    found.cloned().ok_or_else(|| {
        if table.is_built_in(target.group) {
            Failure::resource_not_found()
        } else {
            Failure::path_not_found()
        }
    })
}

/// Returns the warning about a request, which is sent whatever its result is.
fn request_warning(request: &Request<'_>, verb: &str) -> Option<String> {
    let deletes = ["delete", "deletecollection"].contains(&verb);
    let jobs = request.resource.storage == "jobs.batch";
    (jobs && deletes && !request.has_propagation_policy()).then(|| JOBS_ORPHAN.to_owned())
}

/// Performs a request in one transaction. A transient failure is retried after each write, until a deadline.
async fn perform(shared: &Shared, verb: &str, request: &Request<'_>) -> Result<Answer, Failure> {
    let until = Instant::now() + TRANSIENT_RETRY_LIMIT;
    let mut newest = shared.store.subscribe();
    loop {
        let done = perform_once(shared, verb, request);
        match done {
            Err(failure) if failure.is_transient => {
                let changed = tokio::time::timeout_at(until, newest.changed()).await;
                if !matches!(changed, Ok(Ok(()))) {
                    return Err(failure);
                }
            }
            other => return other,
        }
    }
}

fn perform_once(shared: &Shared, verb: &str, request: &Request<'_>) -> Result<Answer, Failure> {
    if verb == "create" && reviews::is_review(&request.resource.storage) {
        return reviews::answer(&shared.store, &shared.users, request);
    }
    let options = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "",
    };
    if !options.is_empty() {
        request.check_write_options(options)?;
    }
    let state = &mut shared.store.lock();
    let answer = dispatch(shared, verb, request, state);
    let is_defined = request.resource.custom.is_some() || request.resource.storage == DEFINITIONS;
    if is_defined && answer.is_ok() && !["get", "list"].contains(&verb) {
        definitions::reconcile(state);
    }
    answer
}

fn dispatch(
    shared: &Shared,
    verb: &str,
    request: &Request<'_>,
    state: &mut State,
) -> Result<Answer, Failure> {
    let past = request.past_state(state);
    match (request.subresource, verb) {
        ("scale", "get") => request.get_scale(state),
        ("scale", "update") => request.replace_scale(state),
        ("scale", "patch") => request.patch_scale(state),
        ("binding", "create") => request.bind(state),
        ("", "create") if request.resource.storage == "bindings" => request.bind(state),
        ("eviction", "create") => request.evict(state),
        ("token", "create") => request.token(state, &shared.users.accounts),
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

/// Converts a body from protobuf to JSON.
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

/// Checks that the resource supports the verb and that the subresource exists.
fn check_verb(resource: &Resource, target: &Target<'_>, verb: &str) -> Result<(), Failure> {
    let is_custom = resource.custom.is_some();
    let subject = Subject {
        group: target.group,
        resource: target.plural,
        name: target.name,
    };
    let verbs = match target.subresource {
        "" => &resource.verbs,
        name => match resource.subresource(name) {
            Some(subresource) => &subresource.verbs,
            None if is_custom => return Err(Failure::not_found(&subject)),
            None => return Err(Failure::resource_not_found()),
        },
    };
    let is_everywhere = resource.namespaced && target.namespace.is_empty();
    let has_path = match verb {
        "list" | "watch" => true,
        // the path of a creation has no name, any other path has one
        "create" => {
            !is_everywhere
                && (is_custom || target.name.is_empty() || !target.subresource.is_empty())
        }
        "deletecollection" => !is_everywhere,
        _ => !is_everywhere && !target.name.is_empty(),
    };
    if verbs.iter().any(|known| known == verb) && has_path {
        Ok(())
    } else if is_custom && !target.subresource.is_empty() {
        Err(Failure::not_supported(&subject, verb))
    } else {
        Err(Failure::method_not_allowed())
    }
}

/// Answers requests for OpenAPI documents, in JSON only.
fn serve_openapi(table: &Table, path: &[&str], accept: &str) -> Result<Response<Body>, Failure> {
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
fn serve_path(
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
