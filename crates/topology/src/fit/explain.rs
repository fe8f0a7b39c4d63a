//! The same decision as [`fit`](super::fit) with every step recorded. For people and for comparisons, not for the hot path.

use super::state::{Room, State};
use super::{FreeZone, Misfit, Obstacle, Search, Subject, subject};
use crate::mask::ZoneId;
use crate::policy::{ManagerConfig, Scope};
use crate::request::Pod;
use crate::resource::{ResourceName, Resources};

/// A resource that a zone has too little of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The resource.
    pub resource: ResourceName,
    /// Requested amount.
    pub wanted: i64,
    /// What the zone has left; `None` if the zone does not hold the resource.
    pub available: Option<i64>,
}

/// A zone as it was when one subject was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneTrial {
    /// The zone.
    pub id: ZoneId,
    /// What it had left at that time.
    pub available: Resources,
    /// Resources that it has too little of, by name; empty if the subject fits.
    pub lacking: Vec<Lacking>,
}

/// The attempt to place one subject: the pod, or one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The pod or container.
    pub subject: Subject,
    /// Amounts that one zone has to provide.
    pub wanted: Resources,
    /// Resources that the node does not list at all.
    pub unknown: Vec<ResourceName>,
    /// All zones.
    pub zones: Vec<ZoneTrial>,
    /// The chosen zone; `None` if no zone fits.
    pub chosen: Option<ZoneId>,
    /// An obstacle other than the amounts, if no zone is chosen.
    pub obstacle: Option<Obstacle>,
}

/// Returns every trial in order, up to the first that fails. The pod [fits](super::fit) if the last trial has a chosen zone, or if
/// there is no trial.
pub fn explain(
    pod: &Pod,
    config: &ManagerConfig,
    zones: &[FreeZone],
    node_has: impl Fn(&str) -> bool,
) -> Vec<Trial> {
    let mut search = Search::new(pod, config, &node_has);
    if search.rules.differ_from_original(pod) {
        let original = search.with_original_rules();
        if original.run(zones).is_err() {
            search = original;
        }
    }
    match config.scope {
        Scope::Pod => {
            let (mut wanted, unhinted) = search.rules.of_pod(pod);
            wanted.add(&unhinted);
            let outcome = search.pod(zones);
            let state = State::new(zones);
            vec![trial(&search, &state, Subject::Pod, wanted, outcome)]
        }
        Scope::Container => containers(&search, State::new(zones)),
    }
}

/// Tries the containers in order. Follows a branch on which the pod fails, if one exists.
fn containers<F: Fn(&str) -> bool>(search: &Search<'_, F>, mut state: State<'_>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut rest = search.pod.containers();
    while let Some((container, later)) = rest.split_first() {
        let choice = search.container(&state, container);
        let next = |zone: ZoneId| {
            let mut branch = state.clone();
            branch.take(container, zone, search.rules);
            branch
        };
        let outcome = choice.map(|choice| {
            let mut zones = choice.preferred().iter();
            let failing = zones.find(|zone| search.containers(later, next(*zone)).is_err());
            failing.unwrap_or(choice.certain)
        });
        let wanted = container.requests.clone();
        let chosen = outcome.as_ref().ok().copied();
        let after = chosen.map(next);
        trials.push(trial(search, &state, subject(container), wanted, outcome));
        let Some(after) = after else { break };
        state = after;
        rest = later;
    }
    trials
}

