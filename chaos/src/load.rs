//! Many pods for a long time: the memory, files, threads and requests of the stack must not grow.
//!
//! Thousands of pods wait that no node can take, on hundreds of light nodes with NRTs. Meanwhile pods come and go, so that the waiting ones are
//! tried again. The same run for hours is the soak.

mod samples;
mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::nrt::v1alpha2::NodeResourceTopology;
use api::{attributes, names};
use fs_err::File;
use futures::stream::{self, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use programs::console::note;
use serde_json::{Value, json};
use sim::light::{LightNodes, LightSpec};
use suite::interrupt::Interrupt;
use suite::setup;
use testbed::embedded::EmbeddedCluster;
use testbed::lane::{Cluster, Lane};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::start;

pub use samples::{Program, Sample};
pub use verdict::{Row, rows};

/// Namespace of the pods.
const NAMESPACE: &str = "load";
/// Label of the pods that fit.
const TURN: &str = "load/turn";
/// Concurrent requests while the cluster is filled.
const CONCURRENCY: usize = 16;
/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(10);
/// Time between two pods that come and go.
const TURNOVER: Duration = Duration::from_secs(3);
/// Longest time of a sample: somebody may not answer at once on a machine with much to do.
const PATIENCE: Duration = Duration::from_mins(1);
/// Time after which the level is taken that nothing may exceed by more than a fifth.
const LEVEL_AFTER: Duration = Duration::from_mins(5);

/// What a load is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Light nodes.
    pub nodes: usize,
    /// Pods that no node can take.
    pub pods: usize,
    /// How long it lasts.
    pub length: Duration,
    /// Directory with the programs of the stack, in place of those that are built from the sources.
    pub bin_dir: Option<PathBuf>,
    /// Directory for samples and verdict.
    pub directory: PathBuf,
}

impl Options {
    /// Returns when the level is taken: after five minutes, or a third of a shorter run.
    fn level_after(&self) -> Duration {
        LEVEL_AFTER.min(self.length / 3)
    }
}

/// Loads a cluster of its own. Returns a row for each figure.
///
/// # Errors
/// Returns an error if there is no verdict: the cluster does not come up, nothing can be measured, or the run was interrupted. The cluster is
/// down then.
pub async fn run(options: &Options, interrupt: &Interrupt) -> anyhow::Result<Vec<Row>> {
    let directory = &options.directory;
    fs_err::create_dir_all(directory)?;
    let setup = setup::Options::own(Lane::Embedded, &[]).context("the default cluster")?;
    let bin_dir = options.bin_dir.as_deref();
    let session = start::session(setup, bin_dir, directory, interrupt).await?;
    let cluster = session.own().and_then(Cluster::embedded);
    let cluster = cluster.context("the cluster is not an embedded one")?;
    let samples = tokio::select! {
        samples = measure(options, cluster) => samples,
        () = interrupt.wait() => Err(anyhow::anyhow!("the load was interrupted")),
    };
    session.finish().await;
    let rows = rows(&samples?, options.level_after());
    let lines: Vec<String> = rows.iter().map(Row::to_string).collect();
    fs_err::write(directory.join("verdict.txt"), lines.join("\n"))?;
    Ok(rows)
}

async fn measure(options: &Options, cluster: &EmbeddedCluster) -> anyhow::Result<Vec<Sample>> {
    let client = cluster.client();
    let spec = LightSpec {
        topology: Some(Arc::new(topology)),
        ..LightSpec::new(options.nodes)
    };
    let _light = LightNodes::start(client.clone(), spec).await?;
    note(&format!("{} light nodes are ready", options.nodes));
    namespace(&client).await?;
    fill(&client, options.pods).await?;
    note(&format!("{} pods wait", options.pods));
    let start = Instant::now();
    tokio::select! {
        samples = sample(options, cluster, start) => samples,
        never = turn_over(&client) => Err(never.err().unwrap_or_else(|| anyhow::anyhow!("pods no longer come and go"))),
    }
}

