//! A compaction that was drawn is noticed: a client whose watch ended has to list again, and misses nothing.

use std::time::Duration;

use cluster_faults::{Disturbance, Faults, Schedule, Targets};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::json;
use tokio::time::timeout;

use crate::server::start;

const TIMEOUT: Duration = Duration::from_mins(1);

/// Returns the steps of one compaction that keeps watches away for seconds, from the first of them on.
fn drawn() -> Schedule {
    let targets = Targets {
        resources: vec![(String::new(), "configmaps".to_owned())],
        ..Targets::default()
    };
    let schedules =
        (0..1_000).map(|seed| Schedule::random(seed, 1, Duration::from_mins(1), &targets));
    let mut schedule = schedules
        .into_iter()
        .find(|one| one.steps.len() == 3 && one.steps[0].lasting_milliseconds > 3_000)
        .expect("one of a thousand disturbances is a compaction");
    let start = schedule.steps[0].after_milliseconds;
    for step in &mut schedule.steps {
        step.after_milliseconds -= start;
    }
    assert_eq!(schedule.steps[2].what, Disturbance::Compact);
    schedule
}

#[tokio::test]
async fn who_watches_through_a_compaction_lists_again_and_misses_nothing() {
    let (server, client) = start().await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let create = async |name: &str| {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    };
    let events = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let mut events = events.boxed();
    while !matches!(events.next().await.unwrap().unwrap(), Event::InitDone) {}
    create("watched").await;
    assert!(matches!(events.next().await, Some(Ok(Event::Apply(_)))));

    let faults = Faults::new(client, Some(server.faults()), None);
    let schedule = drawn();
    let follow = async {
        let broken = events.next().await.unwrap();
        assert!(broken.is_err(), "{broken:?}");
        create("missed").await;
        let mut is_listed = false;
        loop {
            match events.next().await.unwrap() {
                Ok(Event::Init) => is_listed = true,
                Ok(Event::Apply(object) | Event::InitApply(object))
                    if object.metadata.name.as_deref() == Some("missed") =>
                {
                    return is_listed;
                }
                // refused as long as no watch may begin
                _ => {}
            }
        }
    };
    let (answers, is_listed) = tokio::join!(faults.play(&schedule), timeout(TIMEOUT, follow));
    for answer in answers {
        answer.unwrap();
    }
    assert_eq!(is_listed, Ok(true));
}
