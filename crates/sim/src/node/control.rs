//! Start, stop and settings of a node's kubelet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster_spec::kubelet::KubeletSettings;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

use super::kubelet::static_pods;
use super::{Error, PODRESOURCES, SimulatedNode, endpoint, registration, tls};

/// Time limit for a node to become ready with all devices.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

impl SimulatedNode {
    /// Starts the servers, registers the node and then starts the kubelet.
    pub(super) async fn run(&self) -> Result<(), Error> {
        let kubelet = &self.kubelet;
        self.abort_kubelet_tasks();
        self.join_aborted().await;
        self.write_config()?;
        let mut tasks = vec![kubelet.managers.serve().await?];
        self.start_podresources().await?;
        let listener = endpoint::listen(kubelet).await?;
        let facts = registration::Facts {
            taints: self.plan.taints.clone(),
            port: endpoint::port(&listener)?,
            boot_id: self.boot_id.clone(),
        };
        let tls = tls::serving(&kubelet.name, kubelet.addresses.node(), &self.authorities)?;
        let endpoint_facts = Arc::new(endpoint::Facts {
            settings: self.kubelet_settings(),
            machine: self.plan.machine.clone(),
            access: endpoint::Access::new(kubelet.client.clone(), &kubelet.name),
        });
        tasks.push(tokio::spawn(endpoint::serve(
            Arc::clone(kubelet),
            listener,
            tls,
            endpoint_facts,
        )));
        let registering = registration::register(kubelet, &facts);
        let mut node = tokio::time::timeout(READY_TIMEOUT, registering)
            .await
            .map_err(|_| {
                Error::NotReady(kubelet.name.clone(), "it is not registered".to_owned())
            })?;
        // Labels are applied once; later changes by others are kept.
        if !self.is_labelled.load(Ordering::Acquire) {
            if let Some(labelled) = self.label(&node).await? {
                node = labelled;
            }
            self.is_labelled.store(true, Ordering::Release);
        }
        kubelet.apply_node(node.clone());
        kubelet.set_running(true);
        registration::record_start_events(kubelet);
        let manifests = self.kubelet_settings().extra.remove("staticPodPath");
        let manifests = manifests.and_then(|path| path.as_str().map(PathBuf::from));
        tasks.push(tokio::spawn(static_pods::follow(
            Arc::clone(kubelet),
            manifests,
        )));
        tasks.push(tokio::spawn(registration::report(
            Arc::clone(kubelet),
            facts,
        )));
        tasks.push(tokio::spawn(registration::renew(Arc::clone(kubelet), node)));
        *self.kubelet_tasks.lock() = tasks;
        Ok(())
    }

