//! Hooks of containers: what is done after a start and before an end.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use super::kubelet::Kubelet;
use super::probes;
use super::worker::Prepared;

/// How long a command or a request of a hook may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Who asks.
const AGENT: &str = "kube-lifecycle/1.35";

/// Runs one to its end. A connection alone (`tcpSocket`) is taken by the API and does nothing, as in a kubelet; so is the answer
/// of a server without influence.
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
        let asked = probes::request(address, container, action, AGENT);
        let answered = tokio::time::timeout(LIMIT, asked).await;
        let answered = answered.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        return answered.map(drop);
    }
    if let Some(pause) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(pause.seconds.unsigned_abs())).await;
    }
    Ok(())
}
