//! Serves the configuration in effect as JSON at `/configz`, like the Kubernetes components.

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

/// Returns a router that serves one configuration at `/configz`, under the name that its component gives it.
pub fn router(name: &str, configuration: &Value) -> Router {
    let body = json!({name: configuration});
    Router::new().route("/configz", get(move || async move { Json(body) }))
}
