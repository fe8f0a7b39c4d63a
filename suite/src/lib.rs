//! The conformance suite: scenarios that test a NUMA-aware scheduling stack, and the engine that runs them one after another.
//!
//! The suite drives a cluster only through its API and links none of the products, so it can also test another implementation.
//! The scenarios contain the expected values as literals.
//!
//! # Reading order
//! 1. [`scenario`]: what a scenario is; [`needs`]: what it needs of a cluster; [`step`]: what can stop it. [`scenarios`]: all of them, and how to
//!    add one.
//! 2. [`context`]: what a story works with; the modules below it extend it. [`workload`], [`resources`], [`observed`] and [`facts`] are the
//!    values that it passes around, [`machine_pools`] the kubelets' settings.
//! 3. [`recorder`] with [`ledger`]: how steps, waits and changes get into the event stream, and how changes are undone.
//! 4. [`session`]: one cluster and the scenarios on it. [`run`]: all clusters of a run, and [`artifacts`]: where its reports are. [`setup`] with
//!    [`binaries`]: how a cluster becomes ready. [`kubeconfig`], [`claim`] and [`cleanup`]: a cluster that is given to runs.
//! 5. [`select`] with [`labels`]: which scenarios run. [`environment`] with [`skips`]: which cannot, and where. [`cli`]: the command line; [`libtest`]: that of `cargo test`. [`interrupt`]: how a run stops early.
//! 6. [`targets`]: what faults may strike while tests look on.
//!
//! # From `--label tier0` to a `<testcase>`
//! 1. [`cli::main`] parses the arguments; without a subcommand it calls `cli::run::run`.
//! 2. [`scenarios::all`] collects what `scenarios()` of each area returns. Each line of the catalogue went through `Area::scenario`, which puts
//!    labels, title and needs together.
//! 3. [`select::Selection::apply`] parses the expression ([`labels::Expression::parse`]) and says of each scenario whether it is selected.
//! 4. `cli::run::options` makes the [`setup::Options`]: without a kubeconfig, embedded clusters of our own.
//! 5. [`run::begin`] opens the stream of events with its readers: the event log, `reports::junit::Junit`, the summary, the terminal.
//! 6. [`run::run`] starts a [`session::Session`] for each cluster. [`session::Session::start`] calls [`setup::run`]: cluster, stack, numacell
//!    devices, reference; what it found are the [`facts::Facts`].
//! 7. [`session::Session::run`] takes one scenario after another. [`scenario::Scenario::missing`] compares its needs with the facts: skipped, or
//!    a [`context::Context`] with a namespace and a [`recorder::Recorder`] of its own, and the story begins.
//! 8. Every step of the story passes [`recorder::Recorder::step`], every wait [`recorder::Recorder::until`], and every change
//!    [`recorder::Recorder::plan`], which writes its undo into the [`ledger::Ledger`] before the call is made.
//! 9. The story's result becomes a `Verdict`. After a failure `collect::scenario` writes down what the cluster looks like, and `must_gather` has a tool collect the rest. Then
//!    [`recorder::Recorder::undo_all`] undoes the changes, and the session waits until the NRTs are as before.
//! 10. The event `ScenarioFinished` carries the verdict to the readers. The `Junit` reader makes a `<testcase>` of it, and writes the whole report
//!     anew each time, so that a run that is cut short has one, too.
//! 11. [`run::Outcome`] is the exit code.

pub mod artifacts;
pub mod binaries;
pub mod claim;
pub mod cleanup;
pub mod cli;
mod collect;
pub mod context;
pub mod environment;
pub mod facts;
pub mod health;
pub mod images;
pub mod interrupt;
pub mod kubeconfig;
pub mod labels;
pub mod ledger;
pub mod libtest;
pub mod machine_pools;
mod must_gather;
pub mod needs;
pub mod observed;
mod pace;
pub mod recorder;
pub mod resources;
pub mod run;
pub mod scenario;
pub mod scenarios;
pub mod select;
pub mod session;
pub mod setup;
pub mod skips;
pub mod step;
mod stop;
pub mod targets;
#[cfg(test)]
mod testing;
pub mod workload;
