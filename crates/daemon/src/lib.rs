//! What every daemon of the stack needs: logs, signals, health and metrics endpoints, leader election.
//!
//! Each module does one job and knows nothing of the others, except that [`serve`] can put any router behind TLS:
//! - [`log`]: structured logs on stderr, verbosity as klog counts it.
//! - [`shutdown`]: one token that is cancelled by SIGTERM or SIGINT.
//! - [`client`]: a Kubernetes client from a kubeconfig path or from the pod's environment.
//! - [`tls`]: server certificates from files (reloaded when they change) or self-signed, versions and ciphers by their Go names.
//! - [`admin`]: `/healthz`, `/livez` and `/readyz` over named checks.
//! - [`guard`]: who may read an endpoint, as the API server says.
//! - [`metrics`]: a Prometheus registry served as text.
//! - [`configz`]: the configuration in effect.
//! - [`serve`]: one listener, plain or TLS, until the token is cancelled.
//! - [`lease`]: leader election on a `coordination.k8s.io` Lease.
//!
//! This crate never decides when a process ends: that is for each daemon's `main`.

pub mod admin;
pub mod client;
pub mod configz;
pub mod guard;
pub mod lease;
pub mod log;
pub mod metrics;
pub mod serve;
pub mod shutdown;
pub mod tls;
