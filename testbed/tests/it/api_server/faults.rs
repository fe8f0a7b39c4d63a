//! Tests of faults with kube-rs: how a client sees each of them, and that clients recover.

use std::time::Duration;

use apiserver::faults::{Fault, Rule, Selector, WatchEnd};
use apiserver::{Options, Running, Server};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::clients::{client, code, config_map};

const TIMEOUT: Duration = Duration::from_mins(1);

fn config_maps() -> Selector {
    Selector::resource("", "configmaps")
}

/// Returns the configuration of the administrator's client, without retries, so that it shows every refusal.
async fn kubeconfig(server: &Running) -> Config {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token));
    let mut config = Config::from_custom_kubeconfig(
        kubeconfig.unwrap(),
        &kube::config::KubeConfigOptions::default(),
    )
    .await
    .unwrap();
    config.default_retry = false;
    config
}

async fn start() -> (Running, Api<ConfigMap>) {
    let server = Server::start(Options::default()).await.unwrap();
    let client = Client::try_from(kubeconfig(&server).await).unwrap();
    let api = Api::namespaced(client, "default");
    (server, api)
}

async fn create(api: &Api<ConfigMap>, name: &str) {
    api.create(&PostParams::default(), &config_map(name))
        .await
        .unwrap();
}

/// Returns the names in a watcher's events, in order. The watcher recovers from errors.
fn names(api: &Api<ConfigMap>) -> impl futures::Stream<Item = String> + Unpin + use<> {
    let config = watcher::Config::default();
    watcher(api.clone(), config)
        .default_backoff()
        .applied_objects()
        .filter_map(async |object| object.ok()?.metadata.name)
        .boxed()
}

async fn next(names: &mut (impl futures::Stream<Item = String> + Unpin), wanted: &str) {
    let found = async { while names.next().await.unwrap() != wanted {} };
    tokio::time::timeout(TIMEOUT, found).await.unwrap();
}

/// Waits until a watcher has finished its list and watches.
async fn follow(api: &Api<ConfigMap>, names: &mut (impl futures::Stream<Item = String> + Unpin)) {
    for name in ["listed", "watched"] {
        create(api, name).await;
        next(names, name).await;
    }
}

#[tokio::test]
async fn refusals_carry_the_codes_and_go_with_their_rule() {
    let (server, api) = start().await;
    let faults = server.faults();
    for (fault, expected) in [
        (Fault::Conflict, 409),
        (Fault::Expired, 410),
        (Fault::InternalError, 500),
        (Fault::Unavailable, 503),
    ] {
        let id = faults.add(Rule::new(config_maps().verbs(&["list"]), fault).times(1));
        let refused = api.list(&ListParams::default()).await.unwrap_err();
        assert_eq!(code(&refused), expected, "{refused:?}");
        api.list(&ListParams::default()).await.unwrap();
        let status = faults.remove(id).unwrap();
        assert_eq!((status.seen, status.hits), (2, 1));
    }
    let id = faults.add(Rule::new(config_maps(), Fault::InternalError));
    api.list(&ListParams::default()).await.unwrap_err();
    faults.remove(id).unwrap();
    api.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_busy_server_says_when_to_come_back_in_plain_text() {
    let (server, _) = start().await;
    let busy = Fault::TooManyRequests {
        retry_after_seconds: 7,
    };
    server.faults().add(Rule::new(Selector::default(), busy));
    let config = kubeconfig(&server).await;
    let service = kube::client::ClientBuilder::try_from(config)
        .unwrap()
        .build();
    let request = http::Request::get("/version").body(kube::client::Body::empty());
    let answer = service.send(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "7");
    assert_eq!(
        answer.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
}

#[tokio::test]
async fn clients_that_try_again_get_over_a_server_that_is_not_ready() {
    let (server, _) = start().await;
    let api: Api<ConfigMap> =
        Api::namespaced(client(&server, &server.admin_token).await, "default");
    let id = server
        .faults()
        .add(Rule::new(config_maps(), Fault::Unavailable).times(2));
    create(&api, "one").await;
    assert_eq!(server.faults().hits(id), 2);
}

#[tokio::test]
async fn a_rule_strikes_only_the_user_agent_that_it_names() {
    let (server, api) = start().await;
    let mut config = kubeconfig(&server).await;
    config.headers.push((
        http::header::USER_AGENT,
        "kube-scheduler/1.2".parse().unwrap(),
    ));
    let scheduler: Api<ConfigMap> = Api::namespaced(Client::try_from(config).unwrap(), "default");
    let select = Selector {
        user_agent: Some("kube-scheduler*".into()),
        user: Some("admin".into()),
        ..config_maps()
    };
    server.faults().add(Rule::new(select, Fault::Unavailable));
    api.list(&ListParams::default()).await.unwrap();
    let refused = scheduler.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), 503);
}

