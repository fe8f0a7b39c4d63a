//! `schedlogs`: the log of the scheduler that leads (scenarios-other.md 10.3).

use std::process::ExitCode;

use anyhow::Context as _;
use api::{labels, names};
use apply::Cause;
use goflags::GoDuration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use kube::{Client, ResourceExt};

use crate::cluster;
use crate::cluster::is_running;
use crate::flags::{Given, KUBECONFIG, Usage, text};
use crate::output::{FAILURE, USAGE_ERROR, print};

/// Encloses the log.
const FRAME: &str = "-------8<-------";

const USAGE: Usage = Usage {
    name: "schedlogs",
    about: "Prints the log of the scheduler's leader between two lines. Where no lease is held, that is the only scheduler that runs.",
    flags: &[
        text("namespace", names::NAMESPACE, "namespace of the scheduler"),
        text(
            "container",
            names::SCHEDULER,
            "container of the scheduler in its pod",
        ),
        text("since", "5m", "how far back the log begins"),
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
    let since: GoDuration = match given.parsed("since") {
        Ok(since) => since,
        Err(error) => return Ok(USAGE.refuse(&error.to_string())),
    };
    let client = cluster::connect(given.kubeconfig().as_deref()).await?;
    let namespace = given.text("namespace");
    let leader = leader(&client, namespace).await?;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let params = LogParams {
        container: Some(given.text("container").to_owned()),
        since_seconds: Some(since.rounded_seconds().max(1)),
        ..LogParams::default()
    };
    let log = pods.logs(&leader, &params).await.map_err(Cause::from);
    let log = log.with_context(|| format!("cannot read the log of pod {namespace}/{leader}"))?;
    let end = if log.is_empty() || log.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    Ok(print(&format!("{FRAME}\n{log}{end}{FRAME}\n")))
}

/// Returns the name of the scheduler's pod that leads in a namespace.
pub(crate) async fn leader(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get_opt(names::SCHEDULER_LEASE).await;
    let lease = lease
        .map_err(Cause::from)
        .with_context(|| format!("cannot read lease {namespace}/{}", names::SCHEDULER_LEASE))?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = format!("{}={}", labels::APP, names::SCHEDULER);
    let pods = cluster::list(&pods, &selector).await?;
    let running: Vec<&Pod> = pods.iter().filter(|pod| is_running(pod)).collect();
    let holder = holder.as_deref().filter(|holder| !holder.is_empty());
    if let Some(leader) =
        holder.and_then(|holder| running.iter().find(|pod| is_holder(pod, holder)))
    {
        return Ok(leader.name_any());
    }
    match (running.as_slice(), holder.and_then(pod_of)) {
        ([only], _) => Ok(only.name_any()),
        (_, Some(pod)) => Ok(pod.to_owned()),
        ([], None) => anyhow::bail!("no scheduler runs in namespace {namespace}"),
        (several, None) => anyhow::bail!(
            "nobody holds lease {namespace}/{}, so none of these leads: {}",
            names::SCHEDULER_LEASE,
            several
                .iter()
                .map(|pod| pod.name_any())
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// Returns whether a pod is the holder of a lease: the identity begins with the pod's name, or, where the pod's host has another name, ends with
/// its UID.
fn is_holder(pod: &Pod, identity: &str) -> bool {
    let uid = pod.uid().filter(|uid| !uid.is_empty());
    pod_of(identity) == Some(&pod.name_any()) || uid.is_some_and(|uid| identity.ends_with(&uid))
}

/// Returns the pod that the holder of a lease is: the identity up to its last `_` (operator.md 8).
fn pod_of(identity: &str) -> Option<&str> {
    let pod = identity.rsplit_once('_').map_or(identity, |(pod, _)| pod);
    (!pod.is_empty()).then_some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_known_by_its_pod() {
        assert_eq!(
            pod_of("secondary-scheduler-x_6f_1-2"),
            Some("secondary-scheduler-x_6f")
        );
        assert_eq!(pod_of("host"), Some("host"));
        assert_eq!(pod_of(""), None);
        let pod = |name: &str, uid: &str| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.uid = Some(uid.to_owned());
            pod
        };
        assert!(is_holder(&pod("p", "u-1"), "p_u-9"));
        assert!(is_holder(&pod("p", "u-1"), "machine_u-1"));
        assert!(!is_holder(&pod("p", "u-1"), "machine_u-2"));
        assert!(!is_holder(&pod("p", ""), "machine_u-2"));
    }
}
