//! Settings from environment variables (rte.md 2.3). They only set what no file has set.

use super::{Config, ContainerId, daemon_file};

/// Sets fields of `config` from variables unless the `keys` of the daemon's files set them. Unlike upstream, `METRICS_PORT` and
/// `METRICS_ADDRESS` override the defaults, because manifests that set them expect it.
pub(super) fn fill(
    config: &mut Config,
    keys: &daemon_file::Keys,
    variable: &dyn Fn(&str) -> Option<String>,
) {
    let nonempty = |name: &str| variable(name).filter(|value| !value.is_empty());
    let fill = |field: &mut String, name: &str| {
        if field.is_empty()
            && let Some(value) = nonempty(name)
        {
            *field = value;
        }
    };
    let exporter = &mut config.topology_exporter;
    fill(&mut config.nrt_updater.hostname, "NODE_NAME");
    fill(
        &mut exporter.topology_manager_policy,
        "TOPOLOGY_MANAGER_POLICY",
    );
    fill(
        &mut exporter.topology_manager_scope,
        "TOPOLOGY_MANAGER_SCOPE",
    );
    if (exporter.metrics_address.is_empty() || !daemon_file::has_metrics_address(keys))
        && let Some(address) = nonempty("METRICS_ADDRESS")
    {
        exporter.metrics_address = address;
    }
    fill(
        &mut config.resource_monitor.pod_set_fingerprint_status_file,
        "PFP_STATUS_FILE",
    );
    if (exporter.metrics_port == 0 || !keys.contains_key(daemon_file::METRICS_PORT))
        && let Some(port) = nonempty("METRICS_PORT").and_then(|text| text.parse().ok())
    {
        exporter.metrics_port = port;
    }
    if exporter.reference_container.is_none() {
        exporter.reference_container = (|| {
            Some(ContainerId {
                namespace: nonempty("REFERENCE_NAMESPACE")?,
                pod_name: nonempty("REFERENCE_POD_NAME")?,
                container_name: nonempty("REFERENCE_CONTAINER_NAME")?,
            })
        })();
    }
}
