//! Watches the TLS settings of the cluster (operator.md 2.2). A change ends the operator; its next start passes the new settings to every
//! operand.

use api::openshift::config::{self, ApiServer};
use futures::StreamExt as _;
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use manifests::platform::{Platform, TlsSettings};

/// Returns when the settings of the cluster differ from `current`. Never returns on plain Kubernetes, which has no such settings.
pub(crate) async fn changed(client: &Client, platform: Platform, current: &TlsSettings) {
    if !platform.is_openshift() {
        std::future::pending::<()>().await;
    }
    let only = Config::default().fields(&format!("metadata.name={}", config::CLUSTER));
    let watch = watcher(Api::<ApiServer>::all(client.clone()), only)
        .default_backoff()
        .applied_objects();
    let mut watch = std::pin::pin!(watch);
    while let Some(event) = watch.next().await {
        match event {
            Ok(server) => {
                let profile = server.spec.tls_security_profile;
                // an unusable profile also ends the operator: the next start fails with the error message
                if TlsSettings::of_profile(profile.as_ref()).as_ref() != Ok(current) {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(error = %daemon::log::chain(&error), "Watch interrupted");
            }
        }
    }
    std::future::pending::<()>().await;
}
