//! Our exporters (deployer.md 5): the objects of `manifests::rte` with the names and flags of the original's deployer.

use std::collections::BTreeMap;

use api::operator::v1::NodeGroupConfig;
use api::operator::{LogLevel, PodsFingerprinting};
use api::{labels, names};
use goflags::Flags;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manifests::platform::{Platform, TlsSettings};
use manifests::rte::machine_config::{add_notifier, machine_config};
use manifests::rte::{self, Image, NodeSelection, Pool};
use manifests::{hash, to_value};
use serde_json::Value;

use super::{Component, Set, Target, by_kind, namespace};
use crate::images::UpdaterType;
use crate::options::{Options, SccVersion, Updater};

/// Namespace of the exporters.
pub const NAMESPACE: &str = "tas-topology-updater";
/// The DaemonSet.
pub const DAEMON_SET: &str = "resource-topology-exporter";
/// ConfigMap with the exporters' configuration.
pub const CONFIG_MAP: &str = "rte-config";
/// Machine configuration with the SELinux policy and the hook.
const MACHINE_CONFIG: &str = "50-resource-topology-exporter";
/// Role whose machines get it.
const WORKER: &str = "worker";

const CONSTRAINTS: &str = "SecurityContextConstraints";
/// Order of creation.
const CREATION: [&str; 12] = [
    "Namespace",
    "ConfigMap",
    CONSTRAINTS,
    "MachineConfig",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ServiceAccount",
    "NetworkPolicy",
    "Service",
    "DaemonSet",
];
/// Order of printing.
const PRINTING: [&str; 12] = [
    "Namespace",
    "ConfigMap",
    "MachineConfig",
    CONSTRAINTS,
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "DaemonSet",
    "ServiceAccount",
    "NetworkPolicy",
    "Service",
];
/// Order of deletion.
const DELETION: [&str; 12] = [
    "DaemonSet",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ServiceAccount",
    "NetworkPolicy",
    "Service",
    "ConfigMap",
    CONSTRAINTS,
    "MachineConfig",
    "Namespace",
];

pub(super) fn set(options: &Options, target: &Target) -> Set {
    let objects = objects(options, target);
    // whatever the exporters were deployed with
    let mut most = options.clone();
    most.updater.scc = SccVersion::V1;
    most.updater.custom_selinux_policy = true;
    let mut everything = target.clone();
    everything.exporter_config = Some(BTreeMap::new());
    Set {
        component: Component::Updater(UpdaterType::Rte),
        create: by_kind(objects.clone(), &CREATION),
        render: by_kind(objects, &PRINTING),
        delete: by_kind(self::objects(&most, &everything), &DELETION),
    }
}

fn objects(options: &Options, target: &Target) -> Vec<Value> {
    let updater = &options.updater;
    let config_map = target.exporter_config.clone().map(|files| ConfigMap {
        metadata: ObjectMeta {
            name: Some(CONFIG_MAP.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(files),
        ..ConfigMap::default()
    });
    let pool = Pool {
        name: DAEMON_SET.to_owned(),
        nodes: NodeSelection::Labels(BTreeMap::new()),
        config: NodeGroupConfig {
            pods_fingerprinting: Some(if updater.fingerprint {
                PodsFingerprinting::EnabledExclusiveResources
            } else {
                PodsFingerprinting::Disabled
            }),
            ..NodeGroupConfig::defaults()
        },
        config_hash: config_map
            .as_ref()
            .map(hash::config_map)
            .unwrap_or_default(),
        custom_selinux_policy: uses_custom_policy(updater, target.platform),
    };
    let set = rte::Set::new(
        &rte::Options {
            namespace: NAMESPACE.to_owned(),
            platform: target.platform,
            image: Image {
                reference: options.images.exporter.clone(),
                pull_policy: Some(options.pull_policy.to_owned()),
                run_as_root: true,
            },
            log_level: LogLevel::Normal,
            tls: TlsSettings::default(),
            api_server_ports: target.api_server_ports.clone(),
        },
        &[pool],
    );
    let set = rte::Set {
        daemon_sets: set
            .daemon_sets
            .into_iter()
            .map(|set| adapted(set, updater, config_map.is_some()))
            .collect(),
        ..set
    };
    let mut objects = vec![namespace(NAMESPACE, true)];
    objects.extend(config_map.as_ref().map(to_value));
    objects.extend(machine(updater, target).as_ref().map(to_value));
    objects.extend(set.objects());
    objects
}

/// Returns whether the pods run with the SELinux type of the policy. The constraints v2 do not allow it, and machines of a hosted cluster cannot get the
/// policy this way.
fn uses_custom_policy(updater: &Updater, platform: Platform) -> bool {
    platform == Platform::OpenShift
        && updater.custom_selinux_policy
        && updater.scc == SccVersion::V1
}

/// Returns the machine configuration, if something needs it: each one restarts every machine of its pool.
fn machine(
    updater: &Updater,
    target: &Target,
) -> Option<api::openshift::machine_config::MachineConfig> {
    let has_hooks = target.platform == Platform::OpenShift
        && updater.custom_selinux_policy
        && updater.cri_hooks;
    if !has_hooks && !uses_custom_policy(updater, target.platform) {
        return None;
    }
    let role = BTreeMap::from([(labels::MACHINE_CONFIG_ROLE.to_owned(), WORKER.to_owned())]);
    let mut object = machine_config(MACHINE_CONFIG, role, &target.version);
    if has_hooks {
        add_notifier(&mut object);
    }
    Some(object)
}

/// Gives a DaemonSet the flags and volumes of the options (deployer.md 5.2).
fn adapted(mut set: DaemonSet, updater: &Updater, has_config: bool) -> DaemonSet {
    let pods = set
        .spec
        .as_mut()
        .and_then(|spec| spec.template.spec.as_mut());
    let Some(pods) = pods else {
        return set;
    };
    // no selector: every node that takes pods has an exporter
    pods.node_selector = None;
    let mut unused = Vec::new();
    if !updater.notifications {
        unused.push("host-run-rte");
    }
    if !has_config {
        unused.push("rte-config-volume");
    }
    for volume in pods.volumes.iter_mut().flatten() {
        if let Some(source) = &mut volume.config_map {
            CONFIG_MAP.clone_into(&mut source.name);
        }
    }
    if let Some(volumes) = &mut pods.volumes {
        volumes.retain(|volume| !unused.contains(&volume.name.as_str()));
    }
    let exporter = pods
        .containers
        .iter_mut()
        .find(|container| container.name == names::RTE_CONTAINER);
    if let Some(exporter) = exporter {
        if let Some(mounts) = &mut exporter.volume_mounts {
            mounts.retain(|mount| !unused.contains(&mount.name.as_str()));
        }
        let args = exporter.args.take().unwrap_or_default();
        exporter.args = Some(flags(&args, updater).to_args());
    }
    set
}

fn flags(args: &[String], updater: &Updater) -> Flags {
    let mut flags = Flags::parse(args);
    match &updater.interval {
        Some(interval) => flags.set("--sleep-interval", interval),
        None => flags.remove("--sleep-interval"),
    }
    flags.set("-v", &updater.verbosity.to_string());
    if updater.notifications {
        flags.set("--notify-file", "/host-run-rte/notify");
    } else {
        flags.remove("--notify-file");
    }
    flags.set("--pods-fingerprint", &updater.fingerprint.to_string());
    flags
}
