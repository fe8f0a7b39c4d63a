//! Settings of single kubelets: the rules of the original (deployer.md 10), and reserved CPUs that leave half of a core.

use std::collections::BTreeMap;

use api::attributes;
use api::nrt::attribute;
use goflags::GoDuration;
use serde::Deserialize;
use serde_json::Value;

use super::finding::{CLUSTER, Finding, KUBELET};
use super::observe::{Kubelet, Observed};
use crate::log::Log;

/// Smallest and largest period with which the CPU manager may look at containers, in seconds.
const RECONCILE_SECONDS: (i64, i64) = (1, 10);
/// Where a kubelet's settings are changed.
const HOW: &str =
    "in the kubelet's configuration (on OpenShift in a KubeletConfig), then restart the kubelet";

/// The settings that matter. Absent ones have the value that the kubelet tells for them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Policy of the CPU manager.
    pub cpu_manager_policy: String,
    /// How often it looks at containers, as a Go duration.
    pub cpu_manager_reconcile_period: String,
    /// CPUs that no pod gets.
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: String,
    /// Policy of the memory manager.
    pub memory_manager_policy: String,
    /// Memory that no pod gets, by NUMA node.
    pub reserved_memory: Option<Vec<Value>>,
    /// Policy of the topology manager.
    pub topology_manager_policy: String,
    /// Its scope.
    pub topology_manager_scope: String,
}

/// Checks all workers.
pub(super) fn check(observed: &Observed, log: &Log) -> Vec<Finding> {
    if observed.kubelets.is_empty() {
        return vec![
            Finding::error("", CLUSTER, "", "")
                .expected("worker nodes")
                .detected("none")
                .fix("label the workers: kubectl label node NODE node-role.kubernetes.io/worker="),
        ];
    }
    let cores = cpus_of_cores(observed);
    let mut findings = Vec::new();
    for kubelet in &observed.kubelets {
        let found = one(kubelet, cores.get(&kubelet.node).copied());
        let result = match found.len() {
            0 => "OK".to_owned(),
            count => format!("{count} issues found"),
        };
        let pairs = [
            ("node", kubelet.node.as_str().into()),
            ("result", result.into()),
        ];
        log.line(1, "validated", &pairs);
        findings.extend(found);
    }
    findings
}

/// Returns how many CPUs the cores of a node have, where an exporter says it.
fn cpus_of_cores(observed: &Observed) -> BTreeMap<String, usize> {
    let topologies = observed.topologies.iter().flatten();
    topologies
        .filter_map(|topology| {
            let name = topology.metadata.name.clone()?;
            let text = attribute(
                &topology.attributes,
                attributes::CPU_MANAGER_FULL_PCPUS_ONLY,
            )?;
            Some((name, text.parse().ok()?))
        })
        .collect()
}

fn one(kubelet: &Kubelet, cpus_of_core: Option<usize>) -> Vec<Finding> {
    let node = kubelet.node.as_str();
    let settings = kubelet.config.as_ref().ok();
    let settings = settings.and_then(|config| Settings::deserialize(config).ok());
    let Some(settings) = settings else {
        return vec![
            Finding::error(node, KUBELET, "configuration", "")
                .expected("any value")
                .detected("no configuration")
                .fix(format!(
                    "see why the kubelet does not answer: kubectl get --raw /api/v1/nodes/{node}/proxy/configz"
                )),
        ];
    };
    let mut findings = rules(node, &settings);
    let reserved = count_cpus(&settings.reserved_system_cpus);
    if let (Some(reserved), Some(of_core)) = (reserved, cpus_of_core)
        && of_core > 1
        && reserved % of_core != 0
    {
        findings.push(
            Finding::warning(node, KUBELET, "configuration", "reservedSystemCPUs")
                .expected(format!("whole cores of {of_core} CPUs"))
                .detected(&settings.reserved_system_cpus)
                .fix(format!("reserve all CPUs of a core {HOW}: with full-pcpus-only the rest of a split core is lost")),
        );
    }
    findings
}

