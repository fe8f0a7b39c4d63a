//! Converts records of the runtime into messages of the CRI, and implements the filters of its lists.

use std::collections::BTreeMap;

use cluster_spec::images::Resolved;
use podresources::cri::v1 as cri;

use crate::runtime::now;
use crate::runtime::records::{Container, Phase, Sandbox};

/// Returns an image.
pub fn image(resolved: &Resolved) -> cri::Image {
    cri::Image {
        id: resolved.id.clone(),
        repo_tags: resolved.tag_reference.iter().cloned().collect(),
        repo_digests: vec![resolved.digest_reference.clone()],
        size: resolved.size(),
        uid: resolved.image.user.map(|user| cri::Int64Value {
            value: i64::from(user),
        }),
        username: String::new(),
        spec: Some(cri::ImageSpec {
            image: resolved.id.clone(),
            ..Default::default()
        }),
        // Pinned against garbage collection, because a removed image could not be pulled again.
        pinned: true,
    }
}

/// Returns the state of a sandbox.
pub fn sandbox_state(sandbox: &Sandbox) -> cri::PodSandboxState {
    if sandbox.is_ready() {
        cri::PodSandboxState::SandboxReady
    } else {
        cri::PodSandboxState::SandboxNotready
    }
}

/// Returns a sandbox as an item of a list.
pub fn sandbox_item(sandbox: &Sandbox) -> cri::PodSandbox {
    cri::PodSandbox {
        id: sandbox.id.clone(),
        metadata: Some(sandbox.metadata()),
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.created_at,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.runtime_handler.clone(),
    }
}

/// Returns the status of a sandbox, which keeps its address after it was stopped.
pub fn sandbox_status(sandbox: &Sandbox) -> cri::PodSandboxStatus {
    cri::PodSandboxStatus {
        id: sandbox.id.clone(),
        metadata: Some(sandbox.metadata()),
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.created_at,
        network: Some(cri::PodSandboxNetworkStatus {
            ip: sandbox.address.to_string(),
            additional_ips: Vec::new(),
        }),
        linux: Some(cri::LinuxPodSandboxStatus {
            namespaces: Some(cri::Namespace {
                options: Some(sandbox.namespace_options()),
            }),
        }),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.runtime_handler.clone(),
    }
}

/// Returns a container as an item of a list.
pub fn container_item(container: &Container) -> cri::Container {
    cri::Container {
        id: container.id.clone(),
        pod_sandbox_id: container.sandbox.id.clone(),
        metadata: Some(container.metadata()),
        image: container.config.image.clone(),
        image_ref: container.image.digest_reference.clone(),
        image_id: container.image.id.clone(),
        state: container.phase().to_cri().into(),
        created_at: container.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
    }
}

/// Returns the status of a container.
pub fn container_status(container: &Container) -> cri::ContainerStatus {
    let phase = container.phase();
    let mut status = cri::ContainerStatus {
        id: container.id.clone(),
        metadata: Some(container.metadata()),
        state: phase.to_cri().into(),
        created_at: container.created_at,
        image: container.config.image.as_ref().map(|image| cri::ImageSpec {
            // The name in the pod, not the ID that the kubelet resolved it to.
            image: if image.user_specified_image.is_empty() {
                image.image.clone()
            } else {
                image.user_specified_image.clone()
            },
            ..image.clone()
        }),
        image_ref: container.image.digest_reference.clone(),
        image_id: container.image.id.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        mounts: container.config.mounts.clone(),
        log_path: container
            .log_path
            .as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        resources: Some(cri::ContainerResources {
            linux: Some(container.resources()),
            ..Default::default()
        }),
        user: Some(container.identity.to_cri()),
        stop_signal: container.config.stop_signal,
        ..Default::default()
    };
    match phase {
        Phase::Created | Phase::Starting => {}
        Phase::Running { started_at } => status.started_at = started_at,
        Phase::Exited {
            started_at,
            finished_at,
            exit_code,
            reason,
            message,
        } => {
            status.started_at = started_at;
            status.finished_at = finished_at;
            status.exit_code = exit_code;
            reason.clone_into(&mut status.reason);
            status.message = message;
        }
    }
    status
}

