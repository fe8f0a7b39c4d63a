//! Follows the TLS settings of the cluster (operator.md 2.2): a change of them ends the operator, whose next start hands the new ones to
//! every operand.

use api::openshift::config::{self, ApiServer};
use futures::StreamExt as _;
use kube::Client;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use manifests::platform::{Platform, TlsSettings};

/// Returns when the cluster asks for settings other than `current`; never where there are none to follow.
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
                // what cannot be followed is told by the next start, which fails for it
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
