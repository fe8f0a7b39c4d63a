//! What the scheduler serves, and who may read it.

use crate::cluster::{Cluster, PROFILE, Scheduler};

/// Returns the scheduler's answer to a request with this token, or without one; the status code if the request fails.
async fn ask(scheduler: &Scheduler, path: &str, token: Option<&str>) -> Result<String, String> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    let answer = scheduler.endpoint(token).request_text(request).await;
    answer.map_err(|error| match error {
        kube::Error::Api(status) => status.code.to_string(),
        other => other.to_string(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_for_everybody_and_metrics_for_those_who_may_read_them() {
    let cluster = Cluster::start().await;
    let mut scheduler = cluster.scheduler("first", |_| {});
    let ready = cluster.eventually(async || ask(&scheduler, "/readyz", None).await);
    assert_eq!(ready.await, "ok");
    let reader = cluster.token("reader", true).await;
    let other = cluster.token("other", false).await;
    let refused = |status: &str| Err(status.to_owned());
    assert_eq!(ask(&scheduler, "/metrics", None).await, refused("403"));
    assert_eq!(
        ask(&scheduler, "/metrics", Some("guessed")).await,
        refused("401")
    );
    assert_eq!(
        ask(&scheduler, "/metrics", Some(&other)).await,
        refused("403")
    );
    let metrics = ask(&scheduler, "/metrics", Some(&reader)).await.unwrap();
    for text in [
        "# TYPE scheduler_topology_updates_total counter\n",
        "scheduler_pending_pods{queue=\"active\"} 0\n",
        "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"",
        "process_resident_memory_bytes ",
    ] {
        assert!(metrics.contains(text), "{text} not in\n{metrics}");
    }
    assert_eq!(ask(&scheduler, "/configz", None).await, refused("403"));
    let config = ask(&scheduler, "/configz", Some(&reader)).await.unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let profile = &config["componentconfig"]["profiles"][0];
    assert_eq!(profile["schedulerName"], PROFILE, "{config:#}");
    assert_eq!(scheduler.stop(), Some(0));
}