#[tokio::test]
async fn a_hanging_request_ends_with_504_after_its_time_or_with_its_rule() {
    let (server, api) = start().await;
    let faults = server.faults();
    let short = Fault::Hang {
        milliseconds: 1.try_into().ok(),
    };
    let id = faults.add(Rule::new(config_maps(), short));
    assert_eq!(code(&api.get("one").await.unwrap_err()), 504);
    faults.remove(id);

    let endless = Rule::new(config_maps(), Fault::Hang { milliseconds: None });
    let id = faults.add(endless);
    let waiting = tokio::spawn(async move { api.get("one").await });
    let struck = tokio::time::timeout(TIMEOUT, faults.wait_for_hits(id, 1)).await;
    struck.unwrap();
    assert!(!waiting.is_finished());
    faults.remove(id);
    let ended = tokio::time::timeout(TIMEOUT, waiting).await;
    assert_eq!(code(&ended.unwrap().unwrap().unwrap_err()), 504);
}

#[tokio::test]
async fn a_delayed_request_is_served() {
    let (server, api) = start().await;
    create(&api, "one").await;
    let delay = Fault::Delay { milliseconds: 30 };
    server.faults().add(Rule::new(config_maps(), delay));
    let started = std::time::Instant::now();
    api.get("one").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(30));
}

#[tokio::test]
async fn a_cut_connection_does_nothing_and_a_lost_or_late_answer_was_done() {
    let (server, api) = start().await;
    let faults = server.faults();
    let creations = || config_maps().verbs(&["create"]);
    for (fault, name, answer, done) in [
        (Fault::Disconnect, "cut", 0, false),
        (Fault::LoseAnswer, "lost", 0, true),
        (Fault::TimeOutAfterCommit, "late", 504, true),
    ] {
        let id = faults.add(Rule::new(creations(), fault));
        let refused = api.create(&PostParams::default(), &config_map(name)).await;
        assert_eq!(code(&refused.unwrap_err()), answer, "{name}");
        faults.remove(id);
        assert_eq!(api.get_opt(name).await.unwrap().is_some(), done, "{name}");
    }
}

#[rstest::rstest]
#[case::closed(WatchEnd::Closed)]
#[case::broken(WatchEnd::Broken)]
#[case::expired(WatchEnd::Expired)]
#[tokio::test]
async fn a_watcher_misses_nothing_when_its_watch_ends(#[case] how: WatchEnd) {
    let (server, api) = start().await;
    let faults = server.faults();
    let mut names = names(&api);
    follow(&api, &mut names).await;

    // the watcher cannot reconnect while the next object is created, so it has to catch up
    let watches = config_maps().verbs(&["watch"]);
    let gate = faults.add(Rule::new(
        config_maps().verbs(&["list", "watch"]),
        Fault::Unavailable,
    ));
    assert_eq!(faults.open_watches(&watches), 1);
    assert_eq!(faults.end_watches(&watches, how), 1);
    let seen = async {
        // the stream must be polled, otherwise the watcher notices nothing
        while faults.hits(gate) == 0 {
            tokio::select! {
                name = names.next() => assert_ne!(name.unwrap(), "between"),
                () = faults.wait_for_hits(gate, 1) => {}
            }
        }
    };
    tokio::time::timeout(TIMEOUT, seen).await.unwrap();
    create(&api, "between").await;
    faults.remove(gate);
    next(&mut names, "between").await;
    drop(names);
}

#[tokio::test]
async fn watches_end_after_the_events_that_the_rule_lets_through() {
    let (server, api) = start().await;
    let end = Fault::EndWatch {
        after_events: 2,
        how: WatchEnd::Broken,
    };
    let id = server.faults().add(Rule::new(config_maps(), end).times(1));
    let events = api
        .watch(&kube::api::WatchParams::default(), "1")
        .await
        .unwrap();
    for name in ["a", "b", "c"] {
        create(&api, name).await;
    }
    let events: Vec<_> = tokio::time::timeout(TIMEOUT, events.collect())
        .await
        .unwrap();
    assert_eq!(events.iter().filter(|event| event.is_ok()).count(), 2);
    assert_eq!(server.faults().hits(id), 1);
}

#[tokio::test]
async fn an_expired_watch_makes_a_watcher_list_again() {
    let (server, api) = start().await;
    let rule = Rule::new(config_maps().verbs(&["watch"]), Fault::Expired).times(1);
    let id = server.faults().add(rule);
    let mut names = names(&api);
    follow(&api, &mut names).await;
    assert_eq!(server.faults().hits(id), 1);
}

