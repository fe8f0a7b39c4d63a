//! KubeSchedulerConfiguration v1 and NodeResourceTopologyMatchArgs: parse, default, validate.
//!
//! Strict, like kube-scheduler: an unknown or repeated field is an error, so a misspelt setting is never ignored silently.
//! The result has every default filled in and every plugin list resolved. No I/O: the caller reads the file.
//!
//! Reading order: [`configuration`] (the file), [`plugins`] (which plugin runs at which point), [`args`] (the arguments of
//! NodeResourceTopologyMatch), [`default_plugins`] (the arguments of the other plugins), [`mod@without_effect`] (what is given and changes nothing).

pub mod args;
pub mod configuration;
pub mod default_plugins;
pub mod duration;
pub mod plugins;
pub mod without_effect;

pub use args::NodeResourceTopologyMatchArgs;
pub use configuration::{Configuration, Profile, parse};
pub use without_effect::without_effect;
