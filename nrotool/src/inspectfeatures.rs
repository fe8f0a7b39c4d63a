//! `inspectfeatures`: the topics that the operator of the cluster supports, as the operator itself says (operator.md 2).

use std::process::ExitCode;

use anyhow::Context as _;
use api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;

use crate::flags::{Given, KUBECONFIG, Usage, text};
use crate::output::{FAILURE, USAGE_ERROR, print};
use crate::{cluster, exec};

/// Selects the operator's pods.
pub(crate) const OPERATOR_PODS: &str =
    "control-plane=controller-manager,app=numaresources-operator";

const USAGE: Usage = Usage {
    name: "inspectfeatures",
    about: "Asks the operator in the cluster which topics it supports, and prints its answer: one line of JSON for mkginkgolabelfilter.",
    flags: &[
        text(
            "namespace",
            "",
            "namespace of the operator; without it, it is looked for in all",
        ),
        KUBECONFIG,
    ],
    refusal: USAGE_ERROR,
    failure: FAILURE,
};

/// Runs the tool with the words after its name.
pub(crate) fn main(words: &[String]) -> ExitCode {
    USAGE.run(words, run)
}

async fn run(given: Given) -> anyhow::Result<ExitCode> {
    let client = cluster::connect(given.kubeconfig().as_deref()).await?;
    let pods: Api<Pod> = match given.text("namespace") {
        "" => Api::all(client.clone()),
        namespace => Api::namespaced(client.clone(), namespace),
    };
    let pods = cluster::list(&pods, OPERATOR_PODS).await?;
    let pod = pods
        .iter()
        .find(|pod| cluster::is_running(pod))
        .with_context(|| format!("no pod with labels {OPERATOR_PODS} is running"))?;
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let container = containers.into_iter().next();
    let container = container.context("the operator's pod has no container")?;
    let program = container.command.as_ref().and_then(|words| words.first());
    let program = program.map_or(names::OPERATOR_BINARY, String::as_str);
    let command = [program, "--inspect-features"];
    let answer = exec::run(&client, pod, &container.name, &command).await?;
    Ok(print(&answer))
}
