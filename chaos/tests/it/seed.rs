//! A short plan on a cluster of its own violates nothing, and the run shows that it has looked.

use std::path::Path;
use std::time::Duration;

use chaos::recording::{self, Entry};
use chaos::run::{self, Options};
use suite::interrupt::Interrupt;
use testbed::lane::Lane;

/// Long enough for a dozen pods and a few faults of this seed, and short enough for CI.
const LENGTH: Duration = Duration::from_secs(6);
const SEED: u64 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_bad_day_violates_nothing() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("short-seed");
    let options = Options {
        seed: SEED,
        length: LENGTH,
        lane: Lane::Embedded,
        bin_dir: None,
        directory: directory.clone(),
    };
    let report = Box::pin(run::run(&options, &Interrupt::default())).await;
    let report = report.expect("the cluster comes up");
    assert_eq!(
        report.violations,
        Vec::<String>::new(),
        "cargo xtask chaos --seed {SEED} may repeat it; see {}",
        directory.display()
    );
    let lines = recording::read(&directory.join(recording::FILE)).expect("a recording");
    let count = |is_it: fn(&Entry) -> bool| lines.iter().filter(|line| is_it(&line.entry)).count();
    assert!(count(|entry| matches!(entry, Entry::FaultEnded { outcome: Ok(_), .. })) > 0);
    assert!(count(|entry| matches!(entry, Entry::Done { .. })) > 0);
    assert!(
        count(
            |entry| matches!(entry, Entry::Applied { kind, .. } if kind == "NodeResourceTopology")
        ) > 0
    );
}
