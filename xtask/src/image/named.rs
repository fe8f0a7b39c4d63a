//! The programs that the objects of an installation start in containers of the stack's image.

use std::collections::BTreeSet;

use anyhow::Context as _;
use api::operator::LogLevel;
use api::operator::v1::NodeGroup;
use api::scheduler::v1::{CacheResyncDetectionMode, SchedulerInformerMode, ScoringStrategyType};
use manifests::platform::{Platform, TlsSettings};
use manifests::{operator, rte, scheduler};
use serde_json::Value;

/// Returns the paths of all programs that containers, probes and hooks name, on any platform.
///
/// # Errors
/// Returns an error if the manifests cannot be rendered, or name no program.
pub(super) fn programs() -> anyhow::Result<BTreeSet<String>> {
    let mut named = BTreeSet::new();
    for platform in [
        Platform::Kubernetes,
        Platform::OpenShift,
        Platform::HyperShift,
    ] {
        let operator = operator::Set::new(&operator::Options {
            platform,
            ..operator::Options::default()
        });
        let objects = [
            operator.objects(),
            exporters(platform),
            schedulers(platform)?,
        ];
        for object in objects.iter().flatten() {
            add_programs(object, &mut named);
        }
    }
    anyhow::ensure!(!named.is_empty(), "no object of the stack names a program");
    Ok(named)
}

/// Adds the programs that an object or a part of it names.
fn add_programs(object: &Value, programs: &mut BTreeSet<String>) {
    match object {
        Value::Object(fields) => {
            let command = fields.get("command").and_then(|words| words.get(0));
            programs.extend(command.and_then(Value::as_str).map(str::to_owned));
            fields
                .values()
                .for_each(|field| add_programs(field, programs));
        }
        Value::Array(items) => items.iter().for_each(|item| add_programs(item, programs)),
        _ => {}
    }
}

fn exporters(platform: Platform) -> Vec<Value> {
    let options = rte::Options::new("ns", platform, "image");
    let pool = rte::Pool {
        name: "pool".into(),
        nodes: rte::NodeSelection::NotControlPlane,
        config: NodeGroup::default().normalized_config(),
        config_hash: String::new(),
        config_is_partial: false,
        custom_selinux_policy: false,
    };
    rte::Set::new(&options, &[pool]).objects()
}

fn schedulers(platform: Platform) -> anyhow::Result<Vec<Value>> {
    let options = scheduler::Options {
        namespace: "ns".into(),
        platform,
        image: "image".into(),
        replicas: 1,
        log_level: LogLevel::Normal,
        tls: TlsSettings::intermediate(),
        dump_cache: true,
        guaranteed: false,
        api_server_ports: vec![6443],
        config: scheduler::config::Settings {
            namespace: "ns".into(),
            profile: None,
            cache_resync_seconds: 0,
            detection: CacheResyncDetectionMode::Relaxed,
            informer: SchedulerInformerMode::Dedicated,
            scoring: ScoringStrategyType::LeastAllocated,
            resources: Vec::new(),
            preemption: false,
            leader_elect: true,
        },
    };
    let set = scheduler::Set::new(&options).context("rendering the scheduler")?;
    Ok(set.objects())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_all_parts_are_found() {
        let named = programs().unwrap();
        for program in [
            api::names::OPERATOR_BINARY,
            api::names::RTE_BINARY,
            "/bin/kube-scheduler",
            "/bin/sleep",
        ] {
            assert!(named.contains(program), "{program}: {named:?}");
        }
    }
}
