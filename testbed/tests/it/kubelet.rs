//! Compares the kubelet model with real kubelets on freshly generated pod sequences.

use std::path::Path;
use std::time::SystemTime;

use judges::kubelet::record::{Plan, record};
use programs::kubernetes::{self, SearchPath};

use crate::cluster::harness::{HELPER, state_root};

/// Returns the seed; the variable `NUMARESOURCES_SEED` repeats a run.
fn seed() -> u64 {
    let given = std::env::var("NUMARESOURCES_SEED").ok();
    let clock = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap().as_secs() % 1_000_000
    };
    given.map_or_else(clock, |seed| seed.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root and the Kubernetes programs"]
async fn model_does_what_real_kubelets_do_in_50_fresh_sequences() {
    let state_root = state_root();
    let seed = seed();
    println!("NUMARESOURCES_SEED={seed} repeats this run");
    let assets = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
    let bin_dir = Path::new(HELPER).parent().unwrap().to_owned();
    let plan = Plan::fresh(seed, state_root.path().to_owned(), assets, bin_dir).unwrap();
    let outcome = record(plan, &|progress| println!("{progress}"))
        .await
        .unwrap();
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
    for (configuration, difference) in &outcome.differences {
        println!("{configuration}: {difference}");
    }
    assert_eq!(outcome.differences.len(), 0, "differences; seed {seed}");
    let recorded = &outcome.composition;
    assert_eq!(recorded.sequences, 50, "{recorded:#?}");
    assert_eq!(recorded.long, 50, "{recorded:#?}");
}