/// The rules of the original, in its order.
fn rules(node: &str, settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |component: &str, setting: &str, expected: &str, detected: &str, fix: &str| {
        findings.push(
            Finding::error(node, KUBELET, component, setting)
                .expected(expected)
                .detected(detected)
                .fix(format!("{fix} {HOW}")),
        );
    };
    if settings.cpu_manager_policy != "static" {
        let detected = &settings.cpu_manager_policy;
        add(
            "CPU manager",
            "policy",
            "static",
            detected,
            "set cpuManagerPolicy: static",
        );
    }
    let period = settings.cpu_manager_reconcile_period.parse::<GoDuration>();
    let period = period.unwrap_or(GoDuration::from_seconds(0));
    let (least, most) = RECONCILE_SECONDS;
    let is_in_range = (GoDuration::from_seconds(least).as_nanos()
        ..=GoDuration::from_seconds(most).as_nanos())
        .contains(&period.as_nanos());
    if !is_in_range {
        let detected = period.to_string();
        let fix = "set cpuManagerReconcilePeriod: 5s";
        add(
            "CPU manager",
            "reconcile period",
            "in range [1s, 10s]",
            &detected,
            fix,
        );
    }
    if settings.reserved_system_cpus.is_empty() {
        let fix = "set reservedSystemCPUs, such as \"0,1\"";
        add(
            "configuration",
            "CPU",
            "reserved some CPU cores",
            "no reserved CPU cores",
            fix,
        );
    }
    if settings.memory_manager_policy != "Static" {
        let detected = &settings.memory_manager_policy;
        add(
            "memory manager",
            "policy",
            "Static",
            detected,
            "set memoryManagerPolicy: Static",
        );
    }
    if settings.reserved_memory.as_ref().is_none_or(Vec::is_empty) {
        let fix = "set reservedMemory to the sum of kubeReserved, systemReserved and the hard eviction threshold, by NUMA node,";
        add(
            "configuration",
            "memory",
            "reserved memory blocks",
            "no reserved memory blocks",
            fix,
        );
    }
    if settings.topology_manager_policy != "single-numa-node" {
        let detected = &settings.topology_manager_policy;
        let fix = "set topologyManagerPolicy: single-numa-node";
        add(
            "topology manager",
            "policy",
            "single-numa-node",
            detected,
            fix,
        );
    }
    findings
}

/// Returns how many CPUs a list such as `0-1,4` has; `None` if it is none.
fn count_cpus(list: &str) -> Option<usize> {
    list.split(',')
        .map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (usize, usize) =
                (first.trim().parse().ok()?, last.trim().parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn good() -> Value {
        json!({
            "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "10s", "reservedSystemCPUs": "0-1,4",
            "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod",
        })
    }

    fn found(config: Value, of_core: Option<usize>) -> Vec<String> {
        let kubelet = Kubelet {
            node: "n".into(),
            config: Ok(config),
        };
        one(&kubelet, of_core)
            .iter()
            .map(|f| {
                format!(
                    "{}/{}: {} / {}",
                    f.component, f.setting, f.expected, f.detected
                )
            })
            .collect()
    }

    #[rstest]
    #[case::cpu_manager("cpuManagerPolicy", json!("none"), "CPU manager/policy: static / none")]
    #[case::too_rare("cpuManagerReconcilePeriod", json!("10s1ms"), "CPU manager/reconcile period: in range [1s, 10s] / 10.001s")]
    #[case::never("cpuManagerReconcilePeriod", json!("0s"), "CPU manager/reconcile period: in range [1s, 10s] / 0s")]
    #[case::no_cpus("reservedSystemCPUs", json!(""), "configuration/CPU: reserved some CPU cores / no reserved CPU cores")]
    #[case::memory_manager("memoryManagerPolicy", json!("None"), "memory manager/policy: Static / None")]
    #[case::no_memory("reservedMemory", json!(null), "configuration/memory: reserved memory blocks / no reserved memory blocks")]
    #[case::policy("topologyManagerPolicy", json!("none"), "topology manager/policy: single-numa-node / none")]
    fn each_setting_is_found_alone(
        #[case] key: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        let mut config = good();
        config[key] = value;
        assert_eq!(found(config, None), [expected]);
        assert_eq!(found(good(), None), [""; 0]);
    }

    #[test]
    fn reserved_cpus_that_split_a_core_are_found_where_the_size_of_cores_is_known() {
        assert_eq!(
            found(good(), Some(2)),
            ["configuration/reservedSystemCPUs: whole cores of 2 CPUs / 0-1,4"]
        );
        assert_eq!(found(good(), Some(3)), [""; 0]);
    }

    #[test]
    fn a_kubelet_without_answer_and_a_cluster_without_workers_are_found() {
        let late = Kubelet {
            node: "n".into(),
            config: Err(crate::kubelets::NoAnswer::Late(std::time::Duration::ZERO)),
        };
        assert_eq!(one(&late, None)[0].detected, "no configuration");
        let log = Log::stderr(-1);
        let none = check(&Observed::default(), &log);
        assert_eq!((none.len(), none[0].detected.as_str()), (1, "none"));
    }
}
