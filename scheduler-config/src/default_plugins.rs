//! Arguments of the default plugins (scheduler.md 1.3), decoded and validated as strictly as kube-scheduler does.
//!
//! This file has what all plugins share; each plugin has a file of its own. `resources`: lists of resources, which several plugins take.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod default_preemption;
mod inter_pod_affinity;
mod node_affinity;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod pod_topology_spread;
mod resources;
mod volume_binding;

pub use default_preemption::DefaultPreemptionArgs;
pub use inter_pod_affinity::InterPodAffinityArgs;
pub use node_affinity::NodeAffinityArgs;
pub use node_resources_balanced_allocation::NodeResourcesBalancedAllocationArgs;
pub use node_resources_fit::{
    NodeResourcesFitArgs, RequestedToCapacityRatio, ScoringStrategy, ShapePoint,
};
pub use pod_topology_spread::PodTopologySpreadArgs;
pub use resources::ResourceSpec;
pub use volume_binding::VolumeBindingArgs;

/// API group of the arguments.
const GROUP: &str = "kubescheduler.config.k8s.io";

/// Why arguments are refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments are of another kind.
    #[error("args for plugin {plugin} were not of type {plugin}Args.{GROUP}, got {got}")]
    Kind {
        /// The plugin.
        plugin: &'static str,
        /// Kind and group as given.
        got: String,
    },
    /// The arguments do not match the schema.
    #[error("decoding args for plugin {plugin}")]
    Decode {
        /// The plugin.
        plugin: &'static str,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// A value is not valid.
    #[error("args for plugin {plugin}: {field}: {problem}")]
    Value {
        /// The plugin.
        plugin: &'static str,
        /// Path of the field.
        field: String,
        /// The problem, in the words of kube-scheduler.
        problem: String,
    },
}

/// Arguments of one plugin.
pub trait PluginArgs: Default + DeserializeOwned {
    /// Name of the plugin.
    const PLUGIN: &'static str;

    /// Checks the values.
    ///
    /// # Errors
    /// The path of the first invalid field, with the reason.
    fn validate(&self) -> Result<(), (String, String)>;

    /// Decodes the `args` object of a `pluginConfig` entry. No object means all defaults.
    ///
    /// # Errors
    /// When the object does not match the schema or a value is not valid.
    fn decode(args: Option<&Value>) -> Result<Self, Error> {
        let plugin = Self::PLUGIN;
        let mut args = args.cloned().unwrap_or_default();
        if let Some(fields) = args.as_object_mut() {
            let mut take = |name| match fields.remove(name) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            };
            let (version, kind) = (take("apiVersion"), take("kind"));
            let group = version.as_deref().unwrap_or(GROUP).split('/').next();
            let kind = kind.unwrap_or_else(|| format!("{plugin}Args"));
            if group != Some(GROUP) || kind != format!("{plugin}Args") {
                let got = format!("{kind}.{}", group.unwrap_or_default());
                return Err(Error::Kind { plugin, got });
            }
        }
        if args.is_null() {
            return Ok(Self::default());
        }
        let decoded = Self::deserialize(args).map_err(|source| Error::Decode { plugin, source })?;
        decoded
            .validate()
            .map_err(|(field, problem)| Error::Value {
                plugin,
                field,
                problem,
            })?;
        Ok(decoded)
    }
}

fn invalid<T>(
    field: impl Into<String>,
    value: impl std::fmt::Display,
    rule: &str,
) -> Result<T, (String, String)> {
    Err((field.into(), format!("Invalid value: {value}: {rule}")))
}

fn unsupported<T>(
    field: impl Into<String>,
    value: &str,
    supported: &[&str],
) -> Result<T, (String, String)> {
    let supported: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
    let supported = supported.join(", ");
    Err((
        field.into(),
        format!("Unsupported value: {value:?}: supported values: {supported}"),
    ))
}

/// Settings of dynamic resource allocation. This scheduler does not support it, so no setting is accepted.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct DynamicResourcesArgs {}

impl PluginArgs for DynamicResourcesArgs {
    const PLUGIN: &'static str = "DynamicResources";

    fn validate(&self) -> Result<(), (String, String)> {
        Ok(())
    }
}

/// Arguments of all default plugins that take any.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "one field for each plugin")]
pub struct DefaultPluginArgs {
    pub preemption: DefaultPreemptionArgs,
    pub inter_pod_affinity: InterPodAffinityArgs,
    pub node_affinity: NodeAffinityArgs,
    pub node_resources_fit: NodeResourcesFitArgs,
    pub balanced_allocation: NodeResourcesBalancedAllocationArgs,
    pub pod_topology_spread: PodTopologySpreadArgs,
    pub volume_binding: VolumeBindingArgs,
}

impl DefaultPluginArgs {
    /// Reads the `args` object of a `pluginConfig` entry. Returns false if the plugin takes no arguments.
    ///
    /// # Errors
    /// When the object does not match the schema or a value is not valid.
    pub fn set(&mut self, plugin: &str, args: Option<&Value>) -> Result<bool, Error> {
        match plugin {
            DefaultPreemptionArgs::PLUGIN => self.preemption = PluginArgs::decode(args)?,
            InterPodAffinityArgs::PLUGIN => self.inter_pod_affinity = PluginArgs::decode(args)?,
            NodeAffinityArgs::PLUGIN => self.node_affinity = PluginArgs::decode(args)?,
            NodeResourcesFitArgs::PLUGIN => self.node_resources_fit = PluginArgs::decode(args)?,
            NodeResourcesBalancedAllocationArgs::PLUGIN => {
                self.balanced_allocation = PluginArgs::decode(args)?;
            }
            PodTopologySpreadArgs::PLUGIN => self.pod_topology_spread = PluginArgs::decode(args)?,
            VolumeBindingArgs::PLUGIN => self.volume_binding = PluginArgs::decode(args)?,
            DynamicResourcesArgs::PLUGIN => drop(DynamicResourcesArgs::decode(args)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Reads a Kubernetes object and refuses unknown fields, which its type by itself would accept.
fn strict<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: DeserializeOwned + Serialize,
{
    use serde::de::Error as _;
    let given = Value::deserialize(deserializer)?;
    let read: T = serde_json::from_value(given.clone()).map_err(D::Error::custom)?;
    let known = serde_json::to_value(&read).map_err(D::Error::custom)?;
    match unknown_field(&given, &known) {
        Some(field) => Err(D::Error::custom(format!("unknown field {field:?}"))),
        None => Ok(read),
    }
}

/// Returns the path of the first field that was given but not read.
fn unknown_field(given: &Value, read: &Value) -> Option<String> {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => given.iter().find_map(|(name, value)| {
            match read.get(name) {
                Some(read) => unknown_field(value, read).map(|inner| format!("{name}.{inner}")),
                // null means absent
                None if value.is_null() => None,
                None => Some(name.clone()),
            }
        }),
        (Value::Array(given), Value::Array(read)) => {
            given
                .iter()
                .zip(read)
                .enumerate()
                .find_map(|(index, (given, read))| {
                    unknown_field(given, read).map(|inner| format!("[{index}].{inner}"))
                })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
