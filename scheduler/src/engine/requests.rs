//! Carries out effects: each in a task that tells the loop how it ended.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::effect::{Effect, Eviction};
use super::message::{Binding, Message, Placement, Preemption, VolumesWritten, Waiting};
use crate::api_tasks::report::{Report, Reporter};
use crate::api_tasks::volume_bind::{self, Changes};
use crate::api_tasks::{bind, evict};
use crate::metrics::{Metrics, Point, Status};

/// Maximum number of concurrent binding requests. Each uses a connection, and opening one costs more than a binding.
const BINDINGS: usize = 32;

/// Sends requests to the API server.
pub struct Requests {
    client: Client,
    reporter: Reporter,
    metrics: Metrics,
    channel: mpsc::Sender<Message>,
    tasks: JoinSet<()>,
    connections: Arc<Semaphore>,
    /// Cancelled once volumes have to be known.
    volumes_wanted: CancellationToken,
}

impl Requests {
    /// Creates the sender of requests. `channel` gets their results; `volumes_wanted` is cancelled once volumes have to be known.
    pub fn new(
        client: Client,
        reporter: Reporter,
        metrics: Metrics,
        channel: mpsc::Sender<Message>,
        volumes_wanted: CancellationToken,
    ) -> Self {
        Self {
            client,
            reporter,
            metrics,
            channel,
            tasks: JoinSet::new(),
            connections: Arc::new(Semaphore::new(BINDINGS)),
            volumes_wanted,
        }
    }

    /// Starts what has to be done, in order.
    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::WatchVolumes => self.volumes_wanted.cancel(),
                Effect::WriteVolumes(waiting, changes) => self.write_volumes(*waiting, changes),
                Effect::Bind(placement) => self.bind(*placement),
                Effect::Evict(eviction) => self.evict(*eviction),
                Effect::Report(report) => self.reporter.send(*report),
            }
        }
    }

    /// Forgets the tasks that have ended.
    pub(super) fn forget_ended(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    /// Waits for the requests in progress, at most `limit`.
    pub(super) async fn finish(mut self, limit: Duration) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::warn!("Some bindings did not end in time");
        }
    }

    fn evict(&mut self, eviction: Eviction) {
        let (client, channel, reporter) = (
            self.client.clone(),
            self.channel.clone(),
            self.reporter.clone(),
        );
        self.tasks.spawn(async move {
            let Eviction {
                pod,
                rejected_by,
                node,
                victims,
            } = eviction;
            for victim in victims {
                match evict::evict(client.clone(), &victim, &pod.scheduler).await {
                    Ok(()) => reporter.send(Report::preempted(&victim, &pod, &node)),
                    Err(error) => {
                        tracing::warn!(pod = %pod.key, error = %daemon::log::chain(&error), "Preemption failed");
                    }
                }
            }
            let preemption = Preemption {
                pod: pod.key,
                uid: pod.uid,
                rejected_by,
            };
            // The receiver is gone only when the process ends.
            drop(channel.send(Message::Preempted(Box::new(preemption))).await);
        });
    }

    fn bind(&mut self, placement: Placement) {
        let (client, channel) = (self.client.clone(), self.channel.clone());
        let connections = Arc::clone(&self.connections);
        let metrics = self.metrics.clone();
        self.tasks.spawn(async move {
            // an error means that the semaphore is closed, which never happens
            let permit = connections.acquire().await;
            let Placement { pod, node, .. } = &placement;
            let started = Instant::now();
            let result = bind::bind(client, &pod.key, &pod.uid, node).await;
            let status = if result.is_ok() {
                Status::Success
            } else {
                Status::Error
            };
            metrics.point(Point::Bind, status, &pod.scheduler, started.elapsed());
            drop(permit);
            let binding = Binding { placement, result };
            // The receiver is gone only when the process ends.
            drop(channel.send(Message::Bound(Box::new(binding))).await);
        });
    }

    fn write_volumes(&mut self, waiting: Waiting, changes: Option<Changes>) {
        let (client, channel) = (self.client.clone(), self.channel.clone());
        let connections = Arc::clone(&self.connections);
        self.tasks.spawn(async move {
            // an error means that the semaphore is closed, which never happens
            let permit = connections.acquire().await;
            let result = match changes {
                Some(changes) => changes.write(&client).await,
                None => Err(volume_bind::Error::Undone("a volume is gone".to_owned())),
            };
            drop(permit);
            let written = VolumesWritten { waiting, result };
            // The receiver is gone only when the process ends.
            drop(
                channel
                    .send(Message::VolumesWritten(Box::new(written)))
                    .await,
            );
        });
    }
}
