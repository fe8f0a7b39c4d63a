//! What the clients request: the same for each seed, regardless of the scheduler.

use std::time::Duration;

use judges::kubelet::random::Random;

/// Number of clients that each run one pod after another.
pub(super) const CLIENTS: usize = 20;

/// A pod to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// CPUs, and GiB of memory.
    pub(super) cpus: u32,
    /// Time for which it runs.
    pub(super) lifetime: Duration,
}

impl Job {
    /// Returns what it counts when it has run.
    pub(super) fn cpu_seconds(self) -> f64 {
        f64::from(self.cpus) * self.lifetime.as_secs_f64()
    }
}

/// The jobs of one client: 2, 4, 6, 8, 10 or 12 CPUs for 3 to 12 s each.
#[derive(Clone, Debug)]
pub(super) struct Jobs(Random);

impl Jobs {
    /// Creates the jobs of every client.
    pub(super) fn of_all(seed: u64) -> Vec<Self> {
        let first = Random::new(seed).between(0, u64::MAX - 1);
        (0..CLIENTS as u64)
            .map(|client| Self(Random::new(first.wrapping_add(client))))
            .collect()
    }
}

impl Iterator for Jobs {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let cpus = 2 * u32::try_from(self.0.between(1, 6)).ok()?;
        let lifetime = Duration::from_millis(self.0.between(3_000, 12_000));
        Some(Job { cpus, lifetime })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_the_same_jobs_and_another_has_others() {
        let jobs = |seed| -> Vec<Vec<Job>> {
            let all = Jobs::of_all(seed);
            all.into_iter()
                .map(|jobs| jobs.take(20).collect())
                .collect()
        };
        assert_eq!(jobs(1), jobs(1));
        assert_ne!(jobs(1), jobs(2));
        assert_ne!(jobs(1)[0], jobs(1)[1]);
        let sizes: std::collections::BTreeSet<u32> =
            jobs(1).concat().iter().map(|job| job.cpus).collect();
        assert_eq!(sizes, [2, 4, 6, 8, 10, 12].into());
    }
}