    /// Applies the labels that an administrator sets; returns the labelled node if something was missing.
    async fn label(&self, node: &Node) -> Result<Option<Node>, Error> {
        let present = node.metadata.labels.clone().unwrap_or_default();
        let missing: BTreeMap<&str, &str> = self
            .plan
            .labels
            .iter()
            .filter(|(label, _)| !present.contains_key(*label))
            .map(|(label, value)| (label.as_str(), value.as_str()))
            .collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let patch = json!({ "metadata": { "labels": missing } });
        let api: Api<Node> = Api::all(self.administrator.clone());
        let patched = api
            .patch(self.name(), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(Box::new)?;
        Ok(Some(patched))
    }

    pub(super) fn abort_kubelet_tasks(&self) {
        let mut tasks = std::mem::take(&mut *self.kubelet_tasks.lock());
        tasks.extend(self.podresources_task.lock().take());
        for task in &tasks {
            task.abort();
        }
        self.aborted_tasks.lock().append(&mut tasks);
    }

    /// Waits until the aborted tasks have ended and hold nothing any more.
    async fn join_aborted(&self) {
        let tasks = std::mem::take(&mut *self.aborted_tasks.lock());
        for task in tasks {
            // The task was aborted, so its result does not matter.
            let _ = task.await;
        }
    }

    /// Stops the service of the podresources socket and closes all its connections. Returns the path of the socket once nothing is there
    /// any more.
    pub async fn stop_podresources(&self) -> PathBuf {
        let task = self.podresources_task.lock().take();
        if let Some(task) = task {
            task.abort();
            self.aborted_tasks.lock().push(task);
        }
        self.join_aborted().await;
        self.kubelet.layout.kubelet(PODRESOURCES)
    }

    /// Serves the podresources socket again.
    pub async fn start_podresources(&self) -> Result<(), Error> {
        let task = self.kubelet.managers.serve_podresources().await?;
        *self.podresources_task.lock() = Some(task);
        Ok(())
    }

    /// Waits until the API server reports the node as ready with all devices of its machine.
    pub async fn ready(&self) -> Result<(), Error> {
        let api: Api<Node> = Api::all(self.administrator.clone());
        let mine = watcher::Config::default().fields(&format!("metadata.name={}", self.name()));
        let mut nodes = Box::pin(watcher(api, mine).default_backoff().applied_objects());
        let deadline = Instant::now() + READY_TIMEOUT;
        let mut problem = "it has not reported yet".to_owned();
        loop {
            let next = futures::StreamExt::next(&mut nodes);
            match tokio::time::timeout_at(deadline.into(), next).await {
                Ok(Some(Ok(node))) => match self.not_ready_reason(&node) {
                    None => return Ok(()),
                    Some(text) => problem = text,
                },
                Ok(Some(Err(error))) => problem = error.to_string(),
                Ok(None) | Err(_) => {
                    return Err(Error::NotReady(self.name().to_owned(), problem));
                }
            }
        }
    }

    /// Returns why a Node object does not show this node as ready, or `None` if it does.
    fn not_ready_reason(&self, node: &Node) -> Option<String> {
        let Some(status) = &node.status else {
            return Some("it has not reported yet".to_owned());
        };
        let is_ready = status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if !is_ready {
            return Some("it is not ready".to_owned());
        }
        let reported = |resource: &str| {
            let quantity = status.allocatable.as_ref()?.get(resource)?;
            quantity.0.parse().ok()
        };
        let missing = self.plan().unreported_devices(reported);
        missing.map(|resource| format!("it does not report all of {resource}"))
    }

    /// Stops the kubelet. The node goes silent; its containers live on.
    pub fn stop_kubelet(&self) {
        self.kubelet.set_running(false);
        self.abort_kubelet_tasks();
        self.kubelet.managers.disconnect_plugins();
    }

    /// Starts the stopped kubelet with its last settings; returns when the node is ready again.
    pub async fn start_kubelet(&self) -> Result<(), Error> {
        self.kubelet.restore_pods();
        self.run().await?;
        self.ready().await
    }

    /// Stops the kubelet, changes its settings, and starts it. As on a real node, the state of its CPU and memory managers is removed:
    /// drain the node first, or its pods are admitted again.
    ///
    /// Returns when the kubelet reports the node ready with all devices. Containers live on.
    pub async fn restart_kubelet(&self, settings: &KubeletSettings) -> Result<(), Error> {
        self.stop_kubelet();
        self.kubelet.managers.remove_state()?;
        self.kubelet.managers.reset(&self.plan.machine, settings)?;
        settings.clone_into(&mut self.settings.lock());
        self.run().await?;
        self.ready().await?;
        self.kubelet.readmit_pods().await;
        Ok(())
    }

    /// Writes the kubelet's configuration where a node has it that kubeadm has set up, for programs that read it there.
    fn write_config(&self) -> Result<(), Error> {
        let settings = self.kubelet_settings();
        let socket = Path::new("/run/numaresources.sock");
        let config = settings.configuration(&self.plan.machine, socket, &self.plan.taints);
        let text = serde_yaml::to_string(&config).map_err(std::io::Error::other)?;
        fs_err::write(self.kubelet.layout.kubelet("config.yaml"), text)?;
        Ok(())
    }

    /// Stops the kubelet, changes its settings, and starts it with the existing state files. Containers live on, and pods keep their
    /// resources.
    ///
    /// Like a real kubelet it does not start when the state does not fit the settings. It is stopped then, and [`Self::restart_kubelet`] or
    /// the former settings start it again.
    pub async fn reconfigure_kubelet(&self, settings: &KubeletSettings) -> Result<(), Error> {
        self.stop_kubelet();
        let refused = self.kubelet.managers.resume(&self.plan.machine, settings)?;
        settings.clone_into(&mut self.settings.lock());
        self.kubelet.evict_all(refused);
        self.run().await?;
        self.ready().await
    }
}
