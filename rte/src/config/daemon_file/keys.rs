//! Which key of the daemon's files sets which field.

use super::reader::Reader;
use super::{Error, Keys, METRICS_ADDRESSES, METRICS_PORT};
use crate::config::{
    Config, ContainerId, Global, MetricsMode, NrtUpdater, ResourceMonitor, TopologyExporter,
};

/// Applies the keys to the configuration. Returns the unknown keys, for a warning.
pub(in crate::config) fn apply(config: &mut Config, keys: &Keys) -> Result<Vec<String>, Error> {
    let mut reader = Reader::new(keys);
    global(&mut reader, &mut config.global)?;
    updater(&mut reader, &mut config.nrt_updater)?;
    monitor(&mut reader, &mut config.resource_monitor)?;
    exporter(&mut reader, &mut config.topology_exporter)?;
    metrics(&mut reader, &mut config.topology_exporter)?;
    reader.excludes(&mut config.resource_monitor)?;
    Ok(reader.unknown())
}

fn global(reader: &mut Reader<'_>, global: &mut Global) -> Result<(), Error> {
    reader.boolean("global.debug", &mut global.debug)?;
    reader.string("global.kubeConfig", &mut global.kubeconfig)?;
    reader.string("global.kubeconfig", &mut global.kubeconfig)?;
    let mut verbose = i64::from(global.verbose);
    reader.integer("global.verbose", &mut verbose)?;
    global.verbose = i32::try_from(verbose).unwrap_or(i32::MAX);
    Ok(())
}

fn updater(reader: &mut Reader<'_>, updater: &mut NrtUpdater) -> Result<(), Error> {
    reader.boolean("nrtUpdater.noPublish", &mut updater.no_publish)?;
    reader.boolean("nrtUpdater.oneShot", &mut updater.one_shot)?;
    reader.string("nrtUpdater.hostname", &mut updater.hostname)?;
    reader.boolean("nrtUpdater.patchMode", &mut updater.patch_mode)?;
    reader.integer("nrtUpdater.patchResync", &mut updater.patch_resync)?;
    Ok(())
}

fn monitor(reader: &mut Reader<'_>, monitor: &mut ResourceMonitor) -> Result<(), Error> {
    reader.string("resourceMonitor.namespace", &mut monitor.namespace)?;
    reader.string("resourceMonitor.sysfsRoot", &mut monitor.sysfs_root)?;
    reader.boolean(
        "resourceMonitor.refreshNodeResources",
        &mut monitor.refresh_node_resources,
    )?;
    reader.boolean(
        "resourceMonitor.podSetFingerprint",
        &mut monitor.pod_set_fingerprint,
    )?;
    reader.parsed(
        "resourceMonitor.podSetFingerprintMethod",
        &mut monitor.pod_set_fingerprint_method,
        str::parse,
    )?;
    reader.string(
        "resourceMonitor.podSetFingerprintStatusFile",
        &mut monitor.pod_set_fingerprint_status_file,
    )?;
    reader.boolean("resourceMonitor.exposeTiming", &mut monitor.expose_timing)?;
    reader.boolean(
        "resourceMonitor.exactAccounting",
        &mut monitor.exact_accounting,
    )?;
    reader.boolean(
        "resourceMonitor.excludeTerminalPods",
        &mut monitor.exclude_terminal_pods,
    )?;
    Ok(())
}

fn exporter(reader: &mut Reader<'_>, exporter: &mut TopologyExporter) -> Result<(), Error> {
    reader.duration(
        "topologyExporter.sleepInterval",
        &mut exporter.sleep_interval,
    )?;
    reader.string(
        "topologyExporter.kubeletConfigFile",
        &mut exporter.kubelet_config_file,
    )?;
    reader.string(
        "topologyExporter.podResourcesSocketPath",
        &mut exporter.pod_resources_socket_path,
    )?;
    reader.boolean(
        "topologyExporter.podReadinessEnable",
        &mut exporter.pod_readiness_enable,
    )?;
    reader.boolean(
        "topologyExporter.addNRTOwnerEnable",
        &mut exporter.add_nrt_owner_enable,
    )?;
    reader.string(
        "topologyExporter.notifyFilePath",
        &mut exporter.notify_file_path,
    )?;
    reader.boolean("topologyExporter.watchPods", &mut exporter.watch_pods)?;
    reader.integer(
        "topologyExporter.maxEventPerTimeUnit",
        &mut exporter.max_event_per_time_unit,
    )?;
    reader.duration(
        "topologyExporter.timeUnitToLimitEvents",
        &mut exporter.time_unit_to_limit_events,
    )?;
    reader.parsed(
        "topologyExporter.referenceContainer",
        &mut exporter.reference_container,
        ContainerId::parse,
    )?;
    reader.reference_parts(&mut exporter.reference_container)?;
    reader.string(
        "topologyExporter.topologyManagerPolicy",
        &mut exporter.topology_manager_policy,
    )?;
    reader.string(
        "topologyExporter.topologyManagerScope",
        &mut exporter.topology_manager_scope,
    )?;
    Ok(())
}

fn metrics(reader: &mut Reader<'_>, exporter: &mut TopologyExporter) -> Result<(), Error> {
    reader.parsed(
        "topologyExporter.metricsMode",
        &mut exporter.metrics_mode,
        MetricsMode::parse,
    )?;
    reader.boolean("topologyExporter.metricsAuth", &mut exporter.metrics_auth)?;
    reader.integer(METRICS_PORT, &mut exporter.metrics_port)?;
    reader.string(METRICS_ADDRESSES[0], &mut exporter.metrics_address)?;
    reader.string(METRICS_ADDRESSES[1], &mut exporter.metrics_address)?;
    let tls = &mut exporter.metrics_tls;
    reader.string("topologyExporter.metricsTLS.certsDir", &mut tls.certs_dir)?;
    reader.string("topologyExporter.metricsTLS.certFile", &mut tls.cert_file)?;
    reader.string("topologyExporter.metricsTLS.keyFile", &mut tls.key_file)?;
    reader.boolean(
        "topologyExporter.metricsTLS.wantCliAuth",
        &mut tls.want_cli_auth,
    )?;
    reader.string(
        "topologyExporter.metricsTLS.minTLSVersion",
        &mut tls.min_tls_version,
    )?;
    reader.string(
        "topologyExporter.metricsTLS.cipherSuites",
        &mut tls.cipher_suites,
    )?;
    Ok(())
}
