//! The configuration in effect, served as JSON at `/configz` as the Kubernetes components do.

use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

/// `/configz` with one configuration, under the name that its component gives it.
pub fn router(name: &str, configuration: &Value) -> Router {
    let body = json!({name: configuration});
    Router::new().route("/configz", get(move || async move { Json(body) }))
}
