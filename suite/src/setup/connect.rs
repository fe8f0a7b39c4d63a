//! Connects to a cluster, and checks whether it may be used.

use api::labels;
use api::openshift::config::{self, Infrastructure};
use api::openshift::machine_config;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::environment::{Environment, Place, Platform};
use crate::recorder::Recorder;
use crate::step::StepError;

/// Label on namespace `kube-system` of a cluster that may be used. `true` allows scenarios, `install` also allows to install and remove the
/// stack.
pub const ALLOW_LABEL: &str = "numaresources-tests/allowed";
/// The command that sets the label.
pub const ALLOW_COMMAND: &str =
    "kubectl label namespace kube-system numaresources-tests/allowed=true";
/// The label and its value that allow everything.
pub const ALLOW_ALL: (&str, &str) = (ALLOW_LABEL, INSTALL);
const MARKED: &str = "kube-system";
const INSTALL: &str = "install";

/// Returns the version of the API server.
pub(super) async fn version(recorder: &Recorder, client: &Client) -> Result<String, StepError> {
    let version = client.apiserver_version().await?.git_version;
    recorder.saw(version.clone());
    Ok(version)
}

/// Marks a cluster of ours as one on which everything is allowed.
pub async fn allow(client: &Client) -> Result<(), StepError> {
    let patch = json!({"metadata": {"labels": {ALLOW_LABEL: INSTALL}}});
    Api::<Namespace>::all(client.clone())
        .patch(MARKED, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

async fn mark(client: &Client) -> Result<Option<String>, StepError> {
    let namespace = Api::<Namespace>::all(client.clone()).get(MARKED).await?;
    Ok(namespace.labels().get(ALLOW_LABEL).cloned())
}

/// Returns an error unless the cluster carries the mark.
pub(super) async fn allowed(client: &Client) -> Result<(), StepError> {
    match mark(client).await?.as_deref() {
        Some("true" | INSTALL) => Ok(()),
        _ => Err(StepError::fail(format!(
            "this cluster is not marked as usable for disruptive tests; nothing was changed. If it is, mark it: {ALLOW_COMMAND}"
        ))),
    }
}

/// Returns whether the mark allows to install the stack.
pub(super) async fn may_install(client: &Client) -> Result<bool, StepError> {
    Ok(mark(client).await?.as_deref() == Some(INSTALL))
}

/// Returns whether the API server serves an API group.
pub(super) async fn has_group(client: &Client, group: &str) -> Result<bool, StepError> {
    Ok(client
        .list_api_groups()
        .await?
        .groups
        .iter()
        .any(|served| served.name == group))
}

/// Returns what decides which scenarios the cluster can run.
pub(super) async fn environment(client: &Client, place: Place) -> Result<Environment, StepError> {
    let nodes = Api::<Node>::all(client.clone());
    Ok(Environment {
        place,
        platform: platform(client).await?,
        schedulable_control_plane: takes_pods(&nodes.list(&ListParams::default()).await?.items),
    })
}

/// Returns the kind of cluster. A hosted one has kinds of `OpenShift`, but no machine config pools that the operator goes by (operator.md 2.1).
pub(super) async fn platform(client: &Client) -> Result<Platform, StepError> {
    if has_group(client, config::GROUP).await? {
        let found = Api::<Infrastructure>::all(client.clone());
        let found = found.get_opt(config::CLUSTER).await?;
        let topology = found.and_then(|found| found.status);
        if topology.is_some_and(|status| status.control_plane_topology == config::EXTERNAL) {
            return Ok(Platform::Hypershift);
        }
    }
    Ok(if has_group(client, machine_config::GROUP).await? {
        Platform::Openshift
    } else {
        Platform::Kubernetes
    })
}

/// Returns whether all nodes of the control plane are workers, too, and none of them keeps pods away.
fn takes_pods(nodes: &[Node]) -> bool {
    let of_control_plane = |node: &&Node| {
        let labels = node.labels();
        labels.contains_key(labels::CONTROL_PLANE) || labels.contains_key(labels::MASTER)
    };
    let is_open = |node: &Node| {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let mut taints = taints.into_iter().flatten();
        node.labels().contains_key(labels::WORKER)
            && taints.all(|taint| taint.effect != "NoSchedule")
    };
    let mut nodes = nodes.iter().filter(of_control_plane).peekable();
    nodes.peek().is_some() && nodes.all(is_open)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    fn marked(value: Option<&str>) -> Value {
        let labels = value.map_or_else(|| json!({}), |value| json!({ALLOW_LABEL: value}));
        json!({"metadata": {"name": "kube-system", "labels": labels}})
    }

    #[tokio::test]
    async fn an_unmarked_cluster_is_left_alone_and_the_command_is_told() {
        for value in [None, Some("false")] {
            let (client, log) = testing::client(move |_, _| (200, marked(value)));
            let failure = allowed(&client)
                .await
                .expect_err("it is not marked")
                .into_failure("");
            assert!(
                failure.message.ends_with(ALLOW_COMMAND),
                "{}",
                failure.message
            );
            assert_eq!(
                *log.lock().expect("requests"),
                ["GET /api/v1/namespaces/kube-system"]
            );
        }
    }

    #[tokio::test]
    async fn the_mark_says_what_is_allowed() {
        for (value, install) in [("true", false), ("install", true)] {
            let (client, _) = testing::client(move |_, _| (200, marked(Some(value))));
            assert!(allowed(&client).await.is_ok());
            assert_eq!(
                may_install(&client).await.expect("the mark is readable"),
                install
            );
        }
    }

    #[rstest]
    #[case::plain(&[], "", Platform::Kubernetes)]
    #[case::machines(&[config::GROUP, machine_config::GROUP], "HighlyAvailable", Platform::Openshift)]
    #[case::hosted(&[config::GROUP], "External", Platform::Hypershift)]
    #[case::hosted_that_serves_the_kinds_of_machines(
        &[config::GROUP, machine_config::GROUP], "External", Platform::Hypershift)]
    #[tokio::test]
    async fn a_cluster_is_taken_for_what_the_operator_takes_it_for(
        #[case] groups: &'static [&'static str],
        #[case] topology: &'static str,
        #[case] expected: Platform,
    ) {
        let (client, _) =
            testing::client(move |_, path| (200, testing::platform(path, groups, topology)));
        assert_eq!(platform(&client).await.expect("it is told"), expected);
    }

    #[rstest]
    #[case::tainted(&[labels::MASTER, labels::WORKER], Some("NoSchedule"), false)]
    #[case::no_worker(&[labels::MASTER], None, false)]
    #[case::open(&[labels::CONTROL_PLANE, labels::WORKER], Some("PreferNoSchedule"), true)]
    #[case::a_worker_alone(&[labels::WORKER], None, false)]
    fn a_control_plane_takes_pods_if_it_is_a_worker_without_such_a_taint(
        #[case] roles: &[&str],
        #[case] effect: Option<&str>,
        #[case] expected: bool,
    ) {
        let labels: serde_json::Map<String, Value> = roles
            .iter()
            .map(|role| ((*role).to_owned(), json!("")))
            .collect();
        let taints: Vec<Value> = effect
            .iter()
            .map(|effect| json!({"key": "k", "effect": effect}))
            .collect();
        let node = json!({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": taints}});
        let node: Node = serde_json::from_value(node).expect("a node");
        assert_eq!(takes_pods(&[node]), expected);
    }
}
