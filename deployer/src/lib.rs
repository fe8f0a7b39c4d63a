//! Installs, checks and removes the stack without an operator: the library behind the program `deployer`.
//!
//! Reading order:
//! - [`args`], [`options`]: the command line, and what it means once files and variables are read;
//! - [`objects`]: every object of a component, and the orders in which they are created, printed and deleted (pure);
//! - [`deploy`], [`remove`], [`wait`]: what is done to a cluster; [`preflight`]: what is looked at before;
//! - [`validate`]: what is wrong with a cluster; [`kubelets`]: the settings of its kubelets;
//! - [`run`]: the commands.
//!
//! The objects themselves are those of `manifests`, with the names of the original (deployer.md 4 to 7).

pub mod args;
pub mod cluster;
pub mod deploy;
pub mod detect;
pub mod images;
pub mod kubelets;
pub mod log;
pub mod objects;
pub mod options;
pub mod platform;
pub mod preflight;
pub mod remove;
pub mod run;
pub mod scheduler_config;
pub mod validate;
pub mod version;
pub mod wait;
