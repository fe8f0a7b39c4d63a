//! Every object of a component, and the orders in which they are created, printed and deleted (deployer.md 3).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use manifests::platform::Platform;
use manifests::to_value;
use serde_json::Value;

use crate::images::UpdaterType;
use crate::options::Options;
use crate::scheduler_config;

pub mod exporter;
pub mod nfd;
pub mod scheduler;

/// Label of namespaces and definitions that this program creates. They may belong to somebody else, too, and those are not deleted.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`].
pub const DEPLOYER: &str = "deployer";
/// Kind of definitions.
pub const DEFINITION: &str = "CustomResourceDefinition";

/// A component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The definition of NodeResourceTopology.
    Api,
    /// What publishes these objects.
    Updater(UpdaterType),
    /// What places pods by them.
    Scheduler,
}

impl Component {
    /// Returns the name in its lines of the log.
    pub fn log_name(self) -> &'static str {
        match self {
            Self::Api => "API",
            Self::Updater(UpdaterType::Rte) => "RTE",
            Self::Updater(UpdaterType::Nfd) => "NFD",
            Self::Scheduler => "SCD",
        }
    }

    /// Returns the line of the log that says that its objects are made.
    pub fn loaded(self) -> &'static str {
        match self {
            Self::Api => "API manifests loaded",
            Self::Updater(_) | Self::Scheduler => "manifests loaded",
        }
    }

    /// Returns what the log calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Api => "API",
            Self::Updater(_) => "topology updater",
            Self::Scheduler => "scheduler plugin",
        }
    }
}

/// What the objects depend on, beside the options.
#[derive(Clone, Debug)]
pub struct Target {
    /// Kind of cluster.
    pub platform: Platform,
    /// Its version; empty when unknown.
    pub version: String,
    /// Whether the API server has the admission policies that exporters obey.
    pub has_admission_policies: bool,
    /// TCP ports of the API server.
    pub api_server_ports: Vec<u16>,
    /// Number of scheduler pods.
    pub replicas: i32,
    /// Configurations of the exporters. Without any they have none, and find the kubelet's settings by themselves.
    pub exporter_configs: Vec<ExporterConfig>,
    /// Names of the exporters' DaemonSets that are there.
    pub exporters_there: Vec<String>,
    /// Namespaces in which the scheduler has the right to a lease by now.
    pub elections_there: Vec<String>,
}

/// The configuration of some or all exporters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExporterConfig {
    /// Name of the pool of nodes; absent for all nodes.
    pub pool: Option<String>,
    /// Selects the nodes.
    pub nodes: LabelSelector,
    /// The files, by name.
    pub files: BTreeMap<String, String>,
}

/// The objects of a component.
#[derive(Clone, Debug)]
pub struct Set {
    /// The component.
    pub component: Component,
    /// In the order in which they are created.
    pub create: Vec<Value>,
    /// In the order in which they are printed.
    pub render: Vec<Value>,
    /// All that may be there, whatever it was deployed with, in the order in which they are deleted.
    pub delete: Vec<Value>,
}

impl Set {
    /// Returns the objects of a component.
    pub fn new(
        component: Component,
        options: &Options,
        target: &Target,
    ) -> Result<Self, scheduler_config::Error> {
        Ok(match component {
            Component::Api => {
                let definition = marked(to_value(&api::crd::node_resource_topology()));
                Self {
                    component,
                    create: vec![definition.clone()],
                    render: vec![definition.clone()],
                    delete: vec![definition],
                }
            }
            Component::Updater(UpdaterType::Rte) => exporter::set(options, target),
            Component::Updater(UpdaterType::Nfd) => nfd::set(options),
            Component::Scheduler => scheduler::set(options, target)?,
        })
    }
}

/// Returns an object with the mark of this program.
pub(crate) fn marked(mut object: Value) -> Value {
    object["metadata"]["labels"][MANAGED_BY] = DEPLOYER.into();
    object
}

/// Returns a namespace with the mark of this program. That of an updater lets pods mount paths of their node, which a cluster may forbid elsewhere.
pub(crate) fn namespace(name: &str, mounts_host_paths: bool) -> Value {
    let mut labels = BTreeMap::from([(MANAGED_BY.to_owned(), DEPLOYER.to_owned())]);
    if mounts_host_paths {
        let level = "privileged".to_owned();
        labels.insert("pod-security.kubernetes.io/enforce".to_owned(), level);
    }
    to_value(&Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    })
}

/// Sorts objects by the place of their kind in a list; kinds that are not in it come last, and equal ones stay as they are.
pub(crate) fn by_kind(mut objects: Vec<Value>, order: &[&str]) -> Vec<Value> {
    let place = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        order.iter().position(|other| *other == kind)
    };
    objects.sort_by_key(|object| place(object).unwrap_or(order.len()));
    objects
}
