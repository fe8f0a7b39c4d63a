//! What must hold once the faults are over: everything settles, and the stack has forgotten and lost nothing.

use std::path::Path;
use std::time::Duration;

use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use suite::context::Context;
use suite::step::StepError;
use tokio::time::sleep;

use crate::check::taken_cpus;
use crate::recording::PodView;
use crate::scheduler;
use crate::wanted::{self, Objects};

/// Longest time until every pod has had its turn: all that waits, a second scheduler's lease and the backoff of killed containers.
const DRAINED: Duration = Duration::from_mins(4);
/// Longest time of each other condition.
const SETTLED: Duration = Duration::from_mins(2);

/// Pause between two looks, each of which lists many objects.
const PAUSE: Duration = Duration::from_millis(500);

/// What the end is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The operator's objects at the start.
    pub objects: &'a Objects,
    /// The administrator's kubeconfig, if the pods of the cluster can be reached from here.
    pub kubeconfig: Option<&'a Path>,
}

/// Waits until everything is as it must be in the end. Returns what is not, one sentence each.
pub async fn settles(context: &Context, expected: Expected<'_>) -> Vec<String> {
    let client = context.client();
    let mut violations = Vec::new();
    let mut must = |what: &str, held: Result<(), String>| {
        violations.extend(held.err().map(|seen| format!("{what}: {seen}")));
    };
    let held = context.operands_rolled_out().await;
    must("the stack does not run as wanted", held.map_err(in_words));
    let namespace = context.namespace.as_str();
    let held = eventually(DRAINED, async || jobs_have_ended(&client, namespace).await).await;
    must("pods that can run do not", held);
    let held = eventually(SETTLED, async || replicas_run(&client, namespace).await).await;
    must("replicas that can run do not", held);
    let held = context.settle().await;
    must("the NRTs do not settle", held.map(drop).map_err(in_words));
    let held = eventually(SETTLED, async || zones_account(&client).await).await;
    must("an NRT does not equal the state of its node", held);
    if let Some(kubeconfig) = expected.kubeconfig {
        let held = eventually(SETTLED, async || {
            let metrics = scheduler::metrics(&client, kubeconfig).await;
            let metrics = metrics.map_err(|error| suite::context::chain(&error))?;
            all_of(&scheduler::left_over(&metrics))
        })
        .await;
        must("the scheduler has not forgotten pods", held);
    }
    let held = eventually(SETTLED, async || {
        let now = wanted::read(&client).await;
        let now = now.map_err(|error| error.to_string())?;
        all_of(&wanted::differences(expected.objects, &now))
    })
    .await;
    must("the operator's objects are not as before", held);
    violations
}

/// Looks now and then until the check succeeds.
async fn eventually(
    limit: Duration,
    check: impl AsyncFn() -> Result<(), String>,
) -> Result<(), String> {
    testbed::eventually(limit, async || {
        let seen = check().await;
        if seen.is_err() {
            sleep(PAUSE).await;
        }
        seen
    })
    .await
}

fn in_words(error: StepError) -> String {
    error.into_failure("settling").to_string()
}

fn all_of(wrong: &[String]) -> Result<(), String> {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

async fn list<K>(api: Api<K>) -> Result<Vec<Value>, String>
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|error| error.to_string())?;
    let values = all.items.iter().map(serde_json::to_value);
    values
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// Every pod of the plan fits an empty node and ends by itself, so each has its turn.
async fn jobs_have_ended(client: &Client, namespace: &str) -> Result<(), String> {
    let pods = list::<Pod>(Api::namespaced(client.clone(), namespace)).await?;
    let left = pods.iter().map(PodView).filter(|pod| {
        let (_, name) = pod.key();
        name.starts_with("job-") && !pod.has_ended()
    });
    let left: Vec<String> = left
        .map(|pod| format!("{} is {} on {:?}", pod.key().1, pod.phase(), pod.node()))
        .collect();
    all_of(&left)
}

async fn replicas_run(client: &Client, namespace: &str) -> Result<(), String> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let all = deployments.list(&ListParams::default()).await;
    let all = all.map_err(|error| error.to_string())?;
    let short = all.iter().filter_map(|one| {
        let wanted = one.spec.as_ref()?.replicas;
        let ready = one.status.as_ref().and_then(|status| status.ready_replicas);
        (wanted != ready).then(|| {
            format!(
                "{} has {} of {} replicas",
                one.name_any(),
                ready.unwrap_or_default(),
                wanted.unwrap_or_default()
            )
        })
    });
    all_of(&short.collect::<Vec<_>>())
}

/// The CPUs that the zones of a node lack are those of its Guaranteed pods.
async fn zones_account(client: &Client) -> Result<(), String> {
    let pods = list::<Pod>(Api::all(client.clone())).await?;
    let nrts = list::<NodeResourceTopology>(Api::all(client.clone())).await?;
    let wrong = nrts.iter().filter_map(|nrt| {
        let node = nrt["metadata"]["name"].as_str()?;
        let there = pods.iter().map(PodView);
        let there = there.filter(|pod| pod.node() == node && !pod.has_ended());
        let held: i64 = there.map(PodView::exclusive_cpus).sum();
        let taken = taken_cpus(nrt);
        (held != taken)
            .then(|| format!("{taken} CPUs are taken in the zones of {node}, its pods have {held}"))
    });
    all_of(&wrong.collect::<Vec<_>>())
}
