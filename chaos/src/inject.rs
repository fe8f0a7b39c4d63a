//! Injects the faults of a plan, each at its time, into the processes that are there by then.

use std::time::Duration;

use cluster_faults::{Disturbance, Faults, Process, Step};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep_until};

use crate::plan::ANYWHERE;
use crate::recorder::Recorder;
use crate::recording::Entry;

/// Injects all faults; returns when the last one has ended.
pub async fn play(client: &Client, faults: &Faults, steps: &[Step], recorder: &Recorder) {
    let start = Instant::now();
    let all = steps.iter().enumerate().map(async |(id, step)| {
        sleep_until(start + step.after()).await;
        let outcome = inject(client, faults, (id, step), recorder).await;
        recorder.add(Entry::FaultEnded { id, outcome });
    });
    futures::future::join_all(all).await;
}

async fn inject(
    client: &Client,
    faults: &Faults,
    (id, step): (usize, &Step),
    recorder: &Recorder,
) -> Result<u64, String> {
    let what = match &step.what {
        Disturbance::Kill { process } => Disturbance::Kill {
            process: find(client, process).await?,
        },
        Disturbance::Stop { process } => Disturbance::Stop {
            process: find(client, process).await?,
        },
        other => other.clone(),
    };
    let lasting: Duration = step.lasting();
    recorder.add(Entry::FaultBegan {
        id,
        what: Box::new(what.clone()),
    });
    let injected = faults.inject(&what, lasting).await;
    injected.map_err(|error| suite::context::chain(&error))
}

/// Finds a running pod with the container of a process, on its node.
async fn find(client: &Client, process: &Process) -> Result<Process, String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &process.namespace);
    let all = pods.list(&ListParams::default()).await;
    let all = all.map_err(|error| error.to_string())?;
    let found = all.iter().find_map(|pod| {
        let spec = pod.spec.as_ref()?;
        let node = spec.node_name.as_deref()?;
        let runs = pod.status.as_ref()?.phase.as_deref() == Some("Running");
        let mut containers = spec.containers.iter();
        let has = containers.any(|container| container.name == process.container);
        let is_there = process.node == ANYWHERE || process.node == node;
        (has && runs && is_there).then(|| Process {
            node: node.to_owned(),
            pod: pod.name_any(),
            ..process.clone()
        })
    });
    found.ok_or_else(|| format!("no pod runs {} on {}", process.container, process.node))
}
