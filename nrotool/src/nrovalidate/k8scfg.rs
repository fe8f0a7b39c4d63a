//! `k8scfg`: the settings of the kubelets (deployer.md 10).

use goflags::GoDuration;
use kube::Client;
use serde_json::Value;

use super::finding::{Finding, KUBELET};
use super::kubelets;
use super::nodes::Members;

/// Bounds of the CPU manager's reconcile period, in nanoseconds.
const RECONCILE_PERIOD: std::ops::RangeInclusive<i64> = 1_000_000_000..=10_000_000_000;

/// Validates the kubelets of these nodes.
pub(super) async fn validate(client: &Client, members: &Members) -> anyhow::Result<Vec<Finding>> {
    let configurations = kubelets::read(client, members).await?;
    if members.nodes.is_empty() {
        return Ok(vec![Finding::of_cluster("", "", &"worker nodes", &"none")]);
    }
    let nodes = members.nodes.keys();
    let findings = nodes.flat_map(|node| check(node, configurations.get(node)));
    Ok(findings.collect())
}

/// Checks the settings of one kubelet.
fn check(node: &str, settings: Option<&Value>) -> Vec<Finding> {
    let finding = |component, setting: &str, expected: &str, detected: &str| Finding {
        node: node.to_owned(),
        area: KUBELET,
        component,
        setting: setting.to_owned(),
        expected: expected.to_owned(),
        detected: detected.to_owned(),
    };
    let Some(settings) = settings.filter(|settings| !settings.is_null()) else {
        return vec![finding(
            "configuration",
            "",
            "any value",
            "no configuration",
        )];
    };
    let text = |key: &str| settings[key].as_str().unwrap_or_default();
    let policy = |component, key: &str, expected: &str| {
        (text(key) != expected).then(|| finding(component, "policy", expected, text(key)))
    };
    let period: GoDuration = text("cpuManagerReconcilePeriod")
        .parse()
        .unwrap_or_default();
    let period = (!RECONCILE_PERIOD.contains(&period.as_nanos())).then(|| {
        let detected = period.to_string();
        finding(
            "CPU manager",
            "reconcile period",
            "in range [1s, 10s]",
            &detected,
        )
    });
    let cpus = text("reservedSystemCPUs").is_empty().then(|| {
        let (expected, detected) = ("reserved some CPU cores", "no reserved CPU cores");
        finding("configuration", "CPU", expected, detected)
    });
    let has_memory = |blocks: &Value| blocks.as_array().is_some_and(|blocks| !blocks.is_empty());
    let memory = (!has_memory(&settings["reservedMemory"])).then(|| {
        let (expected, detected) = ("reserved memory blocks", "no reserved memory blocks");
        finding("configuration", "memory", expected, detected)
    });
    let findings = [
        policy("CPU manager", "cpuManagerPolicy", "static"),
        period,
        cpus,
        policy("memory manager", "memoryManagerPolicy", "Static"),
        memory,
        policy(
            "topology manager",
            "topologyManagerPolicy",
            "single-numa-node",
        ),
    ];
    findings.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn tuned() -> Value {
        json!({
            "cpuManagerPolicy": "static", "cpuManagerReconcilePeriod": "5s", "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0}], "topologyManagerPolicy": "single-numa-node",
        })
    }

    #[rstest]
    #[case::tuned("maxPods", json!(1), "")]
    #[case::cpu_manager("cpuManagerPolicy", json!("none"), "CPU manager/policy/static/none")]
    #[case::never("cpuManagerReconcilePeriod", json!(null), "CPU manager/reconcile period/in range [1s, 10s]/0s")]
    #[case::longest("cpuManagerReconcilePeriod", json!("10s"), "")]
    #[case::longer("cpuManagerReconcilePeriod", json!("10.5s"), "CPU manager/reconcile period/in range [1s, 10s]/10.5s")]
    #[case::cpus("reservedSystemCPUs", json!(""), "configuration/CPU/reserved some CPU cores/no reserved CPU cores")]
    #[case::memory_manager("memoryManagerPolicy", json!("None"), "memory manager/policy/Static/None")]
    #[case::memory("reservedMemory", json!([]), "configuration/memory/reserved memory blocks/no reserved memory blocks")]
    #[case::topology_manager("topologyManagerPolicy", json!("restricted"), "topology manager/policy/single-numa-node/restricted")]
    fn each_setting_is_checked(#[case] key: &str, #[case] value: Value, #[case] expected: &str) {
        let mut settings = tuned();
        settings[key] = value;
        let found = check("n", Some(&settings));
        let found: Vec<String> = found
            .iter()
            .map(|it| {
                format!(
                    "{}/{}/{}/{}",
                    it.component, it.setting, it.expected, it.detected
                )
            })
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn without_settings_there_is_one_finding() {
        let found = check("n", None);
        assert_eq!(
            (found.len(), found[0].detected.as_str()),
            (1, "no configuration")
        );
    }
}
