//! Our exporters (deployer.md 5): the objects of `manifests::rte` with the names and flags of the original's deployer.

use std::collections::BTreeMap;

use api::operator::v1::NodeGroupConfig;
use api::operator::{LogLevel, PodsFingerprinting};
use api::{labels, names};
use goflags::Flags;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use manifests::platform::{Platform, TlsSettings};
use manifests::rte::machine_config::{add_notifier, machine_config};
use manifests::rte::{self, Image, NodeSelection, Pool};
use manifests::{hash, to_value};
use serde_json::Value;

use super::{Component, ExporterConfig, Set, Target, by_kind, namespace};
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
const POLICY: &str = "ValidatingAdmissionPolicy";
const POLICY_BINDING: &str = "ValidatingAdmissionPolicyBinding";
/// Order of creation.
const CREATION: [&str; 14] = [
    "Namespace",
    "ConfigMap",
    CONSTRAINTS,
    "MachineConfig",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "ServiceAccount",
    POLICY,
    POLICY_BINDING,
    "NetworkPolicy",
    "Service",
    "DaemonSet",
];
/// Order of printing.
const PRINTING: [&str; 14] = [
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
    POLICY,
    POLICY_BINDING,
];
/// Order of deletion.
const DELETION: [&str; 14] = [
    "DaemonSet",
    POLICY_BINDING,
    POLICY,
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

/// Order of the flags that the original's exporters have (deployer.md 5.2).
const FLAGS: [&str; 7] = [
    "--sleep-interval",
    "--sysfs",
    "--podresources-socket",
    "-v",
    "--notify-file",
    "--pods-fingerprint",
    "--kubelet-config-file",
];

pub(super) fn set(options: &Options, target: &Target) -> Set {
    let objects = objects(options, target);
    // whatever the exporters were deployed with
    let mut most = options.clone();
    most.updater.scc = SccVersion::V1;
    most.updater.custom_selinux_policy = true;
    let mut everything = target.clone();
    everything.has_admission_policies = true;
    let pools = target.exporters_there.iter().filter_map(|name| {
        let pool = name.strip_prefix(DAEMON_SET)?.strip_prefix('-')?;
        Some(pool.to_owned())
    });
    everything.exporter_configs = std::iter::once(None)
        .chain(pools.map(Some))
        .map(|pool| ExporterConfig {
            pool,
            ..ExporterConfig::default()
        })
        .collect();
    Set {
        component: Component::Updater(UpdaterType::Rte),
        create: by_kind(objects.clone(), &CREATION),
        render: by_kind(objects, &PRINTING),
        delete: by_kind(self::objects(&most, &everything), &DELETION),
    }
}

/// Returns a name of an object of a pool.
fn of_pool(name: &str, config: Option<&ExporterConfig>) -> String {
    let pool = config.and_then(|config| config.pool.as_ref());
    pool.map_or_else(|| name.to_owned(), |pool| format!("{name}-{pool}"))
}

fn config_map(config: &ExporterConfig) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(of_pool(CONFIG_MAP, Some(config))),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(config.files.clone()),
        ..ConfigMap::default()
    }
}

fn objects(options: &Options, target: &Target) -> Vec<Value> {
    let updater = &options.updater;
    let configs = &target.exporter_configs;
    let maps: Vec<ConfigMap> = configs.iter().map(config_map).collect();
    // one DaemonSet for each configuration, or a single one without
    let mut pools: Vec<Pool> = configs
        .iter()
        .zip(&maps)
        .map(|(config, map)| pool(updater, target.platform, Some((config, map))))
        .collect();
    if pools.is_empty() {
        pools.push(pool(updater, target.platform, None));
    }
    let set = rte::Set::new(
        &rte::Options {
            namespace: NAMESPACE.to_owned(),
            platform: target.platform,
            image: Image {
                reference: options.images.exporter.clone(),
                pull_policy: Some(options.pull_policy.to_owned()),
                is_own: true,
                is_stack: rte::is_stack(&options.images.exporter),
            },
            log_level: LogLevel::Normal,
            tls: TlsSettings::default(),
            api_server_ports: target.api_server_ports.clone(),
            // not among the objects of the original's deployer
            has_admission_policies: target.has_admission_policies,
        },
        &pools,
    );
    let names = configs
        .iter()
        .map(|config| of_pool(CONFIG_MAP, Some(config)));
    let names = names.map(Some).chain(std::iter::repeat(None));
    let set = rte::Set {
        daemon_sets: set
            .daemon_sets
            .into_iter()
            .zip(names)
            .map(|(set, config_map)| adapted(set, updater, config_map.as_deref()))
            .collect(),
        ..set
    };
    let mut objects = vec![namespace(NAMESPACE, true)];
    objects.extend(maps.iter().map(to_value));
    objects.extend(machine(updater, target).as_ref().map(to_value));
    objects.extend(set.objects());
    objects
}

fn pool(
    updater: &Updater,
    platform: Platform,
    config: Option<(&ExporterConfig, &ConfigMap)>,
) -> Pool {
    let fingerprinting = if updater.fingerprint {
        PodsFingerprinting::EnabledExclusiveResources
    } else {
        PodsFingerprinting::Disabled
    };
    Pool {
        name: of_pool(DAEMON_SET, config.map(|(config, _)| config)),
        // an empty selector: every node that takes pods
        nodes: NodeSelection::Selector(
            config.map_or_else(LabelSelector::default, |(config, _)| config.nodes.clone()),
        ),
        config: NodeGroupConfig {
            pods_fingerprinting: Some(fingerprinting),
            ..NodeGroupConfig::defaults()
        },
        config_hash: config
            .map(|(_, map)| hash::config_map(map))
            .unwrap_or_default(),
        config_is_partial: platform == Platform::Kubernetes,
        custom_selinux_policy: uses_custom_policy(updater, platform),
    }
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
fn adapted(mut set: DaemonSet, updater: &Updater, config_map: Option<&str>) -> DaemonSet {
    let pods = set
        .spec
        .as_mut()
        .and_then(|spec| spec.template.spec.as_mut());
    let Some(pods) = pods else {
        return set;
    };
    let mut unused = Vec::new();
    if !updater.notifications {
        unused.push("host-run-rte");
    }
    if config_map.is_none() {
        unused.push("rte-config-volume");
    }
    for volume in pods.volumes.iter_mut().flatten() {
        if let (Some(source), Some(name)) = (&mut volume.config_map, config_map) {
            name.clone_into(&mut source.name);
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
        exporter.args = Some(arguments(&args, updater));
    }
    set
}

/// Returns the command line with the flags of the options. Those of the original are in its order, those that only our exporter knows follow.
fn arguments(args: &[String], updater: &Updater) -> Vec<String> {
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
    let mut args = flags.to_args();
    args.sort_by_key(|arg| {
        let name = arg.split('=').next();
        let place = FLAGS.iter().position(|flag| Some(*flag) == name);
        place.unwrap_or(FLAGS.len())
    });
    args
}
