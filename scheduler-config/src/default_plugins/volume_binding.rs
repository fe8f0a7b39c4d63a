//! Arguments of VolumeBinding.

use serde::{Deserialize, Serialize};

use super::{PluginArgs, invalid};

/// Settings of volume binding.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VolumeBindingArgs {
    /// Timeout of binding, in seconds.
    pub bind_timeout_seconds: i64,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self {
            bind_timeout_seconds: 600,
        }
    }
}

impl PluginArgs for VolumeBindingArgs {
    const PLUGIN: &'static str = "VolumeBinding";

    fn validate(&self) -> Result<(), (String, String)> {
        if self.bind_timeout_seconds < 0 {
            return invalid(
                "bindTimeoutSeconds",
                self.bind_timeout_seconds,
                "invalid BindTimeoutSeconds, should not be a negative value",
            );
        }
        Ok(())
    }
}
