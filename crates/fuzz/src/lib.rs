//! Hostile input for tests: an input of bytes becomes a valid document that is changed in a few places, as a hostile user would.
//!
//! Bytes alone rarely get past a parser. So a target has seeds, documents that are valid, and the bytes of an input choose one of them and
//! what is changed in it: a value becomes an extreme one, a field goes, a list grows, two parts change places. Equal bytes make equal
//! documents, so that an input that was found fails again.
//!
//! The targets are tests in a module `fuzz` of the packages that read such documents. `cargo test` runs each for a moment, `cargo xtask fuzz`
//! for as long as it is told.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "it runs in tests only, and fails and speaks as they do"
)]

use std::time::{Duration, Instant};

pub use arbitrary::{Result, Unstructured};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub mod mutate;

/// Environment variable with the number of seconds that each target runs.
pub const SECONDS: &str = "NUMARESOURCES_FUZZ_SECONDS";
/// How long a target runs at most if nothing is said.
const MOMENT: Duration = Duration::from_secs(4);
/// Number of batches after which it ends if nothing is said. They are the same ones each time, so more of them find nothing new.
const BATCHES_OF_A_MOMENT: u64 = 15;
/// Length of the longest input in bytes.
const LONGEST: usize = 512;
/// By how much the resident memory of a target may grow between its first batches and its end, in bytes.
const GROWTH: u64 = 256 << 20;
/// Number of batches after which a target has all the memory that it needs.
const WARM: u64 = 10;

/// Number of inputs between two looks at the clock.
const BATCH: u32 = 100;

/// Runs a target on inputs until its time is over. The target fails by panicking, by using more and more memory, or by never
/// ending. `file` is the source file of the target: beside it `proptest-regressions` has the inputs that once failed, which come first.
///
/// # Panics
/// When the target panics, with the shortest input that makes it do so, or when the memory of the process grows.
pub fn run(file: &'static str, target: impl Fn(&mut Unstructured<'_>) -> Result<()>) {
    let config = Config {
        cases: BATCH,
        ..Config::with_source_file(file)
    };
    let (time, most) = budget();
    let (end, mut batches, mut warm) = (Instant::now() + time, 0, None);
    while Instant::now() < end && batches < most {
        let config = Config {
            rng_seed: seed(batches),
            ..config.clone()
        };
        let outcome = TestRunner::new(config).run(&vec(any::<u8>(), 0..LONGEST), |bytes| {
            // an input that is too short for what the target draws is no finding
            let _ = target(&mut Unstructured::new(&bytes));
            Ok(())
        });
        if let Err(failure) = outcome {
            panic!("{failure}");
        }
        batches += 1;
        if batches == WARM {
            warm = resident();
        }
    }
    println!("{} inputs", batches * u64::from(BATCH));
    if let (Some(warm), Some(now)) = (warm, resident()) {
        let grown = now.saturating_sub(warm);
        assert!(
            grown < GROWTH,
            "the target keeps {grown} bytes more than after {WARM} batches of inputs"
        );
    }
}

/// Changes a seed and reads it as an object; `None` if it is none any more, which a client refuses, too.
///
/// # Errors
/// When the input has too few bytes.
pub fn object<T: DeserializeOwned>(
    seed: &Value,
    input: &mut Unstructured<'_>,
) -> Result<Option<T>> {
    let mut changed = seed.clone();
    mutate::document(&mut changed, input)?;
    Ok(serde_json::from_value(changed).ok())
}

/// Returns where the inputs of a batch come from. A run of a moment has the same ones each time, so that a change of something else never fails
/// by chance; who asks for a time gets new ones.
fn seed(batch: u64) -> RngSeed {
    if std::env::var_os(SECONDS).is_some() {
        RngSeed::Random
    } else {
        RngSeed::Fixed(batch)
    }
}

/// Returns how long a target runs at most, and the largest number of batches.
fn budget() -> (Duration, u64) {
    match std::env::var(SECONDS) {
        Ok(text) => {
            let seconds = text.parse().expect("a number of seconds");
            (Duration::from_secs(seconds), u64::MAX)
        }
        Err(_) => (MOMENT, BATCHES_OF_A_MOMENT),
    }
}

fn resident() -> Option<u64> {
    let pages = procfs::process::Process::myself()
        .ok()?
        .statm()
        .ok()?
        .resident;
    Some(pages * procfs::page_size())
}
