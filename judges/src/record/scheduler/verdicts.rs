//! What the scheduler decided on the pods of the cases, from their bindings and conditions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

/// Longest time until every pod has its verdict.
const VERDICT_TIMEOUT: Duration = Duration::from_mins(5);

/// The verdict on a pod.
pub(super) enum Verdict {
    /// It was bound to this node.
    Bound(String),
    /// Why its node was rejected.
    Rejected(Vec<String>),
}

/// Waits until this many pods have a verdict. Returns the verdicts by case.
pub(super) async fn verdicts(
    client: &Client,
    wanted: usize,
) -> anyhow::Result<BTreeMap<String, Verdict>> {
    poll(client, wanted, |pods| {
        let mut verdicts = BTreeMap::new();
        for pod in pods {
            let id = pod.metadata.namespace.clone().unwrap_or_default();
            if let Some(verdict) = verdict(pod).with_context(|| id.clone())? {
                verdicts.insert(id, verdict);
            }
        }
        Ok((verdicts.len(), verdicts))
    })
    .await
}

/// Waits until every pod has a node, or is known to be unschedulable.
pub(super) async fn wait_for_verdicts(client: &Client, wanted: usize) -> anyhow::Result<()> {
    poll(client, wanted, |pods| {
        Ok((pods.iter().filter(|pod| has_verdict(pod)).count(), ()))
    })
    .await
}

/// Looks at the pods of the cases until `decided` counts this many. Returns what it made of them.
async fn poll<T>(
    client: &Client,
    wanted: usize,
    decided: impl Fn(&[Pod]) -> anyhow::Result<(usize, T)>,
) -> anyhow::Result<T> {
    let api: Api<Pod> = Api::all(client.clone());
    let params = ListParams::default().fields("metadata.name=pod");
    let deadline = Instant::now() + VERDICT_TIMEOUT;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tick.tick().await;
        let pods = api.list(&params).await.context("cannot list pods")?;
        let (count, found) = decided(&pods.items)?;
        if count == wanted {
            return Ok(found);
        }
        ensure!(
            Instant::now() < deadline,
            "{count} of {wanted} pods have a verdict"
        );
    }
}

fn has_verdict(pod: &Pod) -> bool {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    pod.spec.iter().any(|spec| spec.node_name.is_some())
        || conditions
            .any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

/// Returns the verdict on a pod, if there is one.
fn verdict(pod: &Pod) -> anyhow::Result<Option<Verdict>> {
    if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
        return Ok(Some(Verdict::Bound(node)));
    }
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let rejected = conditions
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let Some(message) = rejected.and_then(|condition| condition.message.as_deref()) else {
        return Ok(None);
    };
    let reasons =
        reasons(message).with_context(|| format!("this message is not understood: {message}"))?;
    Ok(Some(Verdict::Rejected(reasons)))
}

/// Returns the reasons in a message for the one node that differs from all others.
fn reasons(message: &str) -> Option<Vec<String>> {
    /// Reasons of the nodes to which the pod is not pinned.
    const OTHERS: &[&str] = &[
        "node(s) had untolerated taint(s)",
        "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    ];
    let (_, list) = message.split_once(" nodes are available: ")?;
    let list = list.strip_suffix('.').unwrap_or(list);
    let mut counted: Vec<(u64, &str)> = Vec::new();
    for item in list.split(", ") {
        let Some((count, reason)) = item
            .split_once(' ')
            .and_then(|(count, reason)| Some((count.parse().ok()?, reason)))
        else {
            // one reason for all nodes, before any node was considered
            return Some(vec![list.to_owned()]);
        };
        counted.push((count, reason));
    }
    let mut own: Vec<&str> = counted
        .iter()
        .map(|(_, reason)| *reason)
        .filter(|reason| !OTHERS.contains(reason))
        .collect();
    if own.is_empty() {
        // the same reason as for other nodes, but counted for this node alone or for all
        let all = counted.len() == 1;
        let alone = counted.iter().find(|(count, _)| *count == 1 || all)?;
        own.push(alone.1);
    }
    Some(own.into_iter().map(str::to_owned).collect())
}
