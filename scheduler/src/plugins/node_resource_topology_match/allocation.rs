//! Scores of a node's zones: least, most and balanced allocation (scheduler.md 4.1, 4.2).
//!
//! Amounts are whole units, with fractions of a core rounded up, and all divisions drop the remainder. That is coarse, but the resulting
//! order of nodes has to match the original.

use scheduler_config::args::{ScoringStrategy, ScoringStrategyType};
use topology::fit::FreeZone;
use topology::resource::{ResourceName, Resources};

use crate::numa::view::Fresh;
use crate::plugins::score::MAX;

/// [`MAX`] as wide as the products are that it is a factor of.
const MOST: i128 = MAX as i128;

/// Returns the lowest non-zero score of any zone; 0 if there is none.
pub(super) fn lowest_zone_score(
    request: &Resources,
    fresh: &Fresh,
    strategy: &ScoringStrategy,
) -> i64 {
    let zone = |zone: &FreeZone| match strategy.kind {
        ScoringStrategyType::BalancedAllocation => balanced(request, zone),
        ScoringStrategyType::MostAllocated => {
            weighted(request, zone, strategy, |wanted, left| wanted * MOST / left)
        }
        _ => weighted(request, zone, strategy, |wanted, left| {
            (left - wanted) * MOST / left
        }),
    };
    fresh
        .free
        .iter()
        .map(zone)
        .filter(|score| *score != 0)
        .min()
        .unwrap_or(0)
}

/// Returns whole cores, rounded up; everything else already is in whole units.
fn units(name: &ResourceName, amount: i64) -> i128 {
    let amount = i128::from(amount);
    if name.is_cpu() {
        (amount + 999) / 1000
    } else {
        amount
    }
}

fn weighted(
    request: &Resources,
    zone: &FreeZone,
    strategy: &ScoringStrategy,
    score: impl Fn(i128, i128) -> i128,
) -> i64 {
    let (mut sum, mut weights) = (0, 0);
    for (name, wanted) in request.iter() {
        let listed = strategy
            .resources
            .iter()
            .find(|(other, _)| other == name.as_str());
        let weight = listed.map_or(1, |(_, weight)| (*weight).max(1));
        let (wanted, left) = (
            units(name, wanted),
            units(name, zone.available.amount(name.as_str())),
        );
        let part = if left == 0 || wanted > left {
            0
        } else {
            score(wanted, left)
        };
        sum += part * i128::from(weight);
        weights += i128::from(weight);
    }
    // a mean of scores that are at most MAX
    if weights == 0 {
        0
    } else {
        (sum / weights) as i64
    }
}

fn balanced(request: &Resources, zone: &FreeZone) -> i64 {
    let fractions: Vec<f64> = request
        .iter()
        .map(|(name, wanted)| {
            let (wanted, left) = (
                units(name, wanted),
                units(name, zone.available.amount(name.as_str())),
            );
            if left == 0 {
                1.0
            } else {
                wanted as f64 / left as f64
            }
        })
        .collect();
    if fractions.is_empty() || fractions.iter().any(|fraction| *fraction > 1.0) {
        return 0;
    }
    ((1.0 - sample_variance(&fractions)) * MAX as f64) as i64
}

