//! Connections, who asks, and which part answers.

use std::convert::Infallible;
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
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::authz::{self, Attributes, User};
use super::discovery;
use super::failure::{Failure, Subject};
use super::registry::Resource;
use super::verbs::{Answer, Request};

mod target;
mod watch;

use self::target::{Target, parse_query};
use self::watch::watch;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Largest body that is read, in bytes.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// Serves connections until it is aborted, which ends them as well.
pub(super) async fn accept(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
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
            let service = service_fn(|request| answer(&shared, request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "Connection ended");
            }
        });
    }
}

async fn answer(
    shared: &Arc<Shared>,
    request: HttpRequest<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(match respond(shared, request).await {
        Ok(response) => response,
        Err(failure) => {
            let mut response = json_response(failure.code, &failure.body(), &[]);
            if let Some(seconds) = failure.retry_after {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
    })
}

fn json_response(code: u16, body: &Value, warnings: &[String]) -> Response<Body> {
    let text = Bytes::from(format!("{body}\n"));
    respond_with(
        code,
        "application/json",
        Full::new(text).boxed_unsync(),
        warnings,
    )
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

fn authenticate(shared: &Shared, request: &HttpRequest<Incoming>) -> Result<User, Failure> {
    let Some(given) = request.headers().get(header::AUTHORIZATION) else {
        return Ok(User {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
        });
    };
    given
        .to_str()
        .ok()
        .and_then(|text| text.strip_prefix("Bearer "))
        .and_then(|token| shared.tokens.get(token))
        .cloned()
        .map(|mut user| {
            if !user
                .groups
                .iter()
                .any(|group| group == "system:authenticated")
            {
                user.groups.push("system:authenticated".into());
            }
            user
        })
        .ok_or_else(Failure::unauthorized)
}

async fn respond(
    shared: &Arc<Shared>,
    request: HttpRequest<Incoming>,
) -> Result<Response<Body>, Failure> {
    let user = authenticate(shared, &request)?;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let query = parse_query(parts.uri.query().unwrap_or_default());
    let segments: Vec<&str> = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let Some(target) = Target::parse(&segments) else {
        let accept = parts
            .headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok());
        return plain(
            shared,
            &user,
            &parts.method,
            &path,
            &segments,
            accept.unwrap_or_default(),
        );
    };
    let body = Limited::new(body, LARGEST_BODY)
        .collect()
        .await
        .map_err(|_| Failure::too_large())?
        .to_bytes();
    let content_type = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content_type = content_type
        .unwrap_or("application/json")
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    let resource = {
        let state = shared.store.lock();
        let table = shared.registry.table(&state);
        let found = table
            .find(target.group, target.version, target.plural)
            .cloned();
        found.ok_or_else(Failure::no_resource)
    };
    let verb = target.verb(&parts.method, &query);
    let asked = Attributes {
        verb,
        group: target.group,
        resource: target.plural,
        subresource: target.subresource,
        namespace: target.namespace,
        name: target.name,
        path: "",
    };
    if !authz::allows(&shared.store.lock(), &user, &asked) {
        let subject = Subject {
            group: target.group,
            resource: target.plural,
            name: target.name,
        };
        return Err(Failure::forbidden(&subject, &asked.refusal(&user)));
    }
    let resource = resource?;
    let request = Request {
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
    };
    check_verb(&resource, &target, verb)?;
    if verb == "watch" {
        return watch(shared, &request, Arc::clone(&resource));
    }
    let mut state = shared.store.lock();
    let Answer {
        code,
        body,
        warnings,
    } = match verb {
        "get" => request.get(&state),
        "list" => request.list(&state),
        "create" => request.create(&mut state),
        "update" => request.replace(&mut state),
        "patch" => request.patch(&mut state),
        "delete" => request.delete(&mut state),
        "deletecollection" => request.delete_collection(&mut state),
        _ => Err(Failure::method_not_allowed()),
    }?;
    Ok(json_response(code, &body, &warnings))
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
        "status" => {
            &resource
                .subresource("status")
                .ok_or_else(Failure::no_resource)?
                .verbs
        }
        _ => return Err(Failure::no_resource()),
    };
    // reviews are created, but nothing here answers them yet
    let answers = verbs.iter().any(|known| known == "get");
    if answers && verbs.iter().any(|known| known == verb) {
        Ok(())
    } else {
        Err(Failure::method_not_allowed())
    }
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
        let body = Full::new(Bytes::from_static(b"ok")).boxed_unsync();
        return Ok(respond_with(200, "text/plain; charset=utf-8", body, &[]));
    }
    if segments == ["version"] {
        return Ok(json_response(200, &discovery::version(), &[]));
    }
    let table = shared.registry.table(&state);
    if let [part @ ("api" | "apis")] = segments
        && accept.contains("APIGroupDiscoveryList")
        && accept.contains("v=v2")
    {
        let body =
            Full::new(Bytes::from(discovery::aggregated(&table, part).to_string())).boxed_unsync();
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
