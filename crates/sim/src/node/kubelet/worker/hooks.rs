//! Lifecycle hooks of containers: `postStart` and `preStop`.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use super::probes;
use crate::node::kubelet::Kubelet;
use crate::node::kubelet::worker::prepared::Prepared;

/// Time limit of a command or a request of a hook.
const LIMIT: Duration = Duration::from_secs(30);
/// User agent of the requests, without the version that follows.
const AGENT: &str = "kube-lifecycle";

/// Runs a hook to its end. As in a kubelet, `tcpSocket` is accepted and does nothing, and the response of an HTTP server has no effect.
pub(crate) async fn run(
    kubelet: &Kubelet,
    prepared: &Prepared,
    container: &Container,
    address: Ipv4Addr,
    hook: &LifecycleHandler,
) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        return kubelet.run_in(prepared, &command, LIMIT).await;
    }
    if let Some(action) = &hook.http_get {
        let agent = probes::user_agent(AGENT);
        let asked = probes::request(address, container, action, &agent);
        let answered = tokio::time::timeout(LIMIT, asked).await;
        let answered = answered.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        return answered.map(drop);
    }
    if let Some(pause) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(pause.seconds.unsigned_abs())).await;
    }
    Ok(())
}
