//! Connections, who asks, and which part answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream;
use http::{Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::Shared;
use super::authz::{self, Attributes, User};
use super::discovery;
use super::failure::{Failure, Subject};
use super::registry::Resource;
use super::verbs::{Answer, Filter, Request};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Largest body that is read, in bytes.
const LARGEST_BODY: usize = 3 * 1024 * 1024;
/// How long a watch stays open when the client sets no limit.
const WATCH_FOR: Duration = Duration::from_mins(30);
/// Time between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

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

/// What a path of a resource names; parts that it does not name are empty.
struct Target<'a> {
    group: &'a str,
    version: &'a str,
    namespace: &'a str,
    plural: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> Target<'a> {
    fn parse(segments: &[&'a str]) -> Option<Self> {
        let (group, version, rest) = match segments {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", name, "status" | "finalize"] => (*name, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            ["namespaces", name] => (*name, rest),
            _ => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource, ..] => (*plural, *name, *subresource),
            [] => return None,
        };
        Some(Self {
            group,
            version,
            namespace,
            plural,
            name,
            subresource,
        })
    }

    fn verb(&self, method: &Method, query: &HashMap<String, String>) -> &'static str {
        let watching = query
            .get("watch")
            .is_some_and(|value| value == "true" || value == "1");
        match (method.as_str(), self.name.is_empty()) {
            ("GET", true) if watching => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => "",
        }
    }
}

fn parse_query(text: &str) -> HashMap<String, String> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(key), unescape(value))
        })
        .collect()
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (high, low) = (hex(rest.next()), hex(rest.next()));
                if let (Some(high), Some(low)) = (high, low) {
                    bytes.push((high * 16 + low) as u8);
                }
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An open watch.
struct Watch {
    shared: Arc<Shared>,
    newest: tokio::sync::watch::Receiver<u64>,
    resource: Arc<Resource>,
    namespace: String,
    filter: Filter,
    /// Version up to which everything was told.
    seen: u64,
    ready: std::collections::VecDeque<Value>,
    bookmarks: bool,
    ends: Instant,
    over: bool,
}

fn watch(
    shared: &Arc<Shared>,
    request: &Request<'_>,
    resource: Arc<Resource>,
) -> Result<Response<Body>, Failure> {
    let filter = request.filter()?;
    let parameter = |name: &str| request.query.get(name).map_or("", String::as_str);
    let state = shared.store.lock();
    let mut ready = std::collections::VecDeque::new();
    let bookmarks = parameter("allowWatchBookmarks") == "true";
    let streaming = parameter("sendInitialEvents") == "true";
    let from: u64 = match parameter("resourceVersion") {
        "" => 0,
        text => text.parse().map_err(|_| {
            Failure::bad_request(format!(
                "resourceVersion: Invalid value: {text:?}: invalid resource version"
            ))
        })?,
    };
    let seen = if from == 0 || streaming {
        for (_, object) in state.list(&resource.storage, request.namespace) {
            if filter.matches(object) {
                ready.push_back(json!({"type": "ADDED", "object": request.present(object)}));
            }
        }
        if streaming && bookmarks {
            let mut mark = bookmark(&resource, state.version());
            mark["object"]["metadata"]["annotations"] =
                json!({"k8s.io/initial-events-end": "true"});
            ready.push_back(mark);
        }
        state.version()
    } else {
        from
    };
    let seconds = parameter("timeoutSeconds")
        .parse()
        .ok()
        .filter(|seconds| *seconds > 0);
    let watch = Watch {
        shared: Arc::clone(shared),
        newest: shared.store.subscribe(),
        namespace: request.namespace.to_owned(),
        resource,
        filter,
        seen,
        ready,
        bookmarks,
        ends: Instant::now() + seconds.map_or(WATCH_FOR, Duration::from_secs),
        over: false,
    };
    drop(state);
    let body = StreamBody::new(frames(watch)).boxed_unsync();
    Ok(respond_with(200, "application/json", body, &[]))
}

fn bookmark(resource: &Resource, version: u64) -> Value {
    json!({"type": "BOOKMARK", "object": {
        "kind": resource.kind, "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": version.to_string()},
    }})
}

fn frames(watch: Watch) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((Ok(Frame::data(Bytes::from(format!("{event}\n")))), watch))
    })
}

impl Watch {
    async fn next(&mut self) -> Option<Value> {
        let mark = Instant::now() + BOOKMARK_EVERY;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.collect();
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                changed = self.newest.changed() => changed.ok()?,
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep_until(mark), if self.bookmarks => {
                    return Some(bookmark(&self.resource, self.seen));
                }
            }
        }
    }

    /// Takes over what happened since the last time.
    fn collect(&mut self) {
        self.newest.borrow_and_update();
        let shared = Arc::clone(&self.shared);
        let state = shared.store.lock();
        let Some(changes) = state.after(self.seen) else {
            let failure = Failure::expired(format!(
                "too old resource version: {} ({})",
                self.seen,
                state.compacted()
            ));
            self.ready
                .push_back(json!({"type": "ERROR", "object": failure.body()}));
            self.over = true;
            return;
        };
        for change in changes {
            self.seen = self.seen.max(change.version);
            let here = change.key.resource == self.resource.storage
                && (self.namespace.is_empty() || change.key.namespace == self.namespace);
            if !here {
                continue;
            }
            let was = change
                .before
                .as_ref()
                .is_some_and(|before| self.filter.matches(before));
            let is = !change.deleted && self.filter.matches(&change.object);
            let kind = match (was, is) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => continue,
            };
            let mut object = Value::clone(&change.object);
            object["apiVersion"] = json!(self.resource.api_version());
            object["kind"] = json!(self.resource.kind);
            self.ready
                .push_back(json!({"type": kind, "object": object}));
        }
        self.seen = self.seen.max(state.version());
    }
}
