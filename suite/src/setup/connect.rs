//! Connects to a cluster, and checks whether it may be used.

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use serde_json::json;

use crate::context::chain;
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

/// Returns a client for the current context of a kubeconfig file.
pub(super) async fn client(path: &Path) -> Result<Client, StepError> {
    let wrong = |error: &dyn std::error::Error| {
        StepError::fail(format!(
            "the kubeconfig {} cannot be used: {}",
            path.display(),
            chain(error)
        ))
    };
    let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(|error| wrong(&error))?;
    Client::try_from(config).map_err(|error| wrong(&error))
}

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

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn a_kubeconfig_that_is_none_is_named_with_the_reason() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, "apiVersion: v1\nkind: Config\n").expect("file is written");
        let failure = client(&path)
            .await
            .err()
            .expect("it has no context")
            .into_failure("");
        assert!(
            failure.message.starts_with(&format!(
                "the kubeconfig {} cannot be used: ",
                path.display()
            )),
            "{}",
            failure.message
        );
    }
}
