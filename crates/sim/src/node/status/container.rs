//! The status of one container of a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateWaiting, ContainerStatus,
    ContainerUser, LinuxContainerUser, Pod, ResourceRequirements, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::facts::{Facts, Role, Run};

/// Returns the status of a container.
pub(super) fn status(facts: &Facts, pod: &Pod) -> ContainerStatus {
    let spec = &facts.container;
    let exists = facts.id.is_some();
    let allocated = spec.resources.as_ref();
    let allocated = allocated.and_then(|resources| resources.requests.clone());
    let filled = |list: Option<BTreeMap<String, Quantity>>| list.filter(|list| !list.is_empty());
    let state = match &facts.run {
        Run::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: message.clone(),
            }),
            ..ContainerState::default()
        },
        Run::Running { since } => ContainerState {
            running: Some(ContainerStateRunning {
                started_at: Some(Time(*since)),
            }),
            ..ContainerState::default()
        },
        Run::Exited(end) => ContainerState {
            terminated: Some(end.clone()),
            ..ContainerState::default()
        },
    };
    let last_state = ContainerState {
        terminated: facts.last.clone(),
        ..ContainerState::default()
    };
    ContainerStatus {
        name: spec.name.clone(),
        state: Some(state),
        last_state: Some(last_state),
        ready: facts.is_ready(),
        started: (facts.role != Role::Ephemeral).then(|| facts.is_running() && facts.started),
        restart_count: facts.restarts,
        image: spec.image.clone().unwrap_or_default(),
        image_id: facts.image_id.clone().unwrap_or_default(),
        container_id: facts.id.clone(),
        allocated_resources: filled(allocated).filter(|_| exists),
        resources: exists.then(|| ResourceRequirements {
            limits: filled(facts.actual.limits.clone()),
            requests: filled(facts.actual.requests.clone()),
            claims: None,
        }),
        user: exists.then(|| user(spec, pod)),
        volume_mounts: mounts(spec),
        ..ContainerStatus::default()
    }
}

fn user(container: &Container, pod: &Pod) -> ContainerUser {
    let own = container.security_context.as_ref();
    let shared = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let uid = own
        .and_then(|own| own.run_as_user)
        .or_else(|| shared.and_then(|shared| shared.run_as_user));
    let gid = own
        .and_then(|own| own.run_as_group)
        .or_else(|| shared.and_then(|shared| shared.run_as_group));
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: uid.unwrap_or_default(),
            gid: gid.unwrap_or_default(),
            supplemental_groups: shared.and_then(|shared| shared.supplemental_groups.clone()),
        }),
    }
}

fn mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?;
    let list = mounts
        .iter()
        .map(|mount| {
            let read_only = mount.read_only.filter(|read_only| *read_only);
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only,
                recursive_read_only: read_only.map(|_| "Disabled".to_owned()),
            }
        })
        .collect();
    Some(list)
}
