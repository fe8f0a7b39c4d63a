//! The outcome of the pods of one run.

use std::collections::BTreeSet;
use std::time::Duration;

/// Figures of one run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Pods that ran.
    pub(super) ran: usize,
    /// Pods that their kubelet refused.
    pub(super) refused: usize,
    /// CPU-seconds of those that ran.
    pub(super) served: f64,
    /// Time from creation to running of each, in seconds.
    pub(super) to_running: Vec<f64>,
    /// How long each was not running although a zone had room for it, in seconds.
    pub(super) idle_room: Vec<f64>,
    /// The part of it after the binding, which the kubelet took.
    pub(super) starts: Vec<f64>,
    /// How long each ended pod was bound beyond its lifetime, in seconds: the delay that the kubelet adds.
    pub(super) holds: Vec<f64>,
    /// All that ran, in the order of [`Self::idle_room`].
    pub(super) pods: Vec<Ran>,
}

/// A pod that ran, with times since the start of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// CPUs that it held.
    pub(super) cpus: u32,
    /// How long its process runs.
    pub(super) lifetime: Duration,
    /// Index of its zone among all zones of the cluster.
    pub(super) zone: usize,
    /// When its client requested it.
    pub(super) created: Duration,
    /// When the choice of a node was seen.
    pub(super) bound: Duration,
    /// When it was seen running.
    pub(super) running: Duration,
    /// When its end was seen; `None` if that was not waited for.
    pub(super) ended: Option<Duration>,
}

impl Ran {
    /// Formats it as a line of a table, with times in seconds since the start of the run.
    pub(super) fn row(&self) -> String {
        let ended = self.ended.map_or_else(
            || "-".to_owned(),
            |ended| format!("{:.3}", ended.as_secs_f64()),
        );
        format!(
            "{}\t{}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{ended}",
            self.cpus,
            self.zone,
            self.lifetime.as_secs_f64(),
            self.created.as_secs_f64(),
            self.bound.as_secs_f64(),
            self.running.as_secs_f64(),
        )
    }
}

/// Header of the columns of [`Ran::row`].
pub(super) const COLUMNS: &str = "cpus\tzone\tlife\tcreated\tbound\trunning\tended";

/// Computes for each pod how long it did not run although a zone had room for it. Before its binding, that is whenever a zone had as many
/// CPUs that were assigned to no other pod; after its binding, the whole time. Room that was assigned to another pod at once does not
/// count.
pub(super) fn idle_room(pods: &[Ran], zones: &[u32]) -> Vec<f64> {
    let mut times = BTreeSet::new();
    for pod in pods {
        times.insert(pod.bound);
        times.extend(pod.ended);
    }
    let has_room = |at: Duration, cpus: u32| {
        let mut free = zones.to_vec();
        for pod in pods {
            if pod.bound <= at && pod.ended.is_none_or(|ended| at < ended) {
                free[pod.zone] = free[pod.zone].saturating_sub(pod.cpus);
            }
        }
        free.iter().any(|free| *free >= cpus)
    };
    pods.iter()
        .map(|pod| {
            let mut idle = pod.running.saturating_sub(pod.bound);
            let mut from = pod.created;
            let between = times
                .range(pod.created..pod.bound)
                .copied()
                .filter(|time| *time > pod.created);
            for until in between.chain([pod.bound]) {
                if has_room(from, pod.cpus) {
                    idle += until.saturating_sub(from);
                }
                from = until;
            }
            idle.as_secs_f64()
        })
        .collect()
}

/// Returns the arithmetic mean; 0 for no values.
pub(super) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the value that this percentage of all values does not exceed; 0 for no values.
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(value: u64) -> Duration {
        Duration::from_secs(value)
    }

    fn ran(cpus: u32, created: u64, bound: u64, ended: u64) -> Ran {
        Ran {
            cpus,
            lifetime: seconds(1),
            zone: 0,
            created: seconds(created),
            bound: seconds(bound),
            running: seconds(bound + 1),
            ended: Some(seconds(ended)),
        }
    }

    #[test]
    fn waiting_for_a_full_zone_is_not_idle() {
        let pods = [ran(10, 0, 0, 20), ran(10, 5, 20, 30)];
        assert_eq!(idle_room(&pods, &[16]), [1.0, 1.0]);
    }

    #[test]
    fn waiting_beside_a_zone_with_room_is_idle_until_running() {
        let pods = [ran(10, 0, 0, 20), ran(10, 5, 24, 30)];
        assert_eq!(idle_room(&pods, &[16]), [1.0, 5.0]);
        let pods = [ran(4, 0, 3, 20)];
        assert_eq!(idle_room(&pods, &[16]), [4.0]);
    }

    #[test]
    fn room_that_another_took_at_once_is_none() {
        let pods = [ran(10, 0, 0, 20), ran(10, 1, 20, 30), ran(10, 2, 30, 40)];
        assert_eq!(idle_room(&pods, &[16]), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(
            (percentile(&values, 50), percentile(&values, 99)),
            (100.0, 198.0)
        );
        assert_eq!((percentile(&[3.0], 99), percentile(&[], 99)), (3.0, 0.0));
    }
}
