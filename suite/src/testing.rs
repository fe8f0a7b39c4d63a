//! An API server with prepared answers, for unit tests.

use std::sync::{Arc, Mutex};

use kube::Client;
use kube::client::Body;
use reports::event::{Event, Record};
use reports::stream::{Reader, Shared, Stream};
use serde_json::{Value, json};

/// The requests in their order: `GET /api/v1/nodes`.
pub(crate) type RequestLog = Arc<Mutex<Vec<String>>>;

/// Returns a client whose requests the function answers, with a status and a body.
pub(crate) fn client(
    answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
) -> (Client, RequestLog) {
    let requests = RequestLog::default();
    let answer = Arc::new(answer);
    let service = tower::service_fn({
        let requests = Arc::clone(&requests);
        move |request: http::Request<Body>| {
            let method = request.method().to_string();
            let path = request.uri().path().to_owned();
            requests
                .lock()
                .expect("nobody panics with it")
                .push(format!("{method} {path}"));
            let (status, body) = answer(&method, &path);
            let response = http::Response::builder()
                .status(status)
                .body(Body::from(body.to_string().into_bytes()));
            async move { response }
        }
    });
    (Client::new(service, "default"), requests)
}

/// Returns the answer of an API server that does not have the object.
pub(crate) fn not_found() -> (u16, Value) {
    (
        404,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}),
    )
}

/// Returns what a cluster answers to who asks for its platform: the API groups that it serves, and where its control plane is.
pub(crate) fn platform(path: &str, groups: &[&str], topology: &str) -> Value {
    if path != "/apis" {
        return json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
            "metadata": {"name": "cluster"}, "spec": {}, "status": {"controlPlaneTopology": topology},
        });
    }
    let groups = groups.iter().map(|group| {
        let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
        json!({"name": group, "versions": [version], "preferredVersion": version})
    });
    json!({"apiVersion": "v1", "kind": "APIGroupList", "groups": groups.collect::<Vec<_>>()})
}

/// The events of a stream.
#[derive(Debug, Default)]
pub(crate) struct Events(pub(crate) Vec<Event>);

impl Reader for Events {
    fn read(&mut self, record: &Record) {
        self.0.push(record.event.clone());
    }
}

/// Returns a stream and a collector of its events.
pub(crate) fn stream() -> (Stream, Shared<Events>) {
    let events = Shared::new(Events::default());
    (Stream::new(vec![Box::new(events.clone())]), events)
}
