//! The kinds of OpenShift that the stack reads or writes, with only the fields that it uses (operator.md 2, 4, 7).

pub mod config;
pub mod machine_config;

/// Group of security context constraints.
pub const SECURITY_GROUP: &str = "security.openshift.io";
