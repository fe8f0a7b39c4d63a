//! Authenticates and authorizes requests to a daemon's endpoints. The API server says which user a token belongs to (`TokenReview`) and
//! what that user may do (`SubjectAccessReview`). The Kubernetes components do this for all endpoints except health (scheduler.md 7.9).
//!
//! Here is what goes before a router; `reviews` asks the API server, `answers` keeps what it said. Client certificates are ignored: a client
//! that has only a certificate is anonymous.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::{Client, Config};

pub use self::reviews::Lifetimes;
use self::reviews::Reviews;
use crate::client;
use crate::metrics::requests::Requests;
use crate::rate::Bucket;

mod answers;
mod reviews;

/// Paths that everybody may read by default.
pub const OPEN_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// Reviews per second that one daemon may cause, and how many of them at once after a pause. As the clients of Kubernetes' controllers.
const REVIEWS_PER_SECOND: f64 = 20.0;
const REVIEWS_AT_ONCE: u32 = 30;

/// Passes only requests that the sender is authorized for.
pub struct Guard {
    options: Options,
    reviews: Reviews,
}

/// Whom a guard asks about, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long answers of the API server stay valid.
    pub lifetimes: Lifetimes,
    /// Paths that everybody may read; a final `*` matches any suffix.
    pub open: Vec<String>,
    /// Whether a request without a token is one of the user `system:anonymous`, who may have rights. Otherwise it is refused.
    pub anonymous: bool,
}

/// As kube-scheduler.
impl Default for Options {
    fn default() -> Self {
        Self {
            lifetimes: Lifetimes::default(),
            open: OPEN_PATHS.map(str::to_owned).to_vec(),
            anonymous: true,
        }
    }
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
    Unanswered(#[from] reviews::Error),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let code = match self {
            Self::Unknown => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::Unanswered(ref error) => {
                tracing::warn!(error = %crate::log::chain(error), "Authorization request failed");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        (code, format!("{self}\n")).into_response()
    }
}

impl Guard {
    /// Creates a guard. `authentication` asks who sends a request, `authorization` whether that user may.
    pub fn new(authentication: Client, authorization: Client, options: Options) -> Self {
        let reviews = Reviews::new(authentication, authorization, options.lifetimes);
        Self { options, reviews }
    }

    /// Creates the guard of a controller's metrics, as controller-runtime's filter: whoever sends no token is refused. It has a client of its
    /// own, so that readers of metrics do not slow down the daemon's other requests; `requests` counts them.
    ///
    /// # Errors
    /// When the configuration makes no client.
    pub fn of_metrics(config: Config, requests: Requests) -> Result<Self, client::Error> {
        let options = client::Options {
            requests,
            rate: Some(Bucket::new(REVIEWS_PER_SECOND, REVIEWS_AT_ONCE)),
            retried_by_caller: false,
        };
        let client = client::build(config, options)?;
        let options = Options {
            lifetimes: Lifetimes::OF_CONTROLLERS,
            anonymous: false,
            ..Options::default()
        };
        Ok(Self::new(client.clone(), client, options))
    }

    /// Puts the guard in front of a router.
    pub fn protect(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), check))
    }

    fn is_open(&self, path: &str) -> bool {
        self.options
            .open
            .iter()
            .any(|open| match open.strip_suffix('*') {
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
            None if self.options.anonymous => UserInfo {
                username: Some("system:anonymous".to_owned()),
                groups: Some(vec!["system:unauthenticated".to_owned()]),
                ..UserInfo::default()
            },
            None => return Err(Refusal::Unknown),
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
mod tests;
