//! What the controllers share.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use apply::Applier;
use kube::Client;
use manifests::platform::{Platform, TlsSettings};
use manifests::rte::Image;

use crate::images::Policy;
use crate::metrics::Metrics;

/// First wait after a failure; it doubles with every further one.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Longest wait after a failure.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) applier: Applier,
    /// Where the operands live.
    pub(crate) namespace: String,
    pub(crate) platform: Platform,
    /// Exporter image when the operator resource names none.
    pub(crate) image: Image,
    pub(crate) images: Policy,
    pub(crate) tls: TlsSettings,
    pub(crate) api_server_ports: Vec<u16>,
    pub(crate) metrics: Metrics,
    failures: Mutex<HashMap<(&'static str, String), u32>>,
}

/// What [`Context`] is made of.
pub(crate) struct Settings {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) platform: Platform,
    pub(crate) image: Image,
    pub(crate) images: Policy,
    pub(crate) api_server_ports: Vec<u16>,
    pub(crate) metrics: Metrics,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        let Settings {
            client,
            namespace,
            platform,
            image,
            images,
            api_server_ports,
            metrics,
        } = settings;
        Self {
            applier: Applier::new(client.clone()),
            client,
            namespace,
            platform,
            image,
            images,
            tls: TlsSettings::default(),
            api_server_ports,
            metrics,
            failures: Mutex::default(),
        }
    }

    /// Counts a good reconciliation: the next failure is retried soon again.
    pub(crate) fn succeeded(&self, controller: &'static str, object: &str) {
        self.metrics.count(controller, "success");
        self.failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(controller, object.to_owned()));
    }

    /// Counts a failure; says how long to wait before the next try.
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
