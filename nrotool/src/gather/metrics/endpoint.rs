//! Where a pod has its metrics, by its flags and variables.

use api::metrics::RTE_PORT;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt as _;

use crate::gather::{Gather, dumps, namespaces};
use crate::inspectfeatures::OPERATOR_PODS;

/// Flag and variable that say how an exporter serves its metrics (rte.md 2.2, 2.3).
const MODE: &str = "metrics-mode";
const PORT: &str = "METRICS_PORT";
/// Flag of kube-scheduler and its default (scheduler.md 7.9).
const SECURE_PORT: &str = "secure-port";
const SCHEDULER_PORT: u16 = 10259;
/// Flags of the operator and the default of the second (operator.md 2).
const ENABLED: &str = "enable-metrics";
const ADDRESS: &str = "metrics-bind-address";
const OPERATOR_ADDRESS: &str = ":8080";

/// Where a pod has its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// The pod's namespace.
    pub(super) namespace: String,
    /// The pod's name.
    pub(super) pod: String,
    /// How they are served.
    pub(super) served: Served,
}

/// How metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// At this TCP port.
    Http(u16),
    /// At this TCP port, over TLS.
    Https(u16),
}

/// How a program serves its metrics, by its container.
type Program = fn(&Container) -> Option<Served>;

/// Finds the running pods of a namespace that serve metrics.
pub(super) async fn find(gather: &Gather, namespace: &str) -> Vec<Endpoint> {
    let programs: [(String, Program); 3] = [
        (namespaces::exporters(), exporter),
        (namespaces::schedulers(namespace), scheduler),
        (OPERATOR_PODS.to_owned(), operator),
    ];
    let mut found = Vec::new();
    for (selector, served) in programs {
        let pods = dumps::running(gather, namespace, &selector).await;
        found.extend(pods.iter().filter_map(|pod| {
            Some(Endpoint {
                namespace: namespace.to_owned(),
                pod: pod.name_any(),
                served: of_pod(pod, served)?,
            })
        }));
    }
    found
}

fn of_pod(pod: &Pod, served: Program) -> Option<Served> {
    pod.spec.as_ref()?.containers.iter().find_map(served)
}

fn exporter(container: &Container) -> Option<Served> {
    let mut variables = container.env.iter().flatten();
    let given = variables.find(|variable| variable.name == PORT);
    let given = given.and_then(|variable| variable.value.as_deref());
    let port = given.map_or(Some(RTE_PORT), |text| text.parse().ok())?;
    match flag(container, MODE)? {
        "httptls" => Some(Served::Https(port)),
        "http" => Some(Served::Http(port)),
        _ => None,
    }
}

fn scheduler(container: &Container) -> Option<Served> {
    let given = flag(container, SECURE_PORT);
    let port = given.map_or(Some(SCHEDULER_PORT), |text| text.parse().ok());
    port.filter(|port| *port != 0).map(Served::Https)
}

fn operator(container: &Container) -> Option<Served> {
    if flag(container, ENABLED).and_then(goflags::boolean) == Some(false) {
        return None;
    }
    let address = flag(container, ADDRESS).unwrap_or(OPERATOR_ADDRESS);
    // "0" means that they are not served
    let (_, port) = address.rsplit_once(':')?;
    port.parse().ok().map(Served::Https)
}

/// Returns the value of a flag, which may begin with one dash or two. The last one counts.
fn flag<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let words = container.command.iter().chain(&container.args).flatten();
    words
        .filter_map(|word| {
            let word = word.strip_prefix('-')?;
            let word = word.strip_prefix('-').unwrap_or(word);
            word.strip_prefix(name)?.strip_prefix('=')
        })
        .next_back()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod(args: &[&str], port: Option<&str>) -> Pod {
        let env: Vec<_> = port
            .map(|port| json!({"name": "METRICS_PORT", "value": port}))
            .into_iter()
            .collect();
        let pod = json!({
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "main", "args": args, "env": env}]},
        });
        serde_json::from_value(pod).expect("a pod")
    }

    #[rstest]
    #[case::tls(&["--v=2", "--metrics-mode=httptls"], Some("2113"), Some(Served::Https(2113)))]
    #[case::plain(&["--metrics-mode=http"], None, Some(Served::Http(2112)))]
    #[case::the_last_flag_counts(&["--metrics-mode=http", "--metrics-mode=disabled"], None, None)]
    #[case::none(&["--v=2"], Some("2112"), None)]
    #[case::no_port(&["--metrics-mode=http"], Some("many"), None)]
    fn an_exporter_has_a_mode_and_a_port(
        #[case] args: &[&str],
        #[case] port: Option<&str>,
        #[case] expected: Option<Served>,
    ) {
        assert_eq!(of_pod(&pod(args, port), exporter), expected);
    }

    #[rstest]
    #[case::default(&["--config=x"], Some(Served::Https(10259)))]
    #[case::elsewhere(&["--secure-port=1234"], Some(Served::Https(1234)))]
    #[case::off(&["--secure-port=0"], None)]
    fn a_scheduler_serves_over_tls_at_its_secure_port(
        #[case] args: &[&str],
        #[case] expected: Option<Served>,
    ) {
        assert_eq!(of_pod(&pod(args, None), scheduler), expected);
    }

    #[rstest]
    #[case::default(&["-v=4"], Some(Served::Https(8080)))]
    #[case::elsewhere(&["--metrics-bind-address=127.0.0.1:1234"], Some(Served::Https(1234)))]
    #[case::no_address(&["-metrics-bind-address=0"], None)]
    #[case::off(&["-enable-metrics=false"], None)]
    fn an_operator_serves_over_tls_at_its_address(
        #[case] args: &[&str],
        #[case] expected: Option<Served>,
    ) {
        assert_eq!(of_pod(&pod(args, None), operator), expected);
    }
}
