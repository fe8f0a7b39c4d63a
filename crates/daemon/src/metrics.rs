//! Serves a Prometheus registry as text at `/metrics`, and has the metrics that every daemon shares.
//!
//! `text` has the formats, `process` the metrics of the process, [`requests`] those of the client of the API server.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::process::Process;
use self::requests::Requests;

mod process;
pub mod requests;
mod text;

/// Metrics that every daemon shares, with the names of Go's and Kubernetes' libraries. Clones share the values.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Requests to the API server.
    pub requests: Requests,
    /// Leader election.
    pub leadership: Leadership,
}

impl Shared {
    /// Registers the metrics, and those of the process.
    pub fn register(&self, registry: &mut Registry) {
        self.requests.register(registry);
        registry.register(
            "leader_election_master_status",
            "1 if this process holds the lease, 0 if it waits for it",
            self.leadership.0.clone(),
        );
        registry.register_collector(Box::new(Process::just_started()));
    }
}

/// Whether this process holds a lease, by the name of the lease.
#[derive(Clone, Debug, Default)]
pub struct Leadership(Family<Lease, Gauge>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Lease {
    name: String,
}

impl Leadership {
    /// Sets whether the lease is held.
    pub(crate) fn set(&self, name: &str, held: bool) {
        let name = name.to_owned();
        let status = self.0.get_or_create(&Lease { name });
        status.set(i64::from(held));
    }

    /// Returns what is shown of a lease.
    #[cfg(test)]
    pub(crate) fn of(&self, name: &str) -> i64 {
        let name = name.to_owned();
        self.0.get_or_create(&Lease { name }).get()
    }
}

/// Returns a router that serves all metrics of `registry` at `/metrics`: in the OpenMetrics format to clients that ask for it, in the text
/// format to others. All metrics must be registered first: they are shared handles, but the registry cannot change any more.
pub fn router(registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state(registry)
}

async fn scrape(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, &registry) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    let accept = headers.get_all(header::ACCEPT).iter();
    let (kind, text) = if text::wants_open_metrics(accept.filter_map(|value| value.to_str().ok())) {
        (text::OPEN_METRICS, text)
    } else {
        (text::PLAIN, text::plain(&text))
    };
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use prometheus_client::metrics::counter::Counter;
    use rstest::rstest;
    use tower::ServiceExt as _;

    #[rstest]
    #[case::without_a_wish("", text::PLAIN, "# TYPE scans_total counter\nscans_total 1\n")]
    #[case::open_metrics(
        "application/openmetrics-text",
        text::OPEN_METRICS,
        "# TYPE scans counter\nscans_total 1\n# EOF\n"
    )]
    #[tokio::test]
    async fn the_format_is_the_one_that_the_client_accepts(
        #[case] accept: &str,
        #[case] kind: &str,
        #[case] end: &str,
    ) {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("scans", "Scans", counter.clone());
        counter.inc();
        let request = Request::builder()
            .uri("/metrics")
            .header(header::ACCEPT, accept)
            .body(Body::empty())
            .expect("request");
        let response = router(Arc::new(registry))
            .oneshot(request)
            .await
            .expect("answer");
        assert_eq!(response.headers()[header::CONTENT_TYPE], kind);
        let body = to_bytes(response.into_body(), 4096).await.expect("body");
        let text = String::from_utf8_lossy(&body);
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn shared_metrics_have_the_names_that_dashboards_know() {
        let (mut registry, shared) = (Registry::default(), Shared::default());
        shared.register(&mut registry);
        shared.leadership.set("lease", true);
        let mut text = String::new();
        encode(&mut text, &registry).expect("encodes");
        for beginning in [
            "leader_election_master_status{name=\"lease\"} 1\n",
            "process_start_time_seconds ",
        ] {
            assert!(text.contains(beginning), "{beginning} not in\n{text}");
        }
    }
}
