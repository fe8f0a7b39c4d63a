//! The client against a server of a test, in virtual time where none is connected.

use std::collections::VecDeque;
use std::io::Write as _;

use http::{StatusCode, header};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, EvictParams, ListParams, PostParams, WatchParams};
use rstest::rstest;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

mod fuzz;

const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "https://one:6443"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}"#;

fn kubeconfig(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

#[tokio::test]
async fn a_given_url_replaces_that_of_the_kubeconfig() {
    let file = kubeconfig(KUBECONFIG);
    for (master, url) in [
        ("", "https://one:6443/"),
        ("https://two:1", "https://two:1/"),
    ] {
        let config = config_for(Some(file.path()), master).await.expect("valid");
        assert_eq!(config.cluster_url.to_string(), url);
        assert!(config.auth_info.token.is_some());
    }
    for wrong in ["two:1", "/path", "http://"] {
        let error = config_for(Some(file.path()), wrong).await.err();
        assert!(
            error.is_some_and(|error| error.to_string().contains(wrong)),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named_in_the_error() {
    let error = config(Some(Path::new("/nowhere/kubeconfig")))
        .await
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("cannot read kubeconfig /nowhere/kubeconfig")
    );
}

#[tokio::test]
async fn a_proxy_is_refused_by_its_name() {
    install_crypto_provider();
    let text = KUBECONFIG.replace(
        r#""server":"#,
        r#""proxy-url": "http://proxy.example:3128", "server":"#,
    );
    let error = client(Some(kubeconfig(&text).path())).await.err();
    assert!(error.is_some_and(|error| error.to_string().contains("http://proxy.example:3128")));
}

/// One answer of the test's API server.
#[derive(Clone)]
enum Answer {
    /// A status, and after how many seconds the client may come back.
    Status(u16, Option<u64>),
    /// The connection breaks.
    Broken,
    /// No answer, for ever.
    Silence,
}

/// A client of an API server that gives these answers, and 200 with an empty object afterwards. Returns with it what was asked, and when.
fn mk_client(answers: &[Answer], options: Options) -> (Client, Arc<Mutex<Vec<Instant>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    let seen = Arc::clone(&asked);
    let server = tower::service_fn(move |_: Request<Body>| {
        let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
        // as with a connection, nothing is sent before the future is polled
        async move {
            seen.lock().push(Instant::now());
            let answer = answers.lock().pop_front();
            let (code, wait) = match answer {
                None => (200, None),
                Some(Answer::Status(code, wait)) => (code, wait),
                Some(Answer::Broken) => return Err(BoxError::from("connection reset")),
                Some(Answer::Silence) => return std::future::pending().await,
            };
            let body = if code == 200 {
                r#"{"metadata": {"name": "a"}, "items": []}"#.to_owned()
            } else {
                format!(
                    r#"{{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": {code}}}"#
                )
            };
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).expect("a code");
            if let Some(wait) = wait {
                response
                    .headers_mut()
                    .insert(header::RETRY_AFTER, wait.into());
            }
            Ok::<_, BoxError>(response)
        }
    });
    let service = guarded(server, "api".to_owned(), options);
    (Client::new(service, "default"), asked)
}

#[derive(Clone, Copy)]
enum Call {
    Read,
    Write,
    Evict,
}

async fn send(client: Client, call: Call) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, "ns");
    match call {
        Call::Read => pods.get("a").await.map(drop),
        Call::Write => {
            let pod = Pod::default();
            pods.create(&PostParams::default(), &pod).await.map(drop)
        }
        Call::Evict => pods.evict("a", &EvictParams::default()).await.map(drop),
    }
}

use Answer::{Broken, Silence, Status};

