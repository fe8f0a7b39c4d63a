//! The workers: one for each setting that accounting depends on.

use std::io;
use std::path::Path;

use cluster_spec::kubelet::{KubeletSettings, MemoryPolicy, TopologyPolicy, TopologyScope};
use cluster_spec::plan::{self, NodePlan, WORKER};
use fixtures::machines::Machine;

/// Plans every worker with its own pool, because an exporter has the settings of its pool.
fn plans() -> Vec<NodePlan> {
    let two = Machine::default_profile();
    let four = Machine::named("four-zones").expect("it is built in");
    let settings = KubeletSettings::default;
    let all = [
        ("numa-container", &two, settings()),
        (
            "numa-pod",
            &two,
            KubeletSettings::with_scope(TopologyScope::Pod),
        ),
        ("numa-four", &four, settings()),
        (
            "numa-cpus-only",
            &two,
            KubeletSettings {
                memory_manager_policy: MemoryPolicy::None,
                ..settings()
            },
        ),
        (
            "numa-restricted",
            &two,
            KubeletSettings {
                topology_manager_policy: TopologyPolicy::Restricted,
                ..settings()
            },
        ),
        (
            "numa-best-effort",
            &four,
            KubeletSettings {
                topology_manager_policy: TopologyPolicy::BestEffort,
                topology_manager_scope: TopologyScope::Pod,
                ..settings()
            },
        ),
    ];
    let plan =
        |(index, (pool, machine, kubelet)): (usize, (&str, &Machine, KubeletSettings))| NodePlan {
            name: format!("worker-{index}"),
            machine: machine.clone(),
            kubelet,
            labels: plan::roles([WORKER, &api::labels::node_role(pool)]),
            taints: Vec::new(),
        };
    all.into_iter().enumerate().map(plan).collect()
}

/// Writes the plans where the lane reads them.
pub(crate) fn write(file: &Path) -> io::Result<()> {
    let text = serde_yaml::to_string(&plans()).map_err(io::Error::other)?;
    std::fs::write(file, text)
}
