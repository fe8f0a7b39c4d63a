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

use crate::given::{Given, TIMEOUT, are_as_before, ended, has_code};
use crate::harness::{eventually, number, transcript};

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
    kill(Given::up_with_stack("killed").await).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "long: half a minute for two kills"]
    async fn whenever_a_run_is_killed_that_installs_the_stack_the_cluster_can_be_put_back() {
        kill(Given::up("killed").await).await;
    }
}

/// Runs a command, and again while it says this: a run that was killed before its Lease named its ledger counts as alive until the Lease is over.
async fn succeeds_once_free(given: &Given, arguments: &[&str], busy: &str) {
    let output = eventually("the killed run counts as dead", TIMEOUT, async || {
        let output = given.run(arguments).await;
        let text = transcript(&output);
        if text.contains(busy) {
            return Err(text);
        }
        Ok(output)
    })
    .await;
    has_code(&output, 0);
}

async fn kill(given: Given) {
    let seed = number("NUMARESOURCES_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("NUMARESOURCES_SEED={seed} repeats this run");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let kills = number("NUMARESOURCES_KILLS").unwrap_or(KILLS);

    let before = given.objects().await;
    let begun = Instant::now();
    has_code(&given.run(&SCENARIOS[..1]).await, 0);
    let whole = begun.elapsed();
    are_as_before(&given, &before).await;

    for kill in 1..=kills {
        let scenario = SCENARIOS[random.random_range(0..SCENARIOS.len())];
        let moment = random.random_range(Duration::ZERO..whole);
        println!("kill {kill}: {scenario} after {} ms", moment.as_millis());
        let mut run = given.start(&[scenario]);
        if tokio::time::timeout(moment, run.wait()).await.is_err() {
            run.start_kill().expect("it runs");
        }
        ended(run).await;
        succeeds_once_free(&given, &["cleanup"], "repeat this in half a minute").await;
        are_as_before(&given, &before).await;
    }
    succeeds_once_free(&given, &SCENARIOS[..1], "uses this cluster: it renewed").await;
    are_as_before(&given, &before).await;
    given.down();
}
