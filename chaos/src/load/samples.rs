//! What the kernel and the scheduler say of the stack's processes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use api::names;
use cri_runtime::control::State;
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use testbed::embedded::EmbeddedCluster;

use crate::scheduler;

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// Process id.
    pub pid: i32,
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// Open file descriptors.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

/// One look at all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Seconds since the load was there.
    pub seconds: u64,
    /// Each process by its container and node.
    pub programs: BTreeMap<String, Program>,
    /// Requests of the scheduler to the API server since it started.
    pub requests: f64,
    /// Pods that wait, as the scheduler says.
    pub pending: f64,
    /// How many seconds the pod that fits and has waited longest has been waiting for its node.
    pub waited: i64,
}

/// Looks at the processes of the stack.
///
/// # Errors
/// Returns an error if a process has no figures, or the scheduler does not answer.
pub(super) async fn take(
    cluster: &EmbeddedCluster,
    at: Duration,
    waited: i64,
) -> anyhow::Result<Sample> {
    let metrics = scheduler::metrics(&cluster.client(), &cluster.kubeconfig()).await?;
    let requests = scheduler::sum(&metrics, "rest_client_requests_total", "");
    let pending = scheduler::sum(&metrics, "scheduler_pending_pods", "");
    Ok(Sample {
        seconds: at.as_secs(),
        programs: programs(cluster)?,
        requests: requests.context("the scheduler counts no requests")?,
        pending: pending.context("the scheduler counts no waiting pods")?,
        waited,
    })
}

fn programs(cluster: &EmbeddedCluster) -> anyhow::Result<BTreeMap<String, Program>> {
    let mut programs = BTreeMap::new();
    for node in cluster.nodes() {
        for container in node.containers() {
            let target = &container.target;
            let is_ours = target.namespace == names::NAMESPACE
                && target.container != names::RTE_HELPER_CONTAINER
                && container.state == State::Running;
            let Some(pid) = container.pid.filter(|_| is_ours) else {
                continue;
            };
            let name = format!("{} on {}", target.container, node.name());
            programs.insert(name, look(pid).context("the figures of a process")?);
        }
    }
    Ok(programs)
}

fn look(pid: i32) -> anyhow::Result<Program> {
    let process = Process::new(pid)?;
    let status = process.status()?;
    Ok(Program {
        pid,
        resident_kib: status.vmrss.context("the process has no memory")?,
        files: process.fd_count()? as u64,
        threads: status.threads,
    })
}
