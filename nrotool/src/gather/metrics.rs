//! The metrics of the exporters, by way of the API server.

use api::labels;
use api::metrics::RTE_PORT;
use apply::Cause;
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Client, ResourceExt as _};

use super::Gather;
use super::dumps;
use super::folder::name;

/// Number of exporters that are asked at a time.
const CONCURRENT: usize = 8;
/// Flag and variables that say how an exporter serves its metrics (rte.md 2.2, 2.3).
const MODE: &str = "--metrics-mode=";
const PORT: &str = "METRICS_PORT";

/// Collects from the exporters of a namespace that serve metrics.
pub(super) async fn collect(gather: &Gather, namespace: &str) {
    let selector = format!("{}={}", labels::RTE_POD, labels::RTE_POD_VALUE);
    let exporters = dumps::running(gather, namespace, &selector).await;
    stream::iter(&exporters)
        .for_each_concurrent(CONCURRENT, |pod| async move {
            let Some((scheme, port)) = served(pod) else {
                return;
            };
            let pod = pod.name_any();
            let metrics = get(&gather.client, namespace, &pod, scheme, &port);
            let metrics = gather.limits.request(metrics).await;
            if let Some(text) = gather
                .folder
                .or_error(&format!("metrics of {pod}"), metrics)
            {
                let path = format!(
                    "namespaces/{}/pods/{}/metrics.txt",
                    name(namespace),
                    name(&pod)
                );
                gather.folder.text(&path, &text);
            }
        })
        .await;
}

async fn get(
    client: &Client,
    namespace: &str,
    pod: &str,
    scheme: &str,
    port: &str,
) -> Result<String, Cause> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}:{pod}:{port}/proxy/metrics");
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    Ok(client.request_text(request).await?)
}

/// Returns scheme and port of a pod's metrics, if its flags say that it serves any.
fn served(pod: &Pod) -> Option<(&'static str, String)> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find_map(|container| {
        let words = container.command.iter().chain(&container.args).flatten();
        let mode = words
            .filter_map(|word| word.strip_prefix(MODE))
            .next_back()?;
        let scheme = match mode {
            "httptls" => "https",
            "http" => "http",
            _ => return None,
        };
        Some((scheme, port(container)))
    })
}

fn port(container: &Container) -> String {
    let mut variables = container.env.iter().flatten();
    let given = variables.find(|variable| variable.name == PORT);
    let given = given.and_then(|variable| variable.value.clone());
    given.unwrap_or_else(|| RTE_PORT.to_string())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::tls(&["--v=2", "--metrics-mode=httptls"], Some("2113"), Some(("https", "2113")))]
    #[case::plain(&["--metrics-mode=http"], None, Some(("http", "2112")))]
    #[case::the_last_flag_counts(&["--metrics-mode=http", "--metrics-mode=disabled"], None, None)]
    #[case::none(&["--v=2"], Some("2112"), None)]
    fn flags_and_variables_say_where_metrics_are(
        #[case] args: &[&str],
        #[case] port: Option<&str>,
        #[case] expected: Option<(&str, &str)>,
    ) {
        let env: Vec<_> = port
            .map(|port| json!({"name": "METRICS_PORT", "value": port}))
            .into_iter()
            .collect();
        let pod = json!({
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "helper"}, {"name": "main", "args": args, "env": env}]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let found = served(&pod);
        assert_eq!(
            found
                .as_ref()
                .map(|(scheme, port)| (*scheme, port.as_str())),
            expected
        );
    }
}
