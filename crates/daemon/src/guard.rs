//! Authenticates and authorizes requests to a daemon's endpoints. The API server says which user a token belongs to (`TokenReview`) and
//! what that user may do (`SubjectAccessReview`). The Kubernetes components do this for all endpoints except health (scheduler.md 7.9).
//!
//! Here is what goes before a router; `reviews` asks the API server, and caches its answers for ten seconds. Client certificates are
//! ignored: a client that has only a certificate is anonymous.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::Client;

pub use self::reviews::Lifetimes;
use self::reviews::Reviews;

mod reviews;

/// Paths that everybody may read by default.
pub const OPEN_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Passes only requests that the sender is authorized for.
pub struct Guard {
    open: Vec<String>,
    reviews: Reviews,
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("Unauthorized")]
    Unknown,
    #[error("forbidden: User {user:?} cannot {verb} path {path:?}")]
    Forbidden {
        user: String,
        verb: String,
        path: String,
    },
    #[error("the API server did not answer the authorization request")]
    Unanswered(#[from] kube::Error),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unanswered(ref error) => {
                tracing::warn!(%error, "Authorization request failed");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        (code, format!("{self}\n")).into_response()
    }
}

impl Guard {
    /// Creates a guard. `authentication` asks who sends a request, `authorization` whether that user may. Everybody may read the `open`
    /// paths; a final `*` matches any suffix.
    pub fn new(
        authentication: Client,
        authorization: Client,
        lifetimes: Lifetimes,
        open: Vec<String>,
    ) -> Self {
        Self {
            open,
            reviews: Reviews::new(authentication, authorization, lifetimes),
        }
    }

    /// Puts the guard in front of a router.
    pub fn protect(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), check))
    }

    fn is_open(&self, path: &str) -> bool {
        self.open.iter().any(|open| match open.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => path == open,
        })
    }

    async fn authorize(&self, verb: &str, path: &str, token: Option<&str>) -> Result<(), Refusal> {
        if self.is_open(path) {
            return Ok(());
        }
        let user = match token {
            Some(token) => self.reviews.user(token).await?.ok_or(Refusal::Unknown)?,
            None => UserInfo {
                username: Some("system:anonymous".to_owned()),
                groups: Some(vec!["system:unauthenticated".to_owned()]),
                ..UserInfo::default()
            },
        };
        if self.reviews.is_allowed(&user, verb, path).await? {
            return Ok(());
        }
        Err(Refusal::Forbidden {
            user: user.username.unwrap_or_default(),
            verb: verb.to_owned(),
            path: path.to_owned(),
        })
    }
}

async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let verb = request.method().as_str().to_ascii_lowercase();
    let (path, token) = (request.uri().path().to_owned(), token(&request));
    match guard.authorize(&verb, &path, token.as_deref()).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Returns the bearer token of a request.