#[tokio::test]
async fn stale_lists_come_from_some_changes_back_and_frozen_reads_from_one_moment() {
    let (server, api) = start().await;
    let faults = server.faults();
    create(&api, "old").await;
    create(&api, "new").await;
    let id = faults.add(Rule::new(config_maps(), Fault::Stale { versions: 1 }));
    let list = api.list(&ListParams::default()).await.unwrap();
    let seen: Vec<_> = list
        .items
        .iter()
        .filter_map(|map| map.metadata.name.as_deref())
        .collect();
    assert_eq!(seen, ["old"]);
    assert_eq!(code(&api.get("new").await.unwrap_err()), 404);
    faults.remove(id);
    api.get("new").await.unwrap();

    let mut names = names(&api);
    next(&mut names, "old").await;
    let id = faults.add(Rule::new(config_maps(), Fault::Freeze));
    api.delete("old", &DeleteParams::default()).await.unwrap();
    create(&api, "unseen").await;
    assert!(api.get_opt("unseen").await.unwrap().is_none());
    assert!(api.get_opt("old").await.unwrap().is_some());
    // reads of other resources are not frozen
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(api.clone().into_client(), "default");
    let secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    secrets.get("s").await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), next(&mut names, "unseen"))
            .await
            .is_err(),
        "an open watch sent an event from after the freeze"
    );
    assert!(faults.remove(id).unwrap().frozen_at > 0);
    next(&mut names, "unseen").await;
}

#[tokio::test]
async fn a_server_that_was_down_has_the_same_address_and_objects() {
    let (server, api) = start().await;
    let faults = server.faults();
    create(&api, "kept").await;
    let mut names = names(&api);
    follow(&api, &mut names).await;
    faults.down().await;
    assert!(!faults.is_up());
    assert_eq!(code(&api.get("kept").await.unwrap_err()), 0);
    faults.up().await;
    api.get("kept").await.unwrap();
    create(&api, "after").await;
    next(&mut names, "after").await;
}

#[tokio::test]
async fn faults_are_asked_for_over_http_by_the_administrator_only() {
    let (server, api) = start().await;
    let admin = api.clone().into_client();
    let ask = async |client: &Client, method: &str, path: &str, body: Value| {
        let request = http::Request::builder().method(method).uri(path);
        client
            .request::<Value>(request.body(body.to_string().into_bytes()).unwrap())
            .await
    };
    let rule = json!({"select": {"resource": "configmaps"}, "fault": {"kind": "unavailable"}});
    let mut anonymous = kubeconfig(&server).await;
    anonymous.auth_info = kube::config::AuthInfo::default();
    let anonymous = Client::try_from(anonymous).unwrap();
    let refused = ask(&anonymous, "POST", "/testing/faults", rule.clone()).await;
    assert_eq!(code(&refused.unwrap_err()), 403);

    let added = ask(&admin, "POST", "/testing/faults", rule).await.unwrap();
    assert_eq!(code(&api.get("one").await.unwrap_err()), 503);
    let listed = ask(&admin, "GET", "/testing/faults", Value::Null)
        .await
        .unwrap();
    assert_eq!(listed[0]["hits"], 1);
    let path = format!("/testing/faults/{}", added["id"]);
    ask(&admin, "DELETE", &path, Value::Null).await.unwrap();
    assert_eq!(code(&api.get("one").await.unwrap_err()), 404);
    let unknown = json!({"fault": {"kind": "earthquake"}});
    let refused = ask(&admin, "POST", "/testing/faults", unknown).await;
    assert_eq!(code(&refused.unwrap_err()), 400);

    let mut names = names(&api);
    follow(&api, &mut names).await;
    let ended = json!({"select": {"resource": "configmaps"}, "how": "closed"});
    let ended = ask(&admin, "POST", "/testing/watches", ended)
        .await
        .unwrap();
    assert_eq!(ended["ended"], 1);
}

#[tokio::test]
async fn closed_watches_are_forgotten() {
    let (server, api) = start().await;
    let params = kube::api::WatchParams::default();
    let stream = api.watch(&params, "1").await.unwrap().boxed();
    let all = Selector::default();
    assert_eq!(server.faults().open_watches(&all), 1);
    drop(stream);
    // the server notices a closed connection only at its next write or read
    let gone = async {
        while server.faults().open_watches(&all) > 0 {
            create(&api, &format!("c{}", uuid::Uuid::new_v4().simple())).await;
        }
    };
    tokio::time::timeout(TIMEOUT, gone).await.unwrap();
}
