//! Compares the embedded API server with a real one on generated manifests: what is valid, and why the rest is not.

use std::time::SystemTime;

use judges::manifests::{self, Judge, Known};

/// How many manifests a run compares.
const COUNT: usize = 200;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: the Kubernetes programs"]
async fn the_embedded_server_judges_200_manifests_as_a_real_one_does() {
    // others in each run, because all that can be drawn were compared; the variable repeats a run
    let given = std::env::var("NUMARESOURCES_SEED").ok();
    let clock = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0, |now| now.as_secs() % 1_000_000)
    };
    let seed: u64 = given.map_or_else(clock, |seed| seed.parse().unwrap());
    println!("NUMARESOURCES_SEED={seed} repeats this run");
    let documents = manifests::documents().unwrap();
    let cases = manifests::drawn(&documents, COUNT, seed);
    let judge = Judge::start().await.unwrap();
    let outcome = judge.run(&cases, &Known::read().unwrap()).await.unwrap();
    assert_eq!(outcome.compared, COUNT);
    let findings: Vec<String> = outcome.findings.iter().map(ToString::to_string).collect();
    assert!(
        findings.is_empty(),
        "differences that are not listed; seed {seed}\n{}",
        findings.join("\n")
    );
    assert!(
        outcome.mended.is_empty(),
        "listed in manifests-differences.yaml, but no longer different: {:?}",
        outcome.mended
    );
}