fn token(request: &Request) -> Option<String> {
    let value = request
        .headers()
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use axum::body::Body;
    use axum::routing::get;
    use kube::client::Body as KubeBody;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::reviews::MASTERS;
    use super::*;

    /// Returns a guarded router. Its API server knows the tokens `reader`, `other` and `master`, allows the user of the first to read
    /// `/metrics`, and counts its requests.
    fn guarded(asked: &Arc<AtomicUsize>) -> Router {
        guarded_for(asked, Lifetimes::default())
    }

    /// Like [`guarded`], with other lifetimes of the answers.
    fn guarded_for(asked: &Arc<AtomicUsize>, lifetimes: Lifetimes) -> Router {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: axum::http::Request<KubeBody>| {
            asked.fetch_add(1, Ordering::SeqCst);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect_bytes().await.expect("a body");
                let review: Value = serde_json::from_slice(&body).expect("JSON");
                let answer = answer(&path, review);
                let response = axum::http::Response::new(KubeBody::from(answer.into_bytes()));
                Ok::<_, Infallible>(response)
            }
        });
        let open = OPEN_PATHS.map(str::to_owned).to_vec();
        let client = Client::new(service, "default");
        Guard::new(client.clone(), client, lifetimes, open).protect(
            Router::new()
                .route("/metrics", get(|| async { "numbers" }))
                .route("/healthz", get(|| async { "ok" })),
        )
    }

    fn answer(path: &str, mut review: Value) -> String {
        if path.ends_with("tokenreviews") {
            let token = review["spec"]["token"].as_str().unwrap_or_default();
            let groups = if token == "master" {
                vec![MASTERS]
            } else {
                vec![]
            };
            let known = ["reader", "other", "master"].contains(&token);
            review["status"] = json!({
                "authenticated": known,
                "user": {"username": token, "groups": groups},
            });
        } else {
            let spec = &review["spec"];
            let about = &spec["nonResourceAttributes"];
            let allowed =
                spec["user"] == "reader" && *about == json!({"path": "/metrics", "verb": "get"});
            review["status"] = json!({"allowed": allowed});
        }
        review.to_string()
    }

    async fn ask(router: &Router, path: &str, authorization: Option<&str>) -> u16 {
        let mut request = Request::builder().uri(path);
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Body::empty()).expect("request");
        let response = router.clone().oneshot(request).await.expect("answer");
        response.status().as_u16()
    }

    #[rstest]
    #[case::reader("/metrics", Some("Bearer reader"), 200)]
    #[case::scheme_in_any_case("/metrics", Some("bearer  reader"), 200)]
    #[case::master("/metrics", Some("Bearer master"), 200)]
    #[case::somebody_else("/metrics", Some("Bearer other"), 403)]
    #[case::nobody("/metrics", None, 403)]
    #[case::wrong_token("/metrics", Some("Bearer guessed"), 401)]
    #[case::other_scheme("/metrics", Some("Basic reader"), 403)]
    #[case::health_is_for_everybody("/healthz", None, 200)]
    #[tokio::test]
    async fn only_who_may_is_let_through(
        #[case] path: &str,
        #[case] authorization: Option<&str>,
        #[case] status: u16,
    ) {
        let router = guarded(&Arc::default());
        assert_eq!(ask(&router, path, authorization).await, status);
    }

    #[tokio::test]
    async fn an_answer_holds_for_a_while_and_a_wrong_token_is_asked_about_each_time() {
        let asked = Arc::default();
        let router = guarded(&asked);
        for _ in 0..3 {
            assert_eq!(ask(&router, "/metrics", Some("Bearer reader")).await, 200);
        }
        assert_eq!(asked.swap(0, Ordering::SeqCst), 2);
        for _ in 0..3 {
            assert_eq!(ask(&router, "/metrics", Some("Bearer guessed")).await, 401);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn answers_that_are_not_kept_are_asked_for_each_time() {
        let asked = Arc::default();
        let forgotten = Lifetimes {
            refused: Duration::ZERO,
            ..Lifetimes::default()
        };
        let router = guarded_for(&asked, forgotten);
        for _ in 0..3 {
            assert_eq!(ask(&router, "/metrics", Some("Bearer other")).await, 403);
        }
        // the user is known after the first time
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn nobody_is_let_through_while_the_api_server_does_not_answer() {
        let service = tower::service_fn(|_: axum::http::Request<KubeBody>| async {
            let mut response = axum::http::Response::new(KubeBody::from(Vec::new()));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok::<_, Infallible>(response)
        });
        let client = Client::new(service, "default");
        let open = vec!["/open/*".to_owned()];
        let guard = Guard::new(client.clone(), client, Lifetimes::default(), open);
        let router = guard.protect(
            Router::new()
                .route("/metrics", get(|| async { "numbers" }))
                .route("/open/door", get(|| async { "in" })),
        );
        assert_eq!(ask(&router, "/metrics", Some("Bearer reader")).await, 500);
        assert_eq!(ask(&router, "/open/door", None).await, 200);
    }
}
