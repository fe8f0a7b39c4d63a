//! What the Prometheus operator of OpenShift needs to collect metrics (operator.md 6.7): permissions of its account, and a `ServiceMonitor` for
//! the operator and one for the exporters, with which it sends the token of that account. The original has none for exporters.

use std::collections::BTreeMap;

use api::names;
use serde_json::{Value, json};

use super::{METRICS_SERVICE, selected_labels, users};
use crate::{rbac, rte, to_value};

/// ServiceAccount that collects metrics on OpenShift; also the name of its Role and RoleBinding.
const PROMETHEUS: &str = "prometheus-k8s";
/// Its namespace.
const MONITORING: &str = "openshift-monitoring";
/// Name of the ClusterRole of those who may read metrics, and of its binding.
const METRICS_READER: &str = "numaresources-metrics-reader";

/// Returns the objects in the order in which they are applied.
pub fn objects(namespace: &str) -> Vec<Value> {
    let reading = |groups: &[&str], resources: &[&str]| {
        rbac::rule(groups, resources, &["get", "list", "watch"])
    };
    let rules = vec![
        reading(&[""], &["services", "endpoints", "pods"]),
        reading(&["discovery.k8s.io"], &["endpointslices"]),
    ];
    let mut binding = rbac::role_binding(PROMETHEUS, PROMETHEUS, namespace);
    for subject in binding.subjects.iter_mut().flatten() {
        subject.namespace = Some(MONITORING.into());
    }
    let reader = rbac::cluster_role_binding(METRICS_READER, PROMETHEUS, MONITORING);
    vec![
        to_value(&rbac::role(PROMETHEUS, namespace, rules)),
        to_value(&binding),
        to_value(&users::metrics_reader(METRICS_READER)),
        to_value(&reader),
        monitor(
            "numaresources-controller-manager-metrics-monitor",
            namespace,
            (METRICS_SERVICE, "https", &selected_labels()),
        ),
        monitor(
            "numaresources-rte-metrics-monitor",
            namespace,
            (
                names::RTE_METRICS_SERVICE,
                names::METRICS_PORT_NAME,
                &rte::pod_labels(),
            ),
        ),
    ]
}

/// Returns a `ServiceMonitor` for a service: its name, the name of its port, and its labels.
fn monitor(
    name: &str,
    namespace: &str,
    (service, port, labels): (&str, &str, &BTreeMap<String, String>),
) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "endpoints": [{
                "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
                "interval": "30s",
                "path": "/metrics",
                "port": port,
                "scheme": "https",
                "tlsConfig": {
                    "caFile": "/etc/prometheus/configmaps/serving-certs-ca-bundle/service-ca.crt",
                    "serverName": format!("{service}.{namespace}.svc"),
                },
            }],
            "selector": {"matchLabels": labels},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Options, Set};
    use crate::platform::Platform;

    #[test]
    fn monitors_find_the_services_by_their_labels_and_ports() {
        let options = Options::default();
        let namespace = options.namespace.as_str();
        let exporters = rte::Options::new(namespace, Platform::OpenShift, "i");
        let services = [
            to_value(&Set::new(&options).service),
            to_value(&rte::Set::new(&exporters, &[]).service),
        ];
        let all = objects(namespace);
        let monitors = all
            .iter()
            .filter(|object| object["kind"] == "ServiceMonitor");
        for (monitor, service) in monitors.zip(&services) {
            let endpoint = &monitor["spec"]["endpoints"][0];
            assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
            assert_eq!(
                monitor["spec"]["selector"]["matchLabels"],
                service["metadata"]["labels"]
            );
            let name = service["metadata"]["name"].as_str().unwrap();
            let server = &endpoint["tlsConfig"]["serverName"];
            assert_eq!(*server, json!(format!("{name}.{namespace}.svc")));
        }
    }
}