fn sample_variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (values.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::score;
    use super::*;
    use crate::numa::view::View;
    use crate::testing::{mk_container, mk_pod, mk_pod_of, mk_resources};
    use rstest::rstest;
    use topology::mask::ZoneId;
    use topology::policy::{ManagerConfig, Policy, Scope};
    use topology::request::ContainerKind;

    fn mk_strategy(kind: ScoringStrategyType) -> ScoringStrategy {
        ScoringStrategy {
            kind,
            resources: vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)],
        }
    }

    fn mk_view(policy: Policy, scope: Scope, zones: &[&str]) -> View {
        let zone = |(id, left): (usize, &&str)| FreeZone {
            id: ZoneId::new(id as u64).expect("small"),
            available: mk_resources(left),
            at_most: None,
        };
        let config = ManagerConfig {
            policy,
            scope,
            ..ManagerConfig::default()
        };
        let free = zones.iter().enumerate().map(zone).collect();
        View::Fresh(Fresh::new(config, free, Vec::new()))
    }

    use ScoringStrategyType::{BalancedAllocation, LeastAllocated, MostAllocated};

    #[rstest]
    #[case(LeastAllocated, "cpu=4 memory=500Mi", 73)]
    #[case(LeastAllocated, "cpu=2 memory=50Mi", 30)]
    #[case(LeastAllocated, "cpu=6 memory=60Mi", 66)]
    #[case(MostAllocated, "cpu=4 memory=500Mi", 27)]
    #[case(MostAllocated, "cpu=2 memory=50Mi", 70)]
    #[case(MostAllocated, "cpu=6 memory=60Mi", 33)]
    #[case(BalancedAllocation, "cpu=4 memory=500Mi", 89)]
    #[case(BalancedAllocation, "cpu=2 memory=50Mi", 82)]
    #[case(BalancedAllocation, "cpu=6 memory=60Mi", 100)]
    fn the_worked_table(
        #[case] kind: ScoringStrategyType,
        #[case] zone: &str,
        #[case] expected: i64,
    ) {
        let pod = mk_pod("p", "cpu=2 memory=20Mi");
        let view = mk_view(Policy::SingleNumaNode, Scope::Container, &[zone, zone]);
        assert_eq!(score(&pod, &view, &mk_strategy(kind)), expected);
    }

    #[test]
    fn pods_without_guarantee_do_not_care_and_unknown_nodes_come_last() {
        let strategy = mk_strategy(LeastAllocated);
        let shared = mk_pod_of("p", vec![mk_container(ContainerKind::App, "cpu=1", "")]);
        assert_eq!(score(&shared, &View::Stale, &strategy), 100);
        let pod = mk_pod("p", "cpu=2 memory=20Mi");
        assert_eq!(score(&pod, &View::Stale, &strategy), 0);
        assert_eq!(score(&pod, &View::Absent, &strategy), 0);
        let loose = mk_view(Policy::BestEffort, Scope::Container, &["cpu=4 memory=1Gi"]);
        assert_eq!(score(&pod, &loose, &strategy), 0);
    }

    #[test]
    fn the_worst_possible_zone_counts_and_impossible_ones_do_not() {
        let pod = mk_pod("p", "cpu=2 memory=1Gi");
        let view = mk_view(
            Policy::SingleNumaNode,
            Scope::Pod,
            &[
                "cpu=4 memory=2Gi",
                "cpu=20 memory=10Gi",
                "cpu=1 memory=512Mi",
            ],
        );
        assert_eq!(score(&pod, &view, &mk_strategy(LeastAllocated)), 50);
    }

    #[test]
    fn container_scope_takes_the_mean_over_containers() {
        let part = |text| mk_container(ContainerKind::App, text, text);
        let pod = mk_pod_of(
            "p",
            vec![part("cpu=1 memory=1Gi"), part("cpu=2 memory=2Gi")],
        );
        let view = mk_view(
            Policy::SingleNumaNode,
            Scope::Container,
            &["cpu=4 memory=4Gi"],
        );
        assert_eq!(score(&pod, &view, &mk_strategy(LeastAllocated)), 62);
        let view = mk_view(Policy::SingleNumaNode, Scope::Pod, &["cpu=4 memory=4Gi"]);
        assert_eq!(score(&pod, &view, &mk_strategy(LeastAllocated)), 25);
    }

    #[test]
    fn weights_favour_a_resource() {
        let strategy = ScoringStrategy {
            kind: LeastAllocated,
            resources: vec![("cpu".to_owned(), 3)],
        };
        let view = mk_view(Policy::SingleNumaNode, Scope::Pod, &["cpu=4 memory=10Gi"]);
        assert_eq!(
            score(&mk_pod("p", "cpu=2 memory=1Gi"), &view, &strategy),
            (50 * 3 + 90) / 4
        );
    }

    #[test]
    fn a_pod_that_asks_for_nothing_divides_by_nothing() {
        let level = mk_resources("cpu=1 memory=1Gi");
        let container = mk_container(ContainerKind::App, "", "");
        let mut pod = mk_pod_of("p", vec![container.clone()]);
        pod.request = std::sync::Arc::new(
            topology::request::Pod::new(vec![container]).with_pod_level(level.clone(), &level),
        );
        let view = mk_view(
            Policy::SingleNumaNode,
            Scope::Container,
            &["cpu=4 memory=4Gi"],
        );
        for kind in [LeastAllocated, MostAllocated, BalancedAllocation] {
            assert_eq!(score(&pod, &view, &mk_strategy(kind)), 0);
        }
    }
}
