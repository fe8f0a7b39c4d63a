//! Serves a Prometheus registry as text at `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// The content type of the `OpenMetrics` text format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns a router that serves all metrics of `registry` at `/metrics`. All metrics must be registered first: they are shared handles, but
/// the registry cannot change any more.
pub fn router(registry: Arc<Registry>) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state(registry)
}

async fn scrape(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn a_counter_is_served_with_its_total() {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("scans", "Scans", counter.clone());
        counter.inc();
        let request = Request::builder()
            .uri("/metrics")
            .body(Body::empty())
            .expect("request");
        let response = router(Arc::new(registry))
            .oneshot(request)
            .await
            .expect("answer");
        assert_eq!(response.headers()[header::CONTENT_TYPE], CONTENT_TYPE);
        let body = to_bytes(response.into_body(), 4096).await.expect("body");
        assert!(String::from_utf8_lossy(&body).contains("scans_total 1"));
    }
}