fn trial<F: Fn(&str) -> bool>(
    search: &Search<'_, F>,
    state: &State<'_>,
    subject: Subject,
    wanted: Resources,
    outcome: Result<ZoneId, Misfit>,
) -> Trial {
    let requested = || wanted.iter().filter(|(_, amount)| *amount != 0);
    let listed = |name: &ResourceName| {
        let mut zones = state.left.iter();
        zones.any(|zone| zone.available.get(name.as_str()).is_some())
    };
    let unknown = requested()
        .filter(|(name, _)| !(search.node_has)(name.as_str()))
        .map(|(name, _)| name.clone())
        .collect();
    let lacking = |zone: &FreeZone| -> Vec<Lacking> {
        requested()
            .filter_map(|(name, wanted)| {
                let available = zone.available.get(name.as_str());
                let enough = match available {
                    Some(_) => {
                        !search.rules.compares(name, wanted)
                            || state.room(zone, name, wanted) == Room::Enough
                    }
                    None => !listed(name) && name.is_host_level(),
                };
                (!enough).then(|| Lacking {
                    resource: name.clone(),
                    wanted,
                    available,
                })
            })
            .collect()
    };
    let zones = state
        .left
        .iter()
        .map(|zone| ZoneTrial {
            id: zone.id,
            available: zone.available.clone(),
            lacking: lacking(zone),
        })
        .collect();
    let (chosen, obstacle) = match outcome {
        Ok(zone) => (Some(zone), None),
        Err(misfit) => (None, misfit.obstacle),
    };
    Trial {
        subject,
        wanted,
        unknown,
        zones,
        chosen,
        obstacle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::fit;
    use crate::policy::{CpuManager, Managers};
    use crate::request::{Container, ContainerKind};
    use proptest::prelude::*;

    fn amounts(list: &[(&str, i64)]) -> Resources {
        list.iter()
            .map(|(name, amount)| (ResourceName::from(*name), *amount))
            .collect()
    }

    fn app(name: &str, list: &[(&str, i64)]) -> Container {
        Container {
            name: name.to_owned(),
            kind: ContainerKind::App,
            requests: amounts(list),
            limits: amounts(list),
        }
    }

    fn zone(id: u64, list: &[(&str, i64)]) -> FreeZone {
        FreeZone::exactly(ZoneId::new(id).expect("small"), amounts(list))
    }

    #[test]
    fn every_lacking_resource_of_every_zone_is_named() {
        let pod = Pod::new(vec![app("a", &[("cpu", 4000), ("memory", 8)])]);
        let zones = [
            zone(0, &[("cpu", 2000), ("memory", 4)]),
            zone(1, &[("cpu", 6000), ("memory", 4)]),
        ];
        let trials = explain(&pod, &ManagerConfig::default(), &zones, |_| true);
        let names: Vec<Vec<&str>> = trials[0]
            .zones
            .iter()
            .map(|zone| {
                let lacking = zone.lacking.iter();
                lacking.map(|lacking| lacking.resource.as_str()).collect()
            })
            .collect();
        assert_eq!(names, [vec!["cpu", "memory"], vec!["memory"]]);
        assert_eq!(trials[0].chosen, None);
    }

    #[test]
    fn later_containers_see_what_earlier_ones_took() {
        let pod = Pod::new(vec![
            app("a", &[("cpu", 3000), ("memory", 1)]),
            app("b", &[("cpu", 3000), ("memory", 1)]),
        ]);
        let zones = [
            zone(0, &[("cpu", 4000), ("memory", 4)]),
            zone(1, &[("cpu", 4000), ("memory", 4)]),
        ];
        let trials = explain(&pod, &ManagerConfig::default(), &zones, |_| true);
        let chosen: Vec<Option<ZoneId>> = trials.iter().map(|trial| trial.chosen).collect();
        assert_eq!(chosen, [ZoneId::new(0), ZoneId::new(1)]);
        assert_eq!(trials[1].zones[0].available.amount("cpu"), 1000);
    }

    fn container() -> impl Strategy<Value = Container> {
        let kind = prop_oneof![
            Just(ContainerKind::App),
            Just(ContainerKind::Init),
            Just(ContainerKind::Sidecar)
        ];
        let amount = 0..5_i64;
        (kind, amount.clone(), amount.clone(), amount, any::<bool>()).prop_map(
            |(kind, cpu, memory, devices, guaranteed)| {
                let requests =
                    amounts(&[("cpu", cpu * 1000), ("memory", memory), ("v/d", devices)]);
                let limits = if guaranteed {
                    requests.clone()
                } else {
                    amounts(&[("v/d", devices)])
                };
                Container {
                    name: "c".to_owned(),
                    kind,
                    requests,
                    limits,
                }
            },
        )
    }

    fn free_zone(id: u64) -> impl Strategy<Value = FreeZone> {
        let amount = proptest::option::of(0..6_i64);
        (amount.clone(), amount.clone(), amount).prop_map(move |(cpu, memory, devices)| {
            let all = [
                ("cpu", cpu.map(|cpu| cpu * 1000)),
                ("memory", memory),
                ("v/d", devices),
            ];
            let listed: Vec<(&str, i64)> = all
                .into_iter()
                .filter_map(|(name, amount)| Some((name, amount?)))
                .collect();
            zone(id, &listed)
        })
    }

    fn cpu_manager() -> impl Strategy<Value = CpuManager> {
        prop_oneof![
            Just(CpuManager::Shared),
            Just(CpuManager::Single),
            Just(CpuManager::WholeCores(2))
        ]
    }

    proptest! {
        #[test]
        fn the_explanation_is_the_decision(
            containers in proptest::collection::vec(container(), 1..4),
            zones in (free_zone(0), free_zone(1), free_zone(2)),
            pod_scope in any::<bool>(),
            devices_known in any::<bool>(),
            managers in proptest::option::of((cpu_manager(), proptest::option::of(1..3_u16), any::<bool>())),
        ) {
            let pod = Pod::new(containers);
            let config = ManagerConfig {
                scope: if pod_scope { Scope::Pod } else { Scope::Container },
                managers: managers.map(|(cpus, packed_cores, memory)| Managers { cpus, packed_cores, memory }),
                ..ManagerConfig::default()
            };
            let zones = [zones.0, zones.1, zones.2];
            let known = |name: &str| devices_known || name != "v/d";
            let trials = explain(&pod, &config, &zones, known);
            let fits = trials.last().is_none_or(|trial| trial.chosen.is_some());
            prop_assert_eq!(fit(&pod, &config, &zones, known).is_ok(), fits);
        }
    }
}
