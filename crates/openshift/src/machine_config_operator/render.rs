//! All machine configurations of a pool as one.

use std::hash::{DefaultHasher, Hash, Hasher};

use api::openshift::machine_config::{
    ConfigurationSource, GROUP, MachineConfig, MachineConfigPool,
};
use kube::ResourceExt as _;
use serde_json::Value;

use super::generate::{generated_name, payload_in};
use super::{Objects, matches};

/// The rendered configuration of a pool.
pub(super) struct Rendered {
    pub(super) name: String,
    pub(super) sources: Vec<ConfigurationSource>,
    pub(super) payload: Option<Value>,
}

/// Renders all machine configurations that a pool selects and the TLS profile of the cluster into one.
pub(super) fn render(pool: &MachineConfigPool, objects: &Objects) -> Rendered {
    let selector = pool
        .spec
        .machine_config_selector
        .clone()
        .unwrap_or_default();
    let mine = objects.configs.iter();
    let mine: Vec<&MachineConfig> = mine
        .filter(|config| matches(&selector, config.labels()))
        .collect();
    let mut hasher = DefaultHasher::new();
    for config in &mine {
        (config.name_any(), config.spec.config.to_string()).hash(&mut hasher);
    }
    if let Some(tls) = &objects.tls {
        tls.hash(&mut hasher);
    }
    let generated = mine
        .iter()
        .find(|config| config.name_any() == generated_name(pool))
        .and_then(|config| payload_in(config));
    Rendered {
        name: format!("rendered-{}-{:016x}", pool.name_any(), hasher.finish()),
        payload: match &objects.tls {
            Some(tls) => Some(tls.add_to(generated)),
            None => generated,
        },
        sources: mine
            .iter()
            .map(|config| ConfigurationSource {
                api_version: format!("{GROUP}/v1"),
                kind: "MachineConfig".to_owned(),
                name: config.name_any(),
            })
            .collect(),
    }
}
