//! The same decision as [`fit`](super::fit), told in full: for people and for comparisons, not for the hot path.

use super::{FreeZone, Subject, held, subject};
use crate::mask::ZoneId;
use crate::policy::Scope;
use crate::request::{Container, ContainerKind, Pod, Qos};
use crate::resource::{ResourceName, Resources};

/// A resource that a zone has too little of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The resource.
    pub resource: ResourceName,
    /// How much is asked for.
    pub wanted: i64,
    /// What the zone has left; none where the zone does not hold it.
    pub available: Option<i64>,
}

/// A zone as it was when one subject was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneTrial {
    /// The zone.
    pub id: ZoneId,
    /// What it had left then.
    pub available: Resources,
    /// What it has too little of, by name; empty if the subject fits.
    pub lacking: Vec<Lacking>,
}

/// What was tried for one subject: the pod, or one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Who.
    pub subject: Subject,
    /// What has to come from one zone.
    pub wanted: Resources,
    /// Resources that the node does not list at all.
    pub unknown: Vec<ResourceName>,
    /// Every zone.
    pub zones: Vec<ZoneTrial>,
    /// The zone that is taken; none if there is none.
    pub chosen: Option<ZoneId>,
}

/// Every trial up to the first that fails, in order. The pod [fits](super::fit) if the last has a chosen zone, or there is none.
pub fn explain(
    pod: &Pod,
    scope: Scope,
    zones: &[FreeZone],
    node_has: impl Fn(&str) -> bool,
) -> Vec<Trial> {
    let subjects: Vec<(Subject, Resources, Option<&Container>)> = match scope {
        Scope::Pod => vec![(Subject::Pod, pod.aligned_request(), None)],
        Scope::Container => pod
            .containers()
            .iter()
            .map(|container| {
                (
                    subject(container),
                    container.requests.clone(),
                    Some(container),
                )
            })
            .collect(),
    };
    let mut left = zones.to_vec();
    let mut trials = Vec::new();
    for (subject, wanted, container) in subjects {
        let trial = attempt(subject, wanted, pod.qos(), &left, &node_has);
        let chosen = trial.chosen;
        trials.push(trial);
        let Some(chosen) = chosen else { break };
        if let Some(container) = container
            && container.kind != ContainerKind::Init
            && let Some(zone) = left.iter_mut().find(|zone| zone.id == chosen)
        {
            zone.available
                .subtract_listed(&held(&container.requests, pod.qos()));
        }
    }
    trials
}

fn attempt(
    subject: Subject,
    wanted: Resources,
    qos: Qos,
    zones: &[FreeZone],
    node_has: &impl Fn(&str) -> bool,
) -> Trial {
    let asked = || wanted.iter().filter(|(_, amount)| *amount != 0);
    let listed = |name: &ResourceName| {
        zones
            .iter()
            .any(|zone| zone.available.get(name.as_str()).is_some())
    };
    let unknown: Vec<ResourceName> = asked()
        .filter(|(name, _)| !node_has(name.as_str()))
        .map(|(name, _)| name.clone())
        .collect();
    let lacking = |zone: &FreeZone| -> Vec<Lacking> {
        asked()
            .filter_map(|(name, wanted)| {
                let available = zone.available.get(name.as_str());
                let shared = qos != Qos::Guaranteed && name.is_affine();
                let enough = match available {
                    Some(available) => shared || available >= wanted,
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
    let zones: Vec<ZoneTrial> = zones
        .iter()
        .map(|zone| ZoneTrial {
            id: zone.id,
            available: zone.available.clone(),
            lacking: lacking(zone),
        })
        .collect();
    // nothing that is tied to zones: any zone will do, and the first is named
    let unbound = asked().all(|(name, _)| !listed(name) && name.is_host_level());
    let chosen = if !unknown.is_empty() {
        None
    } else if unbound {
        ZoneId::new(0)
    } else {
        zones
            .iter()
            .filter(|zone| zone.lacking.is_empty())
            .map(|zone| zone.id)
            .min()
    };
    Trial {
        subject,
        wanted,
        unknown,
        zones,
        chosen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::fit;
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
        FreeZone {
            id: ZoneId::new(id).expect("small"),
            available: amounts(list),
        }
    }

    #[test]
    fn every_lacking_resource_of_every_zone_is_named() {
        let pod = Pod::new(vec![app("a", &[("cpu", 4000), ("memory", 8)])]);
        let zones = [
            zone(0, &[("cpu", 2000), ("memory", 4)]),
            zone(1, &[("cpu", 6000), ("memory", 4)]),
        ];
        let trials = explain(&pod, Scope::Container, &zones, |_| true);
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
        let trials = explain(&pod, Scope::Container, &zones, |_| true);
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

    proptest! {
        #[test]
        fn the_explanation_is_the_decision(
            containers in proptest::collection::vec(container(), 1..4),
            zones in (free_zone(0), free_zone(1), free_zone(2)),
            pod_scope in any::<bool>(),
            devices_known in any::<bool>(),
        ) {
            let pod = Pod::new(containers);
            let scope = if pod_scope { Scope::Pod } else { Scope::Container };
            let zones = [zones.0, zones.1, zones.2];
            let known = |name: &str| devices_known || name != "v/d";
            let trials = explain(&pod, scope, &zones, known);
            let fits = trials.last().is_none_or(|trial| trial.chosen.is_some());
            prop_assert_eq!(fit(&pod, scope, &zones, known).is_ok(), fits);
        }
    }
}