#[rstest]
#[case::read_refused_for_now(Call::Read, Status(429, Some(1)), 2)]
#[case::read_of_a_busy_server(Call::Read, Status(503, None), 2)]
#[case::read_through_a_proxy(Call::Read, Status(504, None), 2)]
#[case::read_of_a_broken_connection(Call::Read, Broken, 2)]
#[case::read_refused_for_good(Call::Read, Status(403, None), 1)]
#[case::read_of_nothing(Call::Read, Status(404, None), 1)]
#[case::read_that_fails_inside(Call::Read, Status(500, None), 1)]
#[case::read_refused_for_long(Call::Read, Status(429, Some(3600)), 1)]
#[case::write_refused_unread(Call::Write, Status(429, Some(1)), 2)]
#[case::write_refused_at_a_start(Call::Write, Status(503, Some(1)), 2)]
#[case::write_that_may_be_committed(Call::Write, Status(504, None), 1)]
#[case::write_of_a_busy_server(Call::Write, Status(503, None), 1)]
#[case::write_of_a_broken_connection(Call::Write, Broken, 1)]
#[case::eviction_against_a_budget(Call::Evict, Status(429, Some(1)), 1)]
#[tokio::test(start_paused = true)]
async fn only_what_does_no_harm_is_sent_again(
    #[case] call: Call,
    #[case] first: Answer,
    #[case] sent: usize,
) {
    let (client, asked) = mk_client(&[first], Options::default());
    let result = send(client, call).await;
    assert_eq!(asked.lock().len(), sent);
    assert_eq!(result.is_ok(), sent == 2, "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_ever_and_the_server_names_the_pause() {
    let refused = vec![Status(503, Some(7)); 50];
    let (client, asked) = mk_client(&refused, Options::default());
    assert!(send(client, Call::Read).await.is_err());
    let asked = asked.lock();
    assert_eq!(asked.len(), 6);
    for pair in asked.windows(2) {
        assert_eq!((pair[1] - pair[0]).as_secs(), 7);
    }
}

#[tokio::test(start_paused = true)]
async fn repetitions_keep_to_the_rate_and_are_counted() {
    let options = Options {
        rate: Some(Bucket::new(0.1, 1)),
        ..Options::default()
    };
    let requests = options.requests.clone();
    let (client, asked) = mk_client(&[Broken, Broken], options);
    send(client, Call::Read).await.expect("answered");
    let asked = asked.lock();
    for pair in asked.windows(2) {
        assert!(
            (pair[1] - pair[0]).as_secs() >= 9,
            "{:?}",
            pair[1] - pair[0]
        );
    }
    assert_eq!(requests.repetitions("api".to_owned()).get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_send_again_by_itself() {
    let options = Options {
        retried_by_caller: true,
        ..Options::default()
    };
    let (client, asked) = mk_client(&[Status(429, Some(1))], options);
    assert!(send(client, Call::Read).await.is_err());
    assert_eq!(asked.lock().len(), 1);
}

#[rstest]
#[case::read(Call::Read)]
#[case::write(Call::Write)]
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_at_the_deadline(#[case] call: Call) {
    let (client, asked) = mk_client(&[Silence], Options::default());
    let before = Instant::now();
    let error = send(client, call).await.expect_err("no answer");
    assert_eq!(before.elapsed().as_secs(), deadline::ANSWER.as_secs());
    assert_eq!(asked.lock().len(), 1, "it is not sent again");
    let text = crate::log::chain(&error);
    assert!(text.contains("/api/v1/namespaces/ns/pods"), "{text}");
}

/// Starts a server that sends the head of an answer, and then nothing for ever.
async fn half_answering() -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_ok() {
                drop(stream.write_all(head).await);
            }
            open.push(stream);
        }
    });
    Config::new(url.parse().expect("a URL"))
}

#[tokio::test]
async fn the_body_of_an_answer_has_the_deadline_too() {
    let client = build(half_answering().await, Options::default()).expect("a client");
    let nodes: Api<Node> = Api::all(client);
    let params = ListParams::default();
    let listed = tokio::spawn(async move { nodes.list(&params).await });
    // lets the request through, then jumps to the deadline
    tokio::time::sleep(Duration::from_millis(300)).await;
    tokio::time::pause();
    tokio::time::advance(deadline::ANSWER + Duration::from_secs(1)).await;
    let error = listed.await.expect("joined").expect_err("no body");
    let text = crate::log::chain(&error);
    assert!(text.contains("within 65 s"), "{text}");
}

#[tokio::test]
async fn a_watch_ends_soon_after_its_own_time() {
    use futures::TryStreamExt as _;
    let client = build(half_answering().await, Options::default()).expect("a client");
    let nodes: Api<Node> = Api::all(client);
    let params = WatchParams::default().timeout(100);
    let watch = nodes.watch(&params, "0").await.expect("begun");
    let ended = tokio::spawn(async move {
        let mut watch = std::pin::pin!(watch);
        watch.try_next().await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(101)).await;
    tokio::task::yield_now().await;
    assert!(!ended.is_finished(), "the server may still end it");
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(ended.await.expect("joined").is_err());
}
