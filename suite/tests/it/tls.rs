//! Clusters with a TLS profile that is not the default: the scenarios ask their servers for what that profile says.

use std::time::Duration;

use api::names;
use api::openshift::config::{ApiServer, CLUSTER};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use reports::event::Verdict;
use rstest::rstest;
use serde_json::{Value, json};
use suite::context::checks::Rollout;
use suite::select::Selection;
use suite::session::Session;
use suite::setup::Options;
use testbed::lane::Lane;

use crate::harness::{describe, eventually, run_scenarios, runtime};

const SCENARIOS: [&str; 5] = [
    "tls/rte-flags",
    "tls/rte-metrics",
    "tls/rte-reject",
    "tls/sched-accept",
    "tls/sched-reject",
];
/// Longer than new pods of exporters and scheduler take.
const TIMEOUT: Duration = Duration::from_mins(2);

#[rstest]
// nothing is below its smallest version, and no suite is missing in it
#[case::old(
    json!({"type": "Old", "old": {}}),
    "VersionTLS10",
    &["tls/rte-reject", "tls/sched-reject"]
)]
#[case::custom(
    json!({"type": "Custom", "custom": {
        "minTLSVersion": "VersionTLS12",
        "ciphers": ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"],
    }}),
    "=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    &[]
)]
fn servers_have_to_keep_to_the_profile_of_the_cluster(
    #[case] profile: Value,
    #[case] wanted: &str,
    #[case] skipped: &[&str],
) {
    let options = Options::own(Lane::Embedded, &["--flavour", "openshift"]);
    let options = options.expect("the flags exist");
    let selection = Selection {
        ids: SCENARIOS.map(str::to_owned).into(),
        ..Selection::default()
    };
    let set_profile = async |session: &Session| {
        let cluster = session.own().ok_or("the run has a cluster of its own")?;
        adopt(&cluster.client(), &profile, wanted).await;
        Ok(())
    };
    let test = format!("tls-{}", profile["type"].as_str().unwrap_or_default());
    let completed = runtime().block_on(run_scenarios(&test, &options, &selection, set_profile));
    let events = completed.events.display();
    let is_skipped = |verdict: &Verdict| matches!(verdict, Verdict::Skipped { .. });
    assert_eq!(completed.ids(is_skipped), skipped, "see {events}");
    for (id, verdict) in &completed.verdicts {
        let is_good = *verdict == Verdict::Passed || is_skipped(verdict);
        assert!(is_good, "{id}: {}; see {events}", describe(verdict));
    }
    assert_eq!(completed.verdicts.len(), SCENARIOS.len(), "see {events}");
}

/// Gives the cluster a profile, and waits until exporters and scheduler run with it: until this is among their arguments, and all their pods
/// are new.
async fn adopt(client: &Client, profile: &Value, wanted: &str) {
    let servers: Api<ApiServer> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"tlsSecurityProfile": profile}}));
    let patched = servers
        .patch(CLUSTER, &PatchParams::default(), &patch)
        .await;
    patched.expect("the profile is taken");
    let sets: Api<DaemonSet> = Api::all(client.clone());
    eventually("exporters have the profile", TIMEOUT, async || {
        let all = sets.list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?.items;
        let exporters = all
            .iter()
            .map(|set| (json!(set.spec).to_string(), Rollout::of(set)))
            .filter(|(spec, _)| spec.contains("--metrics-tls-min-version="));
        let exporters: Vec<_> = exporters.collect();
        let are_new =
            |(spec, rollout): &(String, Rollout)| spec.contains(wanted) && rollout.is_over();
        if !exporters.is_empty() && exporters.iter().all(are_new) {
            return Ok(());
        }
        Err(format!("{exporters:?}"))
    })
    .await;
    let deployments: Api<Deployment> = Api::all(client.clone());
    eventually("the scheduler has the profile", TIMEOUT, async || {
        let all = deployments.list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?.items;
        let mut named = all
            .iter()
            .filter(|one| one.metadata.name.as_deref() == Some(names::SCHEDULER));
        let scheduler = json!(named.next());
        let status = &scheduler["status"];
        let replicas = &scheduler["spec"]["replicas"];
        let are_new = scheduler["spec"].to_string().contains(wanted)
            && status["observedGeneration"] == scheduler["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|count| status[count] == *replicas);
        if are_new {
            return Ok(());
        }
        Err(scheduler.to_string())
    })
    .await;
}
