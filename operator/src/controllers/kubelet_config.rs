//! On plain Kubernetes: the topology manager settings of each pool's kubelets, read from the kubelets themselves and handed to the
//! exporters in a ConfigMap (operator.md 7; design.md section 4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::operator::v1::NumaResourcesOperator;
use api::{labels, names};
use apply::Cause;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Api, DeleteParams, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher::{Config, watcher};
use kube::runtime::{WatchStreamExt, predicates, reflector};
use kube::{Client, ResourceExt};
use manifests::rte::config_map::{KubeletSettings, config_map};
use manifests::to_value;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{Error, current, drive, triggers};
use crate::context::Context;
use crate::node_groups::{self, Pool};

const NAME: &str = "kubeletconfig";
/// A kubelet that was started anew shows in no event of its node for certain.
const AGAIN: Duration = Duration::from_secs(30);
/// Kubelets that are asked at the same time.
const AT_ONCE: usize = 16;
/// A kubelet that does not answer by then is left out this time.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn run(context: Arc<Context>, stop: &CancellationToken) {
    let client = &context.client;
    let (reader, writer) = reflector::store();
    // status patches of the other controller are no reason to ask all kubelets
    let resources = watcher(
        Api::<NumaResourcesOperator>::all(client.clone()),
        Config::default(),
    )
    .default_backoff()
    .reflect(writer)
    .applied_objects()
    .predicate_filter(
        predicates::generation,
        kube::runtime::PredicateConfig::default(),
    );
    let maps: Api<PartialObjectMeta<ConfigMap>> =
        Api::namespaced(client.clone(), &context.namespace);
    let controller = Controller::for_stream(resources, reader)
        .reconcile_all_on(triggers::kubelets(client))
        .reconcile_all_on(triggers::any(
            maps,
            Config::default().labels(labels::OPERATOR_NAME),
        ));
    drive(NAME, controller, Arc::clone(&context), stop, reconcile).await;
}

async fn reconcile(
    seen: Arc<NumaResourcesOperator>,
    context: Arc<Context>,
) -> Result<Action, Error> {
    let api: Api<NumaResourcesOperator> = Api::all(context.client.clone());
    let name = seen.name_any();
    let Some(cr) = current(&api, &name).await? else {
        return Ok(Action::await_change());
    };
    // the other controller tells what is wrong with the resource
    if name != names::OPERATOR_CR
        || node_groups::validate(&cr.spec.node_groups, context.platform).is_err()
    {
        return Ok(Action::await_change());
    }
    let nodes = list_nodes(&context.client)
        .await
        .map_err(|error| Error::of(&error))?;
    let labelled = node_groups::workers_are_labelled(nodes.iter());
    let pools = node_groups::pools(&cr.spec.node_groups, context.platform, labelled)
        .map_err(Error::Failed)?;
    for pool in &pools {
        sync_pool_of(&cr, pool, &nodes, &context)
            .await
            .map_err(|error| Error::of(&error))?;
    }
    drop_others(&cr, &pools, &context).await;
    Ok(Action::requeue(AGAIN))
}

/// Asks the pool's kubelets and brings its ConfigMap up to date; false when no kubelet answered.
pub(super) async fn sync_pool(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    context: &Context,
) -> Result<bool, SyncError> {
    let nodes = list_nodes(&context.client).await?;
    sync_pool_of(cr, pool, &nodes, context).await
}

/// A pool's ConfigMap is not up to date.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("failed to list nodes")]
    Nodes(#[source] apply::Cause),
    #[error("failed to write the exporter configuration")]
    Write(#[source] apply::Error),
}

async fn list_nodes(client: &Client) -> Result<Vec<Node>, SyncError> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .list(&ListParams::default())
        .await
        .map(|list| list.items)
        .map_err(|error| SyncError::Nodes(error.into()))
}

async fn sync_pool_of(
    cr: &NumaResourcesOperator,
    pool: &Pool,
    nodes: &[Node],
    context: &Context,
) -> Result<bool, SyncError> {
    let members: Vec<String> = nodes
        .iter()
        .filter(|node| node_groups::selects(&pool.nodes, node))
        .map(ResourceExt::name_any)
        .collect();
    let answers: Vec<KubeletSettings> = stream::iter(members)
        .map(|node| async move { ask(&context.client, &node).await })
        .buffered(AT_ONCE)
        .filter_map(|answer| async move { answer })
        .collect()
        .await;
    let Some(settings) = most_common(&pool.name, &answers) else {
        tracing::debug!(pool = %pool.name, "No kubelet told its settings");
        return Ok(false);
    };
    let map = config_map(
        &cr.name_any(),
        &pool.name,
        &context.namespace,
        &settings,
        &cr.spec.pod_excludes,
    );
    let mut object = to_value(&map);
    if let Some(owner) = apply::controller_reference(cr) {
        apply::set_owner(&mut object, &owner);
    }
    let applied = context
        .applier
        .apply(&object)
        .await
        .map_err(SyncError::Write)?;
    if applied.outcome != apply::Outcome::Unchanged {
        tracing::info!(pool = %pool.name, policy = %settings.topology_manager_policy, scope = %settings.topology_manager_scope, "updated RTE config from kubelet config");
    }
    Ok(true)
}

