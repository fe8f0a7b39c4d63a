//! Starts the watches of all kinds that the profiles need.

use kube::Client;
use kube::api::Api;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::follow::{Notice, follow};
use super::kinds::{self, Need, Needs, Visitor, Watched};
use crate::metrics::Metrics;

/// Starts the watches of the kinds that are needed in `tasks`. They deliver to `channel`. Those for volumes start once `volumes_wanted` is
/// cancelled.
pub fn start<M: From<Notice> + Send + 'static>(
    needs: Needs,
    volumes_wanted: &CancellationToken,
    client: &Client,
    channel: &mpsc::Sender<M>,
    metrics: &Metrics,
    tasks: &mut JoinSet<()>,
) {
    kinds::each(&mut Starting {
        needs,
        volumes_wanted,
        client,
        channel,
        metrics,
        tasks,
    });
}

struct Starting<'a, M> {
    needs: Needs,
    volumes_wanted: &'a CancellationToken,
    client: &'a Client,
    channel: &'a mpsc::Sender<M>,
    metrics: &'a Metrics,
    tasks: &'a mut JoinSet<()>,
}

impl<M: From<Notice> + Send + 'static> Visitor for Starting<'_, M> {
    fn visit<K: Watched>(&mut self) {
        if !self.needs.include(K::KIND) {
            return;
        }
        let watch = follow(
            Api::<K>::all(self.client.clone()),
            self.channel.clone(),
            self.metrics.clone(),
        );
        if K::KIND.need() == Need::Volumes {
            let wanted = self.volumes_wanted.clone();
            self.tasks.spawn(async move {
                wanted.cancelled().await;
                watch.await;
            });
        } else {
            self.tasks.spawn(watch);
        }
    }
}
