//! The score of each node by each score plugin of a real kube-scheduler, from its log at the highest verbosity.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testbed::api_server::ApiServer;
use testbed::lane::Lane;

use super::case::Case;
use super::objects::create;
use super::process::Scheduler;
use super::score_cases::{self, Variant};
use super::verdicts::wait_for_verdicts;
use super::{Args, CONCURRENCY};

/// A case and its scores: one line of the corpus.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Scored {
    pub(super) case: String,
    /// The plugin.
    plugin: String,
    /// Its arguments.
    args: Value,
    /// All nodes of the cluster, of this case and of others.
    cluster_nodes: usize,
    namespaces: Vec<Value>,
    groups: Vec<Value>,
    nodes: Vec<Value>,
    pods: Vec<Value>,
    pod: Value,
    /// Scores by feasible node; empty if at most one node is feasible.
    pub(super) scores: BTreeMap<String, i64>,
}

/// Records a variant on its own cluster, with a scheduler that runs only the plugin and the one that pins pods to the nodes of their case.
pub(super) async fn record(args: &Args, variant: &Variant) -> anyhow::Result<Vec<Scored>> {
    let server = ApiServer::start(Lane::Local).await?;
    let client = server.client().await?;
    let seeds = args.seed..args.seed + args.cases;
    let cases: Vec<Case> = stream::iter(seeds.map(|seed| score_cases::new(variant, seed)))
        .map(|case| create_all(client.clone(), case))
        .buffered(CONCURRENCY)
        .try_collect()
        .await?;
    let named = |name: &str| json!({"name": name});
    let mut enabled = vec![
        named("PrioritySort"),
        named("DefaultBinder"),
        named(variant.plugin),
    ];
    if variant.plugin != score_cases::HELD_BY {
        enabled.push(named(score_cases::HELD_BY));
    }
    let config = (variant.args)();
    let profile = json!({
        "schedulerName": variant.name.to_lowercase(),
        "plugins": {"multiPoint": {"disabled": [named("*")], "enabled": enabled}},
        "pluginConfig": [{"name": variant.plugin, "args": config}],
    });
    // a plugin without arguments of its own must not be in the list, because some plugins have none
    let profile = match &config {
        Value::Null => {
            let mut profile = profile;
            profile["pluginConfig"] = json!([]);
            profile
        }
        _ => profile,
    };
    let scheduler = Scheduler::start(&server, &client, &profile, 10).await?;
    wait_for_verdicts(&client, cases.len())
        .await
        .with_context(|| scheduler.end_of_log())?;
    let log = scheduler.log();
    let cluster_nodes = cases.iter().map(|case| case.nodes.len()).sum();
    let mut recorded = Vec::new();
    for case in cases {
        let scores = scores(&log, &case.id, variant.plugin);
        let known: BTreeSet<&str> = case
            .nodes
            .iter()
            .filter_map(|node| node["metadata"]["name"].as_str())
            .collect();
        ensure!(
            scores.keys().all(|node| known.contains(node.as_str())),
            "{} was scored on nodes of others",
            case.id
        );
        recorded.push(Scored {
            case: case.id,
            plugin: variant.plugin.to_owned(),
            args: config.clone(),
            cluster_nodes,
            namespaces: case.namespaces,
            groups: case.groups,
            nodes: case.nodes,
            pods: case.pods,
            pod: case.pod,
            scores,
        });
    }
    Ok(recorded)
}

async fn create_all(client: Client, case: Case) -> anyhow::Result<Case> {
    let groups = case.groups.clone();
    // namespaces first
    let case = create(client.clone(), case).await?;
    for group in groups {
        let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&group["apiVersion"]), text(&group["kind"]));
        let (group_name, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group_name, version, &kind));
        let namespace = text(&group["metadata"]["namespace"]);
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let object = serde_json::from_value(group)?;
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("cannot make the {} of {}", kind.kind, case.id))?;
    }
    Ok(case)
}

/// Parses the scores of a plugin for the pod of a case: `"Plugin scored node for pod" pod="c1/pod" plugin="P" node="c1-0" score=42`.
fn scores(log: &str, case: &str, plugin: &str) -> BTreeMap<String, i64> {
    let mark =
        format!("\"Plugin scored node for pod\" pod=\"{case}/pod\" plugin=\"{plugin}\" node=\"");
    let lines = log.lines().filter_map(|line| line.split_once(&mark));
    lines
        .filter_map(|(_, rest)| {
            let (node, score) = rest.split_once("\" score=")?;
            Some((node.to_owned(), score.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_from_the_log() {
        let line = |pod: &str, plugin: &str, node: &str, score: i64| {
            format!(
                "I1 1 schedule_one.go:9] \"Plugin scored node for pod\" pod=\"{pod}\" plugin=\"{plugin}\" node=\"{node}\" score={score}\n"
            )
        };
        let log = line("c1/pod", "P", "c1-0", 7)
            + &line("c1/pod", "Q", "c1-0", 8)
            + &line("c11/pod", "P", "c11-0", 9)
            + &line("c1/pod", "P", "c1-1", 0)
            + "other\n";
        assert_eq!(
            scores(&log, "c1", "P"),
            [("c1-0".to_owned(), 7), ("c1-1".to_owned(), 0)].into()
        );
    }
}
