//! What a kubelet knows of a container: its role in the pod, its state and its restarts.

use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, PodSpec, ResourceRequirements,
};
use k8s_openapi::jiff::Timestamp;

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Run {
    /// Not running, with the reason.
    Waiting {
        reason: String,
        message: Option<String>,
    },
    /// Running since this time.
    Running { since: Timestamp },
    /// Ended, and not yet waiting for its next start.
    Exited(ContainerStateTerminated),
}

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs to its end before the others start.
    Init,
    /// Starts before the others and keeps running beside them.
    Sidecar,
    /// A main container of the pod.
    App,
    /// Added to a running pod to inspect it; nothing of the pod depends on it.
    Ephemeral,
}

impl Role {
    /// Returns whether the resources of such a container may change while it runs.
    pub(crate) fn is_resizable(self) -> bool {
        matches!(self, Self::Sidecar | Self::App)
    }
}

/// A container and its state.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The container as it is started, with the resources that it is allocated.
    pub(crate) container: Container,
    /// The resources that it has.
    pub(crate) actual: ResourceRequirements,
    pub(crate) role: Role,
    pub(crate) run: Run,
    pub(crate) last: Option<ContainerStateTerminated>,
    pub(crate) restarts: i32,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    /// Id in the runtime, once the container exists.
    pub(crate) id: Option<String>,
    /// Id of the image that it was made from.
    pub(crate) image_id: Option<String>,
}

impl Facts {
    /// Returns the facts of a container that was never started.
    pub(crate) fn new(container: &Container, role: Role, has_init: bool) -> Self {
        let reason = if has_init {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        Self {
            container: container.clone(),
            actual: container.resources.clone().unwrap_or_default(),
            role,
            run: Run::Waiting {
                reason: reason.to_owned(),
                message: None,
            },
            last: None,
            restarts: 0,
            ready: false,
            started: false,
            id: None,
            image_id: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.run, Run::Running { .. })
    }

    /// Returns the exit code of an ended container.
    pub(crate) fn exit_code(&self) -> Option<i32> {
        match &self.run {
            Run::Exited(end) => Some(end.exit_code),
            _ => None,
        }
    }

    /// Returns whether its status shows it as ready.
    pub(super) fn is_ready(&self) -> bool {
        match self.role {
            Role::Init => self.exit_code() == Some(0),
            Role::Sidecar | Role::App => self.is_running() && self.ready,
            Role::Ephemeral => false,
        }
    }

    /// Returns whether the containers after it may start.
    pub(super) fn is_done(&self) -> bool {
        match self.role {
            Role::Init => self.exit_code() == Some(0),
            Role::Sidecar => self.is_running() && self.started,
            Role::App | Role::Ephemeral => true,
        }
    }
}

/// Returns whether a container is started again after it ended with this exit code.
pub(crate) fn restarts(spec: &PodSpec, role: Role, code: i32) -> bool {
    match (role, spec.restart_policy.as_deref().unwrap_or("Always")) {
        (Role::Sidecar, _) => true,
        (Role::Ephemeral, _) | (_, "Never") => false,
        (_, "OnFailure") | (Role::Init, _) => code != 0,
        (Role::App, _) => true,
    }
}
