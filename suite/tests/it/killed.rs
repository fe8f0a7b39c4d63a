//! A run that is killed costs no cluster: whenever that happens, `cleanup` makes the objects of the cluster what they were, and the next run is
//! green.
//!
//! `NUMARESOURCES_KILLS` is the number of kills, `NUMARESOURCES_SEED` repeats their moments.
#![expect(
    clippy::print_stdout,
    reason = "what clippy allows in test functions, the code that they share may do too"
)]

use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use crate::given::{Given, differences, ended, has_code};
use crate::harness::number;

/// Kills in every CI run.
const KILLS: u64 = 2;
/// Scenarios that pad, taint and label nodes, and that change a resource of the stack.
const SCENARIOS: [&str; 3] = [
    "taint/tolerating-pod",
    "nodelabel/node-selector",
    "sched/replicas-0",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_a_run_is_killed_the_cluster_can_be_put_back() {
    let seed = number("NUMARESOURCES_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("NUMARESOURCES_SEED={seed} repeats this run");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let kills = number("NUMARESOURCES_KILLS").unwrap_or(KILLS);

    let given = Given::up("killed").await;
    let before = given.objects().await;
    let begun = Instant::now();
    let green = given.run(&SCENARIOS[..1]).await;
    has_code(&green, 0);
    let whole = begun.elapsed();
    assert_eq!(
        differences(&before, &given.objects().await),
        Vec::<String>::new()
    );

    for kill in 1..=kills {
        let scenario = SCENARIOS[random.random_range(0..SCENARIOS.len())];
        let moment = random.random_range(Duration::ZERO..whole);
        println!("kill {kill}: {scenario} after {} ms", moment.as_millis());
        let mut run = given.start(&[scenario]);
        if tokio::time::timeout(moment, run.wait()).await.is_err() {
            run.start_kill().expect("it runs");
        }
        ended(run).await;
        let cleanup = given.run(&["cleanup"]).await;
        has_code(&cleanup, 0);
        assert_eq!(
            differences(&before, &given.objects().await),
            Vec::<String>::new()
        );
    }
    let green = given.run(&SCENARIOS).await;
    has_code(&green, 0);
    assert_eq!(
        differences(&before, &given.objects().await),
        Vec::<String>::new()
    );
    given.down();
}
