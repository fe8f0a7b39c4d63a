//! The watches of a kubelet: the pods that are bound to its node, and the node itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher::{self, watcher};

use super::worker::is_finished;
use super::worker::signals::Signal;
use super::{Kubelet, static_pods};

impl Kubelet {
    /// Follows the pods of the node forever.
    pub(crate) async fn follow_pods(self: Arc<Self>) {
        let api: Api<Pod> = Api::all(self.client.clone());
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.name));
        loop {
            self.until_running().await;
            let mut events = watcher(api.clone(), mine.clone()).boxed();
            let mut listed = Vec::new();
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = self.until_stopped() => break,
                };
                match event {
                    None => break,
                    Some(Err(error)) => {
                        tracing::debug!(%error, node = self.name, "Watch of pods failed; trying again");
                        // The watcher retries at once, hence the pause.
                        tokio::time::sleep(Duration::from_millis(200)).await;
                    }
                    Some(Ok(watcher::Event::Init)) => listed.clear(),
                    Some(Ok(watcher::Event::InitApply(pod))) => listed.push(pod),
                    Some(Ok(watcher::Event::InitDone)) => {
                        self.handle_list(std::mem::take(&mut listed)).await;
                    }
                    Some(Ok(watcher::Event::Apply(pod))) => self.handle_pod(pod).await,
                    Some(Ok(watcher::Event::Delete(pod))) if static_pods::is_mirror(&pod) => {
                        self.remove_mirror(&pod);
                    }
                    Some(Ok(watcher::Event::Delete(pod))) => {
                        self.handle_removal(pod.metadata.uid.as_deref().unwrap_or_default());
                    }
                }
            }
        }
    }

    /// Follows the node's own object, because its labels and taints decide about pods.
    pub(crate) async fn follow_node(self: Arc<Self>) {
        let api: Api<Node> = Api::all(self.client.clone());
        let mine = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut events = watcher(api, mine).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                    self.apply_node(node);
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, node = self.name, "Watch of the node failed; trying again");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    async fn handle_list(self: &Arc<Self>, mut pods: Vec<Pod>) {
        let present: BTreeSet<String> = pods
            .iter()
            .filter_map(|pod| pod.metadata.uid.clone())
            .collect();
        let gone: Vec<String> = {
            let known = self.lock();
            let gone = known
                .iter()
                .filter(|(uid, known)| known.static_name.is_none() && !present.contains(*uid));
            gone.map(|(uid, _)| uid.clone()).collect()
        };
        for uid in gone {
            self.handle_removal(&uid);
        }
        self.keep_mirrors(&present);
        let created = |pod: &Pod| {
            let time = pod.metadata.creation_timestamp.as_ref();
            time.map_or(Timestamp::MIN, |time| time.0)
        };
        pods.sort_by_key(created);
        for pod in pods {
            self.handle_pod(pod).await;
        }
    }

    /// Handles the removal of a pod from the API server: its resources are free from now on, although its containers may take a while to
    /// end (`HandlePodRemoves`).
    fn handle_removal(&self, uid: &str) {
        if let Some(known) = self.lock().get(uid) {
            // A worker that has ended needs no signal.
            let _ = known.sender.send(Signal::Gone);
        }
        self.managers.stopped(uid);
        self.retry_resizes();
    }

    /// Handles a pod that is new or changed.
    async fn handle_pod(self: &Arc<Self>, pod: Pod) {
        if static_pods::is_mirror(&pod) {
            return self.handle_mirror(pod).await;
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if let Some(known) = self.lock().get(&uid) {
            let _ = known.sender.send(Signal::Changed(Box::new(pod)));
            return;
        }
        if is_finished(&pod) {
            return;
        }
        let is_ending = pod.metadata.deletion_timestamp.is_some();
        if is_ending {
            self.start(pod);
            return;
        }
        loop {
            if let Err(refusal) = self.admit(&pod).await {
                self.refuse(pod, refusal);
                return;
            }
            if self.start_if_active(&pod) {
                return;
            }
        }
    }
}
