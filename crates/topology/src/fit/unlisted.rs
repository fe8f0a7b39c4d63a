//! What a kubelet keeps for finished init containers without listing it anywhere.

use std::collections::BTreeMap;

use super::rules::Rules;
use super::state::CpuReuse;
use crate::mask::ZoneId;
use crate::policy::ManagerConfig;
use crate::request::{ContainerKind, Pod};
use crate::resource::Resources;

/// Returns the most that finished init containers of an admitted pod may hold in any one zone beyond what PodResources lists for the
/// pod: CPUs and devices until the pod ends, memory until a later container has started (kubelet-node.md 6.6, 7.4, 8.3). The result is
/// empty where the managers of the kubelet are not known.
pub fn unlisted(pod: &Pod, config: &ManagerConfig, has_started: bool) -> Resources {
    let rules = Rules::new(pod, config);
    let mut held = Resources::new();
    let is_init = |kind| kind == ContainerKind::Init;
    if !rules.are_exact() || !pod.containers().iter().any(|part| is_init(part.kind)) {
        return held;
    }
    // any zone will do: only the amount matters
    let mut cpus = ZoneId::new(0).map(|zone| CpuReuse::new(zone, rules.packed_cores()));
    let mut devices = BTreeMap::new();
    for container in pod.containers() {
        let is_init = is_init(container.kind);
        for (name, amount) in rules.held(&container.requests) {
            if name.is_cpu() {
                cpus = cpus.map(|cpus| cpus.after(amount, is_init, i64::MAX));
            } else if !name.is_memory_like() {
                let reusable: &mut i64 = devices.entry(name.clone()).or_default();
                *reusable = if is_init {
                    amount.max(*reusable)
                } else {
                    (*reusable - amount).max(0)
                };
            } else if is_init && !has_started {
                held.raise_to(&Resources::from_iter([(name.clone(), amount)]));
            }
        }
    }
    let cpus = cpus.map_or(0, |cpus| cpus.most());
    let parts = devices
        .into_iter()
        .chain([(crate::resource::CPU.into(), cpus)]);
    for (name, amount) in parts.filter(|(_, amount)| *amount > 0) {
        held.set(name, amount);
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{CpuManager, Managers};
    use crate::request::Container;
    use rstest::rstest;

    const STATIC: ManagerConfig = ManagerConfig {
        managers: Some(Managers {
            cpus: CpuManager::Single,
            packed_cores: None,
            memory: true,
        }),
        ..ManagerConfig::unknown()
    };

    /// Parses the form `init cpu=2 memory=1`.
    fn container(text: &str) -> Container {
        let (kind, amounts) = text.split_once(' ').unwrap();
        let requests: Resources = amounts
            .split_whitespace()
            .map(|item| item.split_once('=').unwrap())
            .map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()))
            .collect();
        Container {
            name: "c".to_owned(),
            kind: match kind {
                "init" => ContainerKind::Init,
                "sidecar" => ContainerKind::Sidecar,
                _ => ContainerKind::App,
            },
            limits: requests.clone(),
            requests,
        }
    }

    #[rstest]
    #[case::no_init(&["app cpu=2000 memory=1"], &[])]
    #[case::taken_over(&["init cpu=2000 memory=1", "app cpu=2000 memory=1"], &[])]
    #[case::larger(&["init cpu=4000 memory=1", "app cpu=2000 memory=1"], &[("cpu", 4000)])]
    #[case::twice_the_same(&["init cpu=2000 memory=1", "init cpu=2000 memory=1", "app cpu=1500 memory=1"], &[("cpu", 2000)])]
    #[case::different(&["init cpu=2000 memory=1", "init cpu=1000 memory=1", "app cpu=1500 memory=1"], &[("cpu", 3000)])]
    #[case::shared(&["init cpu=1500 memory=1", "app cpu=2000 memory=1"], &[])]
    #[case::sidecar_between(&["init cpu=2000 memory=1", "sidecar cpu=1000 memory=1", "app cpu=2000 memory=1"], &[("cpu", 2000)])]
    #[case::devices(&["init cpu=500 memory=1 v/d=3", "app cpu=500 memory=1 v/d=1"], &[("v/d", 2)])]
    fn what_stays_behind_is_bounded(#[case] containers: &[&str], #[case] expected: &[(&str, i64)]) {
        let pod = Pod::new(containers.iter().map(|text| container(text)).collect());
        let expected: Resources = expected.iter().copied().collect();
        assert_eq!(unlisted(&pod, &STATIC, true), expected);
        assert_eq!(
            unlisted(&pod, &ManagerConfig::default(), true),
            Resources::new()
        );
    }

    #[rstest]
    #[case::larger(&["init cpu=4000 memory=1", "app cpu=2000 memory=1"], 2000)]
    #[case::taken_over(&["init cpu=2000 memory=1", "init cpu=4000 memory=1", "app cpu=4000 memory=1"], 0)]
    #[case::parts_of_cores(&["init cpu=3000 memory=1", "app cpu=4000 memory=1"], 3000)]
    fn whole_cores_in_one_order_are_taken_over(#[case] containers: &[&str], #[case] cpus: i64) {
        let config = ManagerConfig {
            managers: STATIC.managers.map(|managers| Managers {
                packed_cores: Some(2),
                ..managers
            }),
            ..STATIC
        };
        let pod = Pod::new(containers.iter().map(|text| container(text)).collect());
        assert_eq!(unlisted(&pod, &config, true).amount("cpu"), cpus);
    }

    #[test]
    fn memory_stays_until_the_next_container_starts() {
        let pod = Pod::new(vec![
            container("init cpu=500 memory=7"),
            container("app cpu=500 memory=3"),
        ]);
        assert_eq!(unlisted(&pod, &STATIC, false).amount("memory"), 7);
        assert_eq!(unlisted(&pod, &STATIC, true).amount("memory"), 0);
    }
}
