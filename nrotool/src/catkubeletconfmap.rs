//! `catkubeletconfmap`: the topology manager's settings that the exporters of a pool were given (scenarios-other.md 10.3).

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api::names;
use apply::Cause;
use goflags::GoDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use serde::Deserialize;
use tokio::time::Instant;

use crate::cluster;
use crate::flags::{Given, KUBECONFIG, Usage, text};
use crate::output::{FAILURE, USAGE_ERROR, print};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(2);

const USAGE: Usage = Usage {
    name: "catkubeletconfmap",
    about: "Prints policy and scope of the topology manager in a pool's ConfigMap, as variables of a shell.",
    flags: &[
        text("namespace", names::NAMESPACE, "namespace of the ConfigMap"),
        text(
            "name",
            "numaresourcesoperator-worker",
            "name of the ConfigMap",
        ),
        text("prefix", "", "put before the names of the variables"),
        text("wait", "0s", "how long to wait for the ConfigMap"),
        KUBECONFIG,
    ],
    refusal: USAGE_ERROR,
    failure: FAILURE,
};

/// The used part of the exporter's configuration (operator.md 7).
#[derive(Debug, Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    kubelet: Kubelet,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kubelet {
    #[serde(default)]
    topology_manager_policy: String,
    #[serde(default)]
    topology_manager_scope: String,
}

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, run)
}

async fn run(given: Given) -> anyhow::Result<ExitCode> {
    let wait: GoDuration = match given.parsed("wait") {
        Ok(wait) => wait,
        Err(error) => return Ok(USAGE.refuse(&error.to_string())),
    };
    let wait = Duration::from_nanos(u64::try_from(wait.as_nanos()).unwrap_or(0));
    let client = cluster::connect(given.kubeconfig().as_deref()).await?;
    let (namespace, name) = (given.text("namespace"), given.text("name"));
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let deadline = Instant::now() + wait;
    let map = loop {
        let found = maps.get_opt(name).await.map_err(Cause::from);
        let found = found.with_context(|| format!("cannot read ConfigMap {namespace}/{name}"))?;
        match found {
            Some(map) => break map,
            None if Instant::now() + PAUSE <= deadline => tokio::time::sleep(PAUSE).await,
            None => anyhow::bail!("there is no ConfigMap {namespace}/{name}"),
        }
    };
    let text = map
        .data
        .as_ref()
        .and_then(|data| data.get(names::CONFIG_KEY));
    let text = text.with_context(|| {
        format!(
            "ConfigMap {namespace}/{name} has no key {}",
            names::CONFIG_KEY
        )
    })?;
    let lines = lines(text, given.text("prefix")).with_context(|| {
        format!(
            "{} of ConfigMap {namespace}/{name} is not as expected",
            names::CONFIG_KEY
        )
    })?;
    Ok(print(&lines))
}

fn lines(text: &str, prefix: &str) -> Result<String, serde_yaml::Error> {
    let Configuration { kubelet } = serde_yaml::from_str(text)?;
    Ok(format!(
        "{prefix}TOPOLOGY_MANAGER_POLICY={}\n{prefix}TOPOLOGY_MANAGER_SCOPE={}\n",
        kubelet.topology_manager_policy, kubelet.topology_manager_scope
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_variables_also_where_they_are_missing() {
        let text = "kubelet:\n  topologyManagerPolicy: single-numa-node\npodExclude: []\n";
        assert_eq!(
            lines(text, "E2E_").expect("valid"),
            "E2E_TOPOLOGY_MANAGER_POLICY=single-numa-node\nE2E_TOPOLOGY_MANAGER_SCOPE=\n"
        );
    }
}
