//! A container as its worker keeps it: its facts, its process, its probes and its backoff.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use tokio::task::JoinHandle;

use crate::node::launcher::Process;
use crate::node::status::facts::{Facts, Role};

/// First and longest restart backoff of a container.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(10);
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// A container that ran this long starts again with the first backoff.
pub(super) const BACKOFF_RESET: Duration = Duration::from_mins(10);

/// A container with the state that only its worker knows.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) facts: Facts,
    pub(super) process: Option<Process>,
    /// Tasks that watch the running container.
    pub(super) watchers: Vec<JoinHandle<()>>,
    /// Backoff of the next start; zero before the first restart.
    pub(super) delay: Duration,
    /// Earliest time of the next start.
    pub(super) not_before: Option<Instant>,
    /// Backoff after a failed image pull.
    pub(super) pull_delay: Duration,
    pub(super) began: Option<Instant>,
    /// Whether the container is stopped to start again at once with other resources.
    pub(super) must_restart: bool,
}

impl Slot {
    fn new(facts: Facts) -> Self {
        Self {
            facts,
            process: None,
            watchers: Vec::new(),
            delay: Duration::ZERO,
            not_before: None,
            pull_delay: FIRST_BACKOFF,
            began: None,
            must_restart: false,
        }
    }
}

/// Returns the containers of a pod, in the order of their start.
pub(super) fn slots(spec: &PodSpec) -> Vec<Slot> {
    let init = spec.init_containers.iter().flatten();
    let has_init = init.clone().next().is_some();
    let init = init.map(|container| {
        let role = if container.restart_policy.as_deref() == Some("Always") {
            Role::Sidecar
        } else {
            Role::Init
        };
        (container, role)
    });
    let app = spec
        .containers
        .iter()
        .map(|container| (container, Role::App));
    init.chain(app)
        .map(|(container, role)| Slot::new(Facts::new(container, role, has_init)))
        .chain(ephemeral(spec))
        .collect()
}

/// Returns the ephemeral containers of a pod.
pub(super) fn ephemeral(spec: &PodSpec) -> impl Iterator<Item = Slot> {
    let containers = spec.ephemeral_containers.iter().flatten();
    containers.filter_map(|container| {
        // Apart from its target, an ephemeral container is a container like any other.
        let container = serde_json::to_value(container).and_then(serde_json::from_value);
        let container: Container = container
            .inspect_err(
                |error| tracing::warn!(%error, "Ephemeral container is invalid and ignored"),
            )
            .ok()?;
        Some(Slot::new(Facts::new(&container, Role::Ephemeral, false)))
    })
}
