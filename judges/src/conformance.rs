//! Kubernetes' own conformance tests, run against an embedded cluster.
//!
//! The program with them is built from Kubernetes' Go module ([`programs::kubernetes::locate_tests`]). Each test runs in a process of its own,
//! so that one that hangs costs its own time only ([`run`]). `corpus/conformance.yaml` says of every test whether it passes, fails, or does
//! not apply, and why ([`Expected`]); a run that differs from it fails.

mod expected;
mod outcome;
mod run;

pub use self::expected::{Error as ExpectedError, Expected, Verdict};
pub use self::outcome::Outcome;
pub use self::run::{Error as RunError, Finished, Plan, list, run};
