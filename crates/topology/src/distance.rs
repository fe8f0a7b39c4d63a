//! How far apart the zones of a set are.

use crate::zone::Zone;

/// Distance between zones that do not publish one (scheduler.md 4.3).
pub const UNKNOWN: i64 = 255;

/// Returns the mean distance over all ordered pairs of `zones`, including the pair of each zone with itself. Single precision,
/// because the rule that compares these values is defined for it (scheduler.md 4.3). Returns 0 without zones.
pub fn average(zones: &[&Zone]) -> f32 {
    let pairs = zones.len() * zones.len();
    if pairs == 0 {
        return 0.0;
    }
    let sum: i64 = zones
        .iter()
        .flat_map(|from| {
            zones
                .iter()
                .map(|to| from.distances.get(&to.id).copied().unwrap_or(UNKNOWN))
        })
        .sum();
    sum as f32 / pairs as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::ZoneId;
    use rstest::rstest;

    /// Builds four zones: distance 10 to itself, 12 within the pairs {0,1} and {2,3}, 20 across (scheduler.md 4.3).
    fn four() -> Vec<Zone> {
        let id = |id| ZoneId::new(id).expect("small");
        (0..4)
            .map(|from| {
                let distance = |to: u64| match (from == to, from / 2 == to / 2) {
                    (true, _) => 10,
                    (_, true) => 12,
                    _ => 20,
                };
                Zone {
                    distances: (0..4).map(|to| (id(to), distance(to))).collect(),
                    ..Zone::new(id(from))
                }
            })
            .collect()
    }

    #[rstest]
    #[case::one(&[0], 10.0)]
    #[case::pair(&[0, 1], 11.0)]
    #[case::across(&[0, 2], 15.0)]
    #[case::three(&[0, 1, 2], 14.888_889)]
    #[case::none(&[], 0.0)]
    fn average_counts_all_ordered_pairs(#[case] chosen: &[usize], #[case] expected: f32) {
        let zones = four();
        let chosen: Vec<&Zone> = chosen.iter().map(|index| &zones[*index]).collect();
        assert!((average(&chosen) - expected).abs() < f32::EPSILON * 16.0);
    }

    #[test]
    fn zones_that_do_not_tell_are_far() {
        let zone = Zone::new(ZoneId::new(0).expect("small"));
        assert!((average(&[&zone]) - 255.0).abs() < f32::EPSILON);
    }
}
