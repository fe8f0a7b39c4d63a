//! State that the controllers share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use apply::Applier;
use kube::Client;
use manifests::platform::{Platform, TlsSettings};
use manifests::rte::Image;
use manifests::rte::config_map::KubeletSettings;

use crate::images::Policy;
use crate::metrics::Metrics;

/// Wait after the first failure; it doubles with every further one.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Maximum wait after a failure.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) applier: Applier,
    /// Namespace of the operands.
    pub(crate) namespace: String,
    pub(crate) platform: Platform,
    /// Exporter image when the operator resource sets none.
    pub(crate) image: Image,
    pub(crate) images: Policy,
    pub(crate) tls: TlsSettings,
    pub(crate) api_server_ports: Vec<u16>,
    pub(crate) metrics: Metrics,
    /// Name of this process in Events.
    pub(crate) instance: String,
    /// Whether conditions of machine config pools are copied into the status of the operator resource.
    pub(crate) forwards_pool_conditions: bool,
    /// Whether the kubelets leave terminated pods out of their answers to exporters.
    pub(crate) lists_active_pods: bool,
    failures: Mutex<HashMap<(&'static str, String), u32>>,
    /// The last known settings of each node's kubelet.
    kubelets: Mutex<HashMap<String, KubeletSettings>>,
}

/// Inputs of [`Context`].
pub(crate) struct Settings {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) platform: Platform,
    pub(crate) image: Image,
    pub(crate) images: Policy,
    pub(crate) tls: TlsSettings,
    pub(crate) api_server_ports: Vec<u16>,
    pub(crate) metrics: Metrics,
    /// Name of this process in Events.
    pub(crate) instance: String,
    pub(crate) forwards_pool_conditions: bool,
    pub(crate) lists_active_pods: bool,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings {
            client,
            namespace,
            platform,
            image,
            images,
            tls,
            api_server_ports,
            metrics,
            instance,
            forwards_pool_conditions,
            lists_active_pods,
        } = settings;
        Self {
            applier: Applier::new(client.clone()),
            client,
            namespace,
            platform,
            image,
            images,
            tls,
            api_server_ports,
            metrics,
            instance,
            forwards_pool_conditions,
            lists_active_pods,
            failures: Mutex::default(),
            kubelets: Mutex::default(),
        }
    }

    /// Returns the settings of a node's kubelet: those it reported now, or the last known ones if it did not answer.
    pub(crate) fn kubelet(
        &self,
        node: &str,
        answer: Option<KubeletSettings>,
    ) -> Option<KubeletSettings> {
        let mut kubelets = self.kubelets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = answer {
            kubelets.insert(node.to_owned(), answer);
        }
        kubelets.get(node).cloned()
    }

    /// Forgets the kubelet settings of nodes that no longer exist.
    pub(crate) fn retain_kubelets(&self, exists: impl Fn(&str) -> bool) {
        let mut kubelets = self.kubelets.lock().unwrap_or_else(PoisonError::into_inner);
        kubelets.retain(|node, _| exists(node));
    }

    /// Counts a successful reconciliation and resets the wait after failures.
    pub(crate) fn succeeded(&self, controller: &'static str, object: &str) {
        self.metrics.count(controller, "success");
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(controller, object.to_owned()));
    }

    /// Returns whether the last reconciliation failed.
    pub(crate) fn is_failing(&self, controller: &'static str, object: &str) -> bool {
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&(controller, object.to_owned()))
    }

    /// Counts a failure. Returns the wait until the next attempt.
    pub(crate) fn failed(&self, controller: &'static str, object: &str) -> Duration {
        self.metrics.count(controller, "error");
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry((controller, object.to_owned())).or_insert(0);
        let wait = FIRST_RETRY
            .saturating_mul(1 << (*count).min(16))
            .min(LONGEST_RETRY);
        *count += 1;
        wait
    }
}