/// Takes a sample of all programs now and then, until the time is over.
async fn sample(
    options: &Options,
    cluster: &EmbeddedCluster,
    start: Instant,
) -> anyhow::Result<Vec<Sample>> {
    let mut file = File::create(options.directory.join("samples.jsonl"))?;
    let mut all = Vec::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while start.elapsed() < options.length {
        ticks.tick().await;
        // a reader of metrics asks again, too; what changes meanwhile is in the next look
        let sample = testbed::eventually(PATIENCE, async || {
            let look = async {
                let waited = longest_wait(&cluster.client()).await?;
                samples::take(cluster, start.elapsed(), waited).await
            };
            look.await
                .map_err(|error: anyhow::Error| format!("{error:#}"))
        });
        let sample = sample.await.map_err(anyhow::Error::msg)?;
        serde_json::to_writer(&mut file, &sample)?;
        std::io::Write::write_all(&mut file, b"\n")?;
        all.push(sample);
    }
    Ok(all)
}

async fn namespace(client: &Client) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let limit = Duration::from_mins(1);
    let there = testbed::eventually(limit, async || {
        let account = accounts.get("default").await;
        account.map(drop).map_err(|error| error.to_string())
    });
    there.await.map_err(anyhow::Error::msg)
}

/// Creates the pods that no node can take. Their sizes differ, so that the scheduler cannot know one by another.
async fn fill(client: &Client, count: usize) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    stream::iter((0..count).map(anyhow::Ok))
        .try_for_each_concurrent(CONCURRENCY, |number| {
            let pods = &pods;
            async move {
                let cpus = 1_000 + number % 100;
                let pod = serde_json::from_value(pod(&format!("waits-{number}"), cpus, "infinity"));
                pods.create(&PostParams::default(), &pod?).await?;
                anyhow::Ok(())
            }
        })
        .await
        .context("the pods that wait")
}

/// Creates one small pod after another, which fits and ends soon, and deletes those that have ended. Ends only with an error.
async fn turn_over(client: &Client) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut ticks = interval(TURNOVER);
    let at_once = DeleteParams::default().grace_period(0);
    let ended = ListParams::default()
        .labels(&format!("{TURN}=true"))
        .fields("status.phase=Succeeded");
    for number in 0_u64.. {
        ticks.tick().await;
        let mut small = pod(&format!("runs-{number}"), 2, "1s");
        small["metadata"]["labels"] = json!({TURN: "true"});
        let small = serde_json::from_value(small)?;
        pods.create(&PostParams::default(), &small).await?;
        pods.delete_collection(&at_once, &ended).await?;
    }
    Ok(())
}

/// Returns how many seconds the pod that fits and has waited longest has been waiting for its node; 0 if none waits.
async fn longest_wait(client: &Client) -> anyhow::Result<i64> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let turning = ListParams::default().labels(&format!("{TURN}=true"));
    let now = Timestamp::now();
    let waiting = pods.list(&turning).await?.items.into_iter();
    let waiting = waiting.filter(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_none()
    });
    let ages = waiting
        .filter_map(|pod| pod.metadata.creation_timestamp)
        .map(|created| now.duration_since(created.0).as_secs());
    Ok(ages.max().unwrap_or_default())
}

fn pod(name: &str, cpus: usize, sleeps: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": names::SCHEDULER_PROFILE,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": names::STACK_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sleep", sleeps],
                "resources": {"limits": {"cpu": cpus.to_string(), "memory": "1Gi"}},
            }],
        },
    })
}

/// Makes the NRT of a light node: two empty zones of sixteen CPUs.
fn topology(node: &str) -> NodeResourceTopology {
    let attributes: BTreeMap<&str, String> = BTreeMap::from([
        (
            attributes::TOPOLOGY_MANAGER_POLICY,
            "single-numa-node".to_owned(),
        ),
        (attributes::TOPOLOGY_MANAGER_SCOPE, "container".to_owned()),
        (
            attributes::POD_FINGERPRINT,
            suite::context::settle::fingerprint(&[]),
        ),
        (
            attributes::POD_FINGERPRINT_METHOD,
            attributes::FINGERPRINT_EXCLUSIVE.to_owned(),
        ),
    ]);
    let attributes: Vec<Value> = attributes
        .iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let resource = |name: &str, total: &str| json!({"name": name, "capacity": total, "allocatable": total, "available": total});
    let zone = |id: usize| {
        json!({"name": format!("node-{id}"), "type": "Node",
            "resources": [resource("cpu", "16"), resource("memory", "64Gi")]})
    };
    serde_json::from_value(
        json!({"metadata": {"name": node}, "attributes": attributes, "zones": [zone(0), zone(1)]}),
    )
    .expect("this is a NodeResourceTopology")
}