/// Returns the resource usage of a container.
pub fn container_stats(container: &Container) -> cri::ContainerStats {
    let timestamp = now();
    let (usage, rate) = container.usage(timestamp);
    let value = |value| Some(cri::UInt64Value { value });
    let limit = container.resources().memory_limit_in_bytes;
    cri::ContainerStats {
        attributes: Some(cri::ContainerAttributes {
            id: container.id.clone(),
            metadata: Some(container.metadata()),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: Some(cri::CpuUsage {
            timestamp,
            usage_core_nano_seconds: value(usage.cpu.as_nanos() as u64),
            usage_nano_cores: value(rate),
            ..Default::default()
        }),
        memory: Some(cri::MemoryUsage {
            timestamp,
            working_set_bytes: value(usage.resident),
            usage_bytes: value(usage.resident),
            rss_bytes: value(usage.resident),
            available_bytes: u64::try_from(limit)
                .ok()
                .filter(|limit| *limit > 0)
                .and_then(|limit| value(limit.saturating_sub(usage.resident))),
            page_faults: value(usage.faults),
            major_page_faults: value(usage.major_faults),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Returns the resource usage of a sandbox's containers.
pub fn sandbox_stats(
    sandbox: &Sandbox,
    containers: &[cri::ContainerStats],
) -> cri::PodSandboxStats {
    let timestamp = now();
    let sum = |pick: &dyn Fn(&cri::ContainerStats) -> Option<u64>| {
        Some(cri::UInt64Value {
            value: containers.iter().filter_map(pick).sum(),
        })
    };
    let cpu = |stats: &cri::ContainerStats| {
        let cpu = stats.cpu.as_ref()?;
        Some(cpu.usage_core_nano_seconds.as_ref()?.value)
    };
    let rate = |stats: &cri::ContainerStats| {
        let cpu = stats.cpu.as_ref()?;
        Some(cpu.usage_nano_cores.as_ref()?.value)
    };
    let memory = |stats: &cri::ContainerStats| {
        let memory = stats.memory.as_ref()?;
        Some(memory.rss_bytes.as_ref()?.value)
    };
    cri::PodSandboxStats {
        attributes: Some(cri::PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: Some(sandbox.metadata()),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        }),
        linux: Some(cri::LinuxPodSandboxStats {
            cpu: Some(cri::CpuUsage {
                timestamp,
                usage_core_nano_seconds: sum(&cpu),
                usage_nano_cores: sum(&rate),
                ..Default::default()
            }),
            memory: Some(cri::MemoryUsage {
                timestamp,
                working_set_bytes: sum(&memory),
                usage_bytes: sum(&memory),
                rss_bytes: sum(&memory),
                ..Default::default()
            }),
            containers: containers.to_vec(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Returns whether an object has every label of a selector.
pub fn has_labels(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// Returns whether an ID matches the requested one: an empty string matches all, and a prefix of the ID is enough.
pub fn has_id(id: &str, wanted: &str) -> bool {
    id.starts_with(wanted)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[rstest]
    #[case::nothing_asked(&[], true)]
    #[case::one(&[("a", "1")], true)]
    #[case::both(&[("a", "1"), ("b", "2")], true)]
    #[case::other_value(&[("a", "2")], false)]
    #[case::missing(&[("c", "1")], false)]
    fn selector_asks_for_every_label(#[case] selector: &[(&str, &str)], #[case] expected: bool) {
        let labels = mk_labels(&[("a", "1"), ("b", "2")]);
        assert_eq!(has_labels(&labels, &mk_labels(selector)), expected);
    }

    #[rstest]
    #[case::all("", true)]
    #[case::whole("abc", true)]
    #[case::beginning("ab", true)]
    #[case::other("b", false)]
    fn ids_may_be_cut_short(#[case] wanted: &str, #[case] expected: bool) {
        assert_eq!(has_id("abc", wanted), expected);
    }
}
