//! What every container of the stack has in common in its security context: no capability, no new privilege, nothing to write but its volumes, and
//! the system calls of the container runtime's own profile. `docs/security.md` lists what else a pod has.

use k8s_openapi::api::core::v1::{
    Capabilities, PodSecurityContext, SeccompProfile, SecurityContext,
};

use crate::platform::Platform;

/// User id of the stack's image. OpenShift assigns each namespace its own user ids and refuses others. Elsewhere the pod must set the id,
/// because the kubelet refuses an image that does not declare a non-root user.
pub(crate) const STACK_USER: i64 = 65532;

/// Returns the context of a pod whose containers choose their users themselves.
pub(crate) fn of_pod() -> PodSecurityContext {
    PodSecurityContext {
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

/// Returns the context of a pod that runs as the user of the stack's image, never as root.
pub(crate) fn of_unprivileged_pod(platform: Platform) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: (platform == Platform::Kubernetes).then_some(STACK_USER),
        ..of_pod()
    }
}

/// Returns the context of a container.
pub(crate) fn of_container() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: None,
        }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}