/// The part of a kubelet's answer that matters.
#[derive(Deserialize)]
struct Configz {
    kubeletconfig: KubeletSettings,
}

async fn ask(client: &Client, node: &str) -> Option<KubeletSettings> {
    let request = http_get(&format!("/api/v1/nodes/{node}/proxy/configz"))?;
    match tokio::time::timeout(ANSWER_WITHIN, client.request::<Configz>(request)).await {
        Ok(Ok(answer)) => Some(answer.kubeletconfig),
        Ok(Err(error)) => {
            tracing::warn!(%node, error = %daemon::log::chain(&Cause::from(error)), "Kubelet settings not read");
            None
        }
        Err(_) => {
            tracing::warn!(%node, "Kubelet settings not read in time");
            None
        }
    }
}

fn http_get(path: &str) -> Option<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).ok()
}

/// The settings of most kubelets; on a tie the first in order of their text, so that the choice is stable.
fn most_common(pool: &str, answers: &[KubeletSettings]) -> Option<KubeletSettings> {
    let mut counts: BTreeMap<&KubeletSettings, usize> = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer).or_default() += 1;
    }
    if counts.len() > 1 {
        tracing::warn!(%pool, kinds = counts.len(), "Kubelets of a pool have different topology manager settings");
    }
    let most = counts.values().copied().max()?;
    counts
        .into_iter()
        .find(|(_, count)| *count == most)
        .map(|(settings, _)| settings.clone())
}

/// Deletes the ConfigMaps of pools that are no longer asked for.
async fn drop_others(cr: &NumaResourcesOperator, pools: &[Pool], context: &Context) {
    let expected: BTreeSet<String> = pools
        .iter()
        .map(|pool| names::rte_daemon_set(&cr.name_any(), &pool.name))
        .collect();
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &context.namespace);
    let selector = format!("{}={}", labels::OPERATOR_NAME, cr.name_any());
    let found = match maps
        .list_metadata(&ListParams::default().labels(&selector))
        .await
    {
        Ok(found) => found.items,
        Err(error) => {
            tracing::warn!(error = %daemon::log::chain(&Cause::from(error)), "Exporter configurations cannot be listed");
            return;
        }
    };
    for name in found
        .iter()
        .map(ResourceExt::name_any)
        .filter(|name| !expected.contains(name))
    {
        match maps.delete(&name, &DeleteParams::default()).await {
            Ok(_) => tracing::info!(configmap = %name, "Configuration of a dropped pool deleted"),
            Err(error) => {
                tracing::warn!(configmap = %name, error = %daemon::log::chain(&Cause::from(error)), "Configuration not deleted");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(policy: &str) -> KubeletSettings {
        KubeletSettings {
            topology_manager_policy: policy.into(),
            topology_manager_scope: "container".into(),
            ..KubeletSettings::default()
        }
    }

    #[test]
    fn majority_wins_and_ties_are_stable() {
        assert_eq!(most_common("p", &[]), None);
        let (a, b) = (settings("a"), settings("b"));
        assert_eq!(
            most_common("p", &[a.clone(), b.clone(), b.clone()]),
            Some(b.clone())
        );
        assert_eq!(most_common("p", &[b, a.clone()]), Some(a));
    }

    #[test]
    fn settings_that_exporters_need_are_read_and_no_others() {
        let text = r#"{"kubeletconfig": {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "memoryManagerPolicy": "Static", "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod", "maxPods": 110}}"#;
        let answer: Configz = serde_json::from_str(text).unwrap();
        assert_eq!(
            answer.kubeletconfig,
            KubeletSettings {
                cpu_manager_policy: "static".into(),
                cpu_manager_policy_options: [("full-pcpus-only".into(), "true".into())].into(),
                memory_manager_policy: "Static".into(),
                topology_manager_policy: "restricted".into(),
                topology_manager_scope: "pod".into()
            }
        );
    }
}
