//! What the scheduler says of itself: its metrics.

use std::path::{Path, PathBuf};

use api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Port of its endpoints.
const PORT: u16 = 10259;

/// Why the metrics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// The address of the pod is none.
    #[error("cannot use the address of the scheduler's pod")]
    Address(#[from] http::Error),
    /// No pod of the scheduler runs.
    #[error("no pod of the scheduler runs")]
    NoPod,
    /// The API server or the scheduler did not answer.
    #[error("no answer with the scheduler's metrics")]
    Request(#[from] Box<kube::Error>),
}

/// Reads the metrics of the running scheduler as text, with the token of a kubeconfig. The pod must be reachable from here, as those of an
/// embedded cluster are.
///
/// # Errors
/// Returns an error if no scheduler runs, or it does not answer.
pub async fn metrics(client: &Client, kubeconfig: &Path) -> Result<String, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::NAMESPACE);
    let ours = ListParams::default().labels(&format!("app={}", names::SCHEDULER));
    let all = pods.list(&ours).await.map_err(Box::new)?;
    let address = all.into_iter().find_map(|pod| {
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        let status = pod.status.filter(|_| !is_leaving)?;
        status
            .pod_ip
            .filter(|_| status.phase.as_deref() == Some("Running"))
    });
    let address = address.ok_or(Error::NoPod)?;
    let failed = |source| Error::Kubeconfig {
        path: kubeconfig.to_owned(),
        source,
    };
    let config = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(failed)?;
    config.cluster_url = http::Uri::builder()
        .scheme("https")
        .authority(format!("{address}:{PORT}"))
        .path_and_query("/")
        .build()?;
    // it signs its certificate itself
    config.accept_invalid_certs = true;
    let direct = Client::try_from(config).map_err(Box::new)?;
    let request = http::Request::get("/metrics").body(Vec::new())?;
    Ok(direct.request_text(request).await.map_err(Box::new)?)
}

/// Returns the sum of all samples of a metric whose labels contain this text.
pub fn sum(metrics: &str, name: &str, labels: &str) -> Option<f64> {
    let samples = metrics.lines().filter_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        let rest = sample.strip_prefix(name)?;
        let is_it = (rest.is_empty() || rest.starts_with('{')) && rest.contains(labels);
        is_it.then(|| value.parse::<f64>().ok()).flatten()
    });
    samples.fold(None, |sum, value| Some(sum.unwrap_or_default() + value))
}

/// Returns what the scheduler still keeps of pods although all pods of its profile run: charges, assumed pods, waiting pods.
pub fn left_over(metrics: &str) -> Vec<String> {
    let wanted = [
        ("scheduler_topology_charged_pods", "", "pods are charged"),
        (
            "scheduler_cache_size",
            "type=\"assumed_pods\"",
            "pods are assumed",
        ),
        ("scheduler_pending_pods", "", "pods wait"),
    ];
    wanted
        .into_iter()
        .filter_map(|(name, labels, what)| match sum(metrics, name, labels) {
            Some(0.0) => None,
            Some(count) => Some(format!("{count} {what}")),
            None => Some(format!("there is no metric {name}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: &str = "# HELP scheduler_pending_pods x\n\
        scheduler_pending_pods{queue=\"active\"} 0\n\
        scheduler_pending_pods{queue=\"backoff\"} 0\n\
        scheduler_cache_size{type=\"nodes\"} 5\n\
        scheduler_cache_size{type=\"assumed_pods\"} 0\n\
        scheduler_topology_charged_pods 0\n";

    #[test]
    fn an_idle_scheduler_keeps_nothing() {
        assert_eq!(left_over(IDLE), Vec::<String>::new());
    }

    #[test]
    fn what_is_kept_or_not_told_is_found() {
        let busy = IDLE
            .replace("charged_pods 0", "charged_pods 2")
            .replace("\"backoff\"} 0", "\"backoff\"} 1");
        assert_eq!(left_over(&busy), ["2 pods are charged", "1 pods wait"]);
        assert_eq!(left_over("").len(), 3);
    }
}
