//! The parts of an API server that the exporter uses: objects by path, resource versions, merge patches, and failures on demand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

/// How long tests wait for an expected event. Longer than the exporter's 20 s limit for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const NRTS: &str = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies";

#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    /// All writes, with their paths.
    history: Vec<(String, Value)>,
    version: u64,
    /// Method and path of each request.
    log: Vec<String>,
    /// Failures to answer instead of real answers: method, status code.
    failures: VecDeque<(Method, u16)>,
    /// Whether all watches are refused.
    watches_refused: bool,
    /// Whether no request gets an answer.
    is_silent: bool,
    /// Queries of all watches.
    watches: Vec<String>,
    /// Namespaces and names of finished pods.
    finished: Vec<(String, String)>,
}

#[derive(Clone)]
pub(crate) struct ApiServer {
    store: Arc<Mutex<Store>>,
    changed: watch::Sender<u64>,
    /// Lines for all watches of pods.
    pods: broadcast::Sender<String>,
}

impl ApiServer {
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::default(),
            changed: watch::Sender::new(0),
            pods: broadcast::Sender::new(16),
        }
    }

    /// Returns a client that uses the server without a network.
    pub(crate) fn client(&self) -> kube::Client {
        kube::Client::new(self.router(), "default")
    }

    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(handle).with_state(self.clone())
    }

    /// Serves on a free port; returns the URL.
    pub(crate) async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = self.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    pub(crate) fn put(&self, path: &str, object: Value) {
        self.with(|store| store.write(path, object));
    }

    pub(crate) fn edit(&self, path: &str, patch: &Value) {
        self.with(|store| {
            let mut object = store.objects[path].clone();
            json_patch::merge(&mut object, patch);
            store.write(path, object);
        });
    }

    pub(crate) fn remove(&self, path: &str) {
        self.with(|store| store.objects.remove(path)).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.with(|store| store.objects.get(path).cloned())
    }

    /// Refuses all watches from now on.
    pub(crate) fn refuse_watches(&self) {
        self.with(|store| store.watches_refused = true);
    }

    /// Answers no request from now on.
    pub(crate) fn fall_silent(&self) {
        self.with(|store| store.is_silent = true);
    }

    /// Adds a pod to the answers of watches for finished pods.
    pub(crate) fn finish_pod(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.with(|store| store.finished.push(key));
    }

    /// Returns the queries of all watches so far.
    pub(crate) fn watches(&self) -> Vec<String> {
        self.with(|store| store.watches.clone())
    }

    /// Waits for a request.
    pub(crate) async fn wait_for_request(&self) {
        let mut changes = self.changed.subscribe();
        let received = async {
            while self.store.lock().unwrap().log.is_empty() {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, received).await.unwrap();
    }

    /// Refuses the next request with this method.
    pub(crate) fn refuse(&self, method: Method, code: u16) {
        self.with(|store| store.failures.push_back((method, code)));
    }

    /// Returns all writes to a path.
    pub(crate) fn history(&self, path: &str) -> Vec<Value> {
        let history = self.with(|store| store.history.clone());
        let of_path = history.into_iter().filter(|(written, _)| written == path);
        of_path.map(|(_, object)| object).collect()
    }

    /// Sends an event of some pod to the watches of pods; waits until there is a watch.
    pub(crate) async fn send_some_pod_event(&self) {
        let pod = json!({"kind": "Pod", "metadata": {"name": "p"}});
        self.send_pod_event(&pod).await;
    }

    /// Sends an event of this pod to the watches of pods; waits until there is a watch.
    pub(crate) async fn send_pod_event(&self, pod: &Value) {
        let line = json!({"type": "MODIFIED", "object": pod});
        let sent = testbed::eventually(PATIENCE, async || {
            let sent = self.pods.send(format!("{line}\n"));
            sent.map_err(|_| "no watch of pods".to_owned())
        });
        sent.await.unwrap();
    }

    /// Returns the body of a watch, which stays open until the client disconnects.
    fn watched_pods(&self) -> Body {
        let lines = futures::stream::unfold(self.pods.subscribe(), |mut lines| async {
            let line = lines.recv().await.ok()?;
            Some((Ok::<_, std::convert::Infallible>(line), lines))
        });
        Body::from_stream(lines)
    }

    /// Returns the body of a watch for finished pods.
    fn watched_finished(&self) -> Body {
        let lines: Vec<_> = self
            .with(|store| store.finished.clone())
            .into_iter()
            .map(|(namespace, name)| {
                let object = json!({"kind": "PartialObjectMetadata", "metadata": {"namespace": namespace, "name": name}});
                let line = json!({"type": "ADDED", "object": object});
                Ok::<_, std::convert::Infallible>(format!("{line}\n"))
            })
            .collect();
        Body::from_stream(futures::stream::iter(lines).chain(futures::stream::pending()))
    }

    /// Returns the requests since the last call, without the common prefix of NRT paths.
    pub(crate) fn requests(&self) -> Vec<String> {
        let log = self.with(|store| std::mem::take(&mut store.log));
        log.iter().map(|line| line.replace(NRTS, "")).collect()
    }

    /// Waits until the object at `path` exists and satisfies `what`.
    pub(crate) async fn wait_for(&self, path: &str, what: impl Fn(&Value) -> bool) -> Value {
        let mut changes = self.changed.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                if let Some(object) = self.get(path).filter(&what) {
                    return object;
                }
                changes.changed().await.unwrap();
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, found).await;
        outcome.unwrap_or_else(|_| panic!("{path} is {:#?}", self.get(path)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        let result = act(&mut self.store.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        result
    }
}

impl Store {
    fn write(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["managedFields"] = json!([{"manager": "test"}]);
        self.objects.insert(path.to_owned(), object.clone());
        self.history.push((path.to_owned(), object.clone()));
        object
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Result<Value, u16> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let object_path = path.strip_suffix("/status").unwrap_or(path);
        let is_list = path == "/api/v1/nodes";
        if is_list {
            let items: Vec<&Value> = self
                .objects
                .iter()
                .filter(|(key, _)| key.starts_with("/api/v1/nodes/"))
                .map(|(_, node)| node)
                .collect();
            return Ok(
                json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": items}),
            );
        }
        let present = self.objects.get(object_path).cloned();
        let conflict = |present: &Value| {
            let asked = &body["metadata"]["resourceVersion"];
            !asked.is_null() && *asked != present["metadata"]["resourceVersion"]
        };
        match (method.as_str(), present) {
            ("POST", _) => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if self.objects.contains_key(&path) {
                    return Err(409);
                }
                Ok(self.write(&path, body))
            }
            (_, None) => Err(404),
            ("GET", Some(present)) => Ok(present),
            ("PUT" | "PATCH", Some(present)) if conflict(&present) => Err(409),
            ("PUT", Some(_)) => Ok(self.write(object_path, body)),
            ("PATCH", Some(mut present)) => {
                json_patch::merge(&mut present, &body);
                Ok(self.write(object_path, present))
            }
            _ => Err(405),
        }
    }
}

async fn handle(State(server): State<ApiServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    let watches = parts
        .uri
        .query()
        .is_some_and(|query| query.contains("watch=true"));
    let query = parts.uri.query().unwrap_or_default().to_owned();
    let is_silent = server.with(|store| {
        store.log.push(format!("{method} {path}"));
        if watches {
            store.watches.push(query.clone());
        }
        store.is_silent
    });
    if is_silent {
        std::future::pending::<()>().await;
    }
    let answer = server.with(|store| {
        if watches && store.watches_refused {
            return Err(403);
        }
        match store
            .failures
            .iter()
            .position(|(refused, _)| *refused == method)
        {
            Some(i) => Err(store.failures.remove(i).unwrap().1),
            None => store.answer(&method, &path, &body),
        }
    });
    match answer {
        Ok(_) | Err(404) if watches && query.contains("status.phase") => {
            server.watched_finished().into_response()
        }
        _ if watches && path == "/api/v1/pods" && !matches!(answer, Err(403)) => {
            server.watched_pods().into_response()
        }
        Ok(object) => Json(object).into_response(),
        Err(code) => {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                "message": format!("refused with {code}"), "reason": "Test", "code": code,
            });
            (StatusCode::from_u16(code).unwrap(), Json(status)).into_response()
        }
    }
}
