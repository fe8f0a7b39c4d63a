//! The verdict of each filter plugin of a real kube-scheduler on a pod and a node.

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testbed::api_server::ApiServer;
use testbed::lane::Lane;

use super::case::{Case, pinned_by};
use super::cases::{self, PLUGINS, Plugin};
use super::objects::create;
use super::process::Scheduler;
use super::verdicts::{Verdict, verdicts};
use super::{Args, CONCURRENCY};

/// A case and its verdict: one line of the corpus.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Recorded {
    pub(super) case: String,
    namespaces: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    /// Volumes, claims and the objects that they depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    storage: Vec<Value>,
    pod: Value,
    /// The node that the verdict is about.
    node: String,
    /// The plugin that rejects all other nodes, before the recorded one.
    pinned_by: String,
    /// Why the node is rejected; empty if the pod was bound to it.
    pub(super) reasons: Vec<String>,
}

/// Records one plugin on its own cluster, because pods could also fit on nodes of other plugins' cases.
pub(super) async fn record(args: &Args, plugin: usize) -> anyhow::Result<Vec<Recorded>> {
    let server = ApiServer::start(Lane::Local).await?;
    let client = server.client().await?;
    let seeds = args.seed..args.seed + args.cases;
    let cases: Vec<Case> = stream::iter(seeds.map(|seed| cases::new(plugin, seed)))
        .map(|case| create(client.clone(), case))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let Plugin { name, pin, .. } = PLUGINS[plugin];
    let named = |name: &str| json!({"name": name});
    let enabled = ["PrioritySort", pinned_by(pin), name, "DefaultBinder"].map(named);
    let profile = json!({
        "schedulerName": name.to_lowercase(),
        "plugins": {
            "multiPoint": {"disabled": [named("*")], "enabled": enabled},
            // no controller binds volumes; only the verdict on the node is needed
            "preBind": {"disabled": [named("*")]},
        },
    });
    let scheduler = Scheduler::start(&server, &client, &profile, 2).await?;
    let verdicts = verdicts(&client, cases.len()).await;
    let mut verdicts = verdicts.with_context(|| scheduler.end_of_log())?;
    let mut recorded = Vec::new();
    for case in cases {
        let verdict = verdicts.remove(&case.id);
        let reasons = match verdict.with_context(|| format!("{} has no verdict", case.id))? {
            Verdict::Bound(node) => {
                ensure!(node == case.node, "{} is on another node", case.id);
                Vec::new()
            }
            Verdict::Rejected(reasons) => reasons,
        };
        recorded.push(Recorded {
            case: case.id,
            namespaces: case.namespaces,
            nodes: case.nodes,
            pods: case.pods,
            storage: case.storage,
            pod: case.pod,
            node: case.node,
            pinned_by: pinned_by(PLUGINS[plugin].pin).to_owned(),
            reasons,
        });
    }
    Ok(recorded)
}
