//! Parts that every daemon of the stack needs: logs, signals, health and metrics endpoints, leader election.
//!
//! Each module does one job and can be read alone. The order is that in which a daemon's start-up comes to them; [`serve`] can serve any
//! router, with [`tls`] or without:
//! - [`log`]: structured logs on stderr, with klog's verbosity numbers.
//! - [`shutdown`]: one token that SIGTERM or SIGINT cancels.
//! - [`client`]: a Kubernetes client from a kubeconfig path or from the pod's environment.
//! - [`tls`]: server certificates from files (reloaded when they change) or self-signed; versions and ciphers by their Go names.
//! - [`admin`]: `/healthz`, `/livez` and `/readyz` over named checks.
//! - [`guard`]: asks the API server who may read an endpoint.
//! - [`metrics`]: a Prometheus registry served as text.
//! - [`configz`]: the configuration in effect.
//! - [`serve`]: one listener, plain or TLS, until the token is cancelled.
//! - [`mod@file`]: files that others read while they change.
//! - [`rate`]: a rate limit for work that waits.
//! - [`lease`]: leader election on a `coordination.k8s.io` Lease.
//!
//! This crate never ends the process: each daemon's `main` decides that.

pub mod admin;
pub mod client;
pub mod configz;
pub mod file;
pub mod guard;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod rate;
pub mod serve;
pub mod shutdown;
pub mod tls;
