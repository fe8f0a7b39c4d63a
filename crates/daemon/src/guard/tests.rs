use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use futures::future::join_all;
use kube::client::Body as KubeBody;
use rstest::rstest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::reviews::{DEADLINE, MASTERS, MOST_REVIEWS};
use super::*;

/// As [`Guard::of_metrics`], without a client.
fn of_metrics() -> Options {
    Options {
        lifetimes: Lifetimes::OF_CONTROLLERS,
        anonymous: false,
        ..Options::default()
    }
}

/// Returns a guarded router. Its API server knows the tokens `reader`, `other` and `master`, allows the user of the first to read
/// `/metrics`, never answers about tokens that begin with `slow`, and counts its requests.
fn guarded(asked: &Arc<AtomicUsize>, options: Options) -> Router {
    let asked = Arc::clone(asked);
    let service = tower::service_fn(move |request: axum::http::Request<KubeBody>| {
        asked.fetch_add(1, Ordering::SeqCst);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.expect("a body");
            let review: Value = serde_json::from_slice(&body).expect("JSON");
            let token = review["spec"]["token"].as_str().unwrap_or_default();
            if token.starts_with("slow") {
                std::future::pending::<()>().await;
            }
            // others get their turn while the answer is on its way
            tokio::task::yield_now().await;
            let answer = answer(&path, review);
            let response = axum::http::Response::new(KubeBody::from(answer.into_bytes()));
            Ok::<_, Infallible>(response)
        }
    });
    let client = Client::new(service, "default");
    Guard::new(client.clone(), client, options).protect(
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
    let router = guarded(&Arc::default(), Options::default());
    assert_eq!(ask(&router, path, authorization).await, status);
}

#[rstest]
#[case::reader("/metrics", Some("Bearer reader"), 200, 2)]
#[case::somebody_else("/metrics", Some("Bearer other"), 403, 2)]
#[case::wrong_token("/metrics", Some("Bearer guessed"), 401, 1)]
#[case::nobody("/metrics", None, 401, 0)]
#[case::health_is_for_everybody("/healthz", None, 200, 0)]
#[tokio::test]
async fn without_anonymous_users_a_request_without_a_token_is_refused_and_costs_no_review(
    #[case] path: &str,
    #[case] authorization: Option<&str>,
    #[case] status: u16,
    #[case] reviews: usize,
) {
    let asked = Arc::default();
    let router = guarded(&asked, of_metrics());
    assert_eq!(ask(&router, path, authorization).await, status);
    assert_eq!(asked.load(Ordering::SeqCst), reviews);
}

#[rstest]
#[case::known("Bearer reader", 200, 2)]
#[case::wrong("Bearer guessed", 401, 1)]
#[tokio::test]
async fn a_thousand_requests_with_one_token_cost_as_many_reviews_as_one(
    #[case] authorization: &str,
    #[case] status: u16,
    #[case] reviews: usize,
) {
    let asked = Arc::default();
    let router = guarded(&asked, of_metrics());
    let all = (0..1000).map(|_| ask(&router, "/metrics", Some(authorization)));
    let answers = join_all(all).await;
    assert!(answers.iter().all(|answer| *answer == status));
    assert_eq!(asked.load(Ordering::SeqCst), reviews);
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_answer_holds_for_its_own_time() {
    let asked = Arc::default();
    let router = guarded(&asked, of_metrics());
    let lifetimes = Lifetimes::OF_CONTROLLERS;
    let second = Duration::from_secs(1);
    for (token, first, lifetime, again) in [
        // the right is still known when the user is asked about again
        ("Bearer reader", 2, lifetimes.user, 1),
        ("Bearer other", 2, lifetimes.refused, 1),
        ("Bearer guessed", 1, lifetimes.nobody, 1),
    ] {
        ask(&router, "/metrics", Some(token)).await;
        assert_eq!(asked.swap(0, Ordering::SeqCst), first, "{token}");
        tokio::time::advance(lifetime.saturating_sub(second)).await;
        ask(&router, "/metrics", Some(token)).await;
        assert_eq!(asked.swap(0, Ordering::SeqCst), 0, "{token}");
        tokio::time::advance(second).await;
        ask(&router, "/metrics", Some(token)).await;
        assert_eq!(asked.swap(0, Ordering::SeqCst), again, "{token}");
    }
}

#[tokio::test]
async fn answers_that_are_not_kept_are_asked_for_each_time() {
    let asked = Arc::default();
    let forgotten = Options {
        lifetimes: Lifetimes {
            refused: Duration::ZERO,
            ..Lifetimes::default()
        },
        ..Options::default()
    };
    let router = guarded(&asked, forgotten);
    for _ in 0..3 {
        assert_eq!(ask(&router, "/metrics", Some("Bearer other")).await, 403);
    }
    // the user is known after the first time
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_hangs_holds_up_only_those_whom_it_has_not_answered() {
    let asked = Arc::default();
    let router = guarded(&asked, of_metrics());
    assert_eq!(ask(&router, "/metrics", Some("Bearer reader")).await, 200);
    asked.store(0, Ordering::SeqCst);
    let tokens: Vec<String> = (0..3 * MOST_REVIEWS)
        .map(|number| format!("Bearer slow-{number}"))
        .collect();
    let slow = join_all(
        tokens
            .iter()
            .map(|token| ask(&router, "/metrics", Some(token))),
    );
    let others = async {
        // so that the slow ones are on their way
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(
            asked.load(Ordering::SeqCst),
            MOST_REVIEWS,
            "reviews at the same time"
        );
        let now = tokio::time::Instant::now();
        assert_eq!(ask(&router, "/metrics", Some("Bearer reader")).await, 200);
        assert_eq!(ask(&router, "/healthz", None).await, 200);
        assert_eq!(ask(&router, "/metrics", None).await, 401);
        assert_eq!(now.elapsed(), Duration::ZERO);
        now
    };
    let (slow, begun) = tokio::join!(slow, others);
    assert!(slow.iter().all(|status| *status == 500), "{slow:?}");
    assert!(begun.elapsed() < DEADLINE, "all have given up in time");
}

#[tokio::test]
async fn nobody_is_let_through_while_the_api_server_does_not_answer() {
    let service = tower::service_fn(|_: axum::http::Request<KubeBody>| async {
        let mut response = axum::http::Response::new(KubeBody::from(Vec::new()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    let client = Client::new(service, "default");
    let options = Options {
        open: vec!["/open/*".to_owned()],
        ..Options::default()
    };
    let guard = Guard::new(client.clone(), client, options);
    let router = guard.protect(
        Router::new()
            .route("/metrics", get(|| async { "numbers" }))
            .route("/open/door", get(|| async { "in" })),
    );
    assert_eq!(ask(&router, "/metrics", Some("Bearer reader")).await, 500);
    assert_eq!(ask(&router, "/open/door", None).await, 200);
}
