//! The upper bound: the same demand without any delays but those of a kubelet.
//!
//! A waiting pod takes a zone as soon as one has room for it, the one in which least is left. There is no order, so a small pod overtakes a
//! large one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::demand::{Job, Jobs};
use super::outcome::Outcome;

/// The delays that a kubelet adds to the lifetime of a pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kubelet {
    /// From the choice of the node to running.
    pub(super) start: Duration,
    /// How long a zone is held beyond the lifetime, including the start.
    pub(super) hold: Duration,
}

impl Kubelet {
    /// The kubelet of the goals: half a second to start a pod, no time to end it.
    pub(super) const IDEAL: Self = Self {
        start: Duration::from_millis(500),
        hold: Duration::from_millis(500),
    };
}

/// Runs the demand of `seed` for `time` on `zones` with these numbers of CPUs.
pub(super) fn run(seed: u64, time: Duration, zones: &[u32], kubelet: Kubelet) -> Outcome {
    let mut clients = Jobs::of_all(seed);
    let mut free = zones.to_vec();
    let mut waiting: Vec<(Duration, usize, Job)> = Vec::new();
    let mut ends: BinaryHeap<Reverse<(Duration, usize, usize, u32)>> = BinaryHeap::new();
    let mut outcome = Outcome::default();
    for (client, jobs) in clients.iter_mut().enumerate() {
        waiting.extend(jobs.next().map(|job| (Duration::ZERO, client, job)));
    }
    let mut now = Duration::ZERO;
    loop {
        waiting.retain(|(created, client, job)| {
            let fitting = (0..free.len()).filter(|zone| free[*zone] >= job.cpus);
            let Some(zone) = fitting.min_by_key(|zone| free[*zone]) else {
                return true;
            };
            free[zone] -= job.cpus;
            let running = now + kubelet.start;
            if running < time {
                outcome.ran += 1;
                outcome.served += job.cpu_seconds();
                outcome
                    .to_running
                    .push(running.saturating_sub(*created).as_secs_f64());
            }
            ends.push(Reverse((
                now + kubelet.hold + job.lifetime,
                *client,
                zone,
                job.cpus,
            )));
            false
        });
        let Some(Reverse((end, client, zone, cpus))) = ends.pop() else {
            return outcome;
        };
        if end >= time {
            return outcome;
        }
        now = end;
        free[zone] += cpus;
        waiting.extend(clients[client].next().map(|job| (now, client, job)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_room_lets_every_pod_start_at_once() {
        let time = Duration::from_mins(1);
        let outcome = run(7, time, &[1_000], Kubelet::IDEAL);
        let alone: usize = Jobs::of_all(7)
            .into_iter()
            .map(|jobs| {
                let mut begin = Duration::ZERO;
                let starts = jobs.take_while(|job| {
                    let runs = begin + Kubelet::IDEAL.start < time;
                    begin += Kubelet::IDEAL.hold + job.lifetime;
                    runs
                });
                starts.count()
            })
            .sum();
        assert_eq!(outcome.ran, alone);
        assert!(
            outcome
                .to_running
                .iter()
                .all(|wait| (wait - 0.5).abs() < 1e-9)
        );
    }

    #[test]
    fn zones_are_not_overbooked() {
        let time = Duration::from_secs(90);
        let zones = [14, 16];
        let outcome = run(7, time, &zones, Kubelet::IDEAL);
        assert!(outcome.ran > 0);
        // a pod that runs at the end of the time counts with its whole lifetime
        let most = 30.0 * (time.as_secs_f64() + 12.0);
        assert!(outcome.served <= most, "{} of {most}", outcome.served);
    }
}
