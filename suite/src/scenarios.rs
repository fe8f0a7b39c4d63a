//! The scenarios of the catalogue, one module per area, with its ids and labels (scenarios-serial.md 8, 9).
//!
//! `area` has the head that the scenarios of an area share. `steps`, `load`, `attributes` and `tls_profile` have what stories of several areas
//! share. All other modules are areas; none of them borrows from another.
//!
//! # How to add a scenario
//! 1. Find its module: the area is the part of the id before the slash. A new area is a new module with a `const AREA: Area` and a function
//!    `scenarios()`, which [`all`] calls at the place where the area runs.
//! 2. Add it to `scenarios()` of the module: `AREA.scenario(id, test_id, own_labels, text, body(|ctx| Box::pin(story(ctx))))`, with `None` if it
//!    has no test id. Where the area has a table (`ROWS`) and only amounts differ, it is one row more. A scenario that needs more of the
//!    cluster says so: `Scenario { needs: .., ..AREA.scenario(..) }`.
//! 3. A label that no scenario had before goes into [`KNOWN`](crate::labels::KNOWN). A new kind of need is a variant of
//!    [`Need`](crate::needs::Need), with what it is compared with in [`Facts`](crate::facts::Facts).
//! 4. Write `async fn story(ctx: &Context) -> Result<(), StepError>`: calls of `steps`, and of `ctx.step(title, ..)` around what
//!    [`Context`](crate::context::Context) and its extensions offer. Expected values are literals. Whatever the story creates or changes goes
//!    through `Context`, which records the undo before the call; where there is no method for it, `ctx.recorder.plan(..)` comes first.
//! 5. Run it: `numaresources-tests --list ID`, then `numaresources-tests ID`, and `cargo test -p suite --lib` for the rules that all scenarios
//!    obey. A scenario with label `tier0` also goes into `TIER0` of this module's tests, and, where a broken stack must fail it, into the
//!    tables of `tests/it/faults.rs`.
//!
//! # How to add a fault
//! See `fault` for faults of a cluster in which the stack must keep its promises. A fault that the suite must *detect* is a `Fault` in
//! `tests/it/faults.rs`, with the scenarios that must fail and a test that passes it to `check`.

mod area;
mod attributes;
mod byres;
mod cache;
mod config;
mod fault;
mod fundamentals;
mod hostlevel;
mod install;
mod introspection;
mod load;
mod netpol;
mod nodelabel;
mod nonreg;
mod nonrt;
mod overhead;
mod placement;
mod preempt;
mod resacct;
mod rte;
mod rtetols;
mod sched;
mod schedrst;
mod stall;
mod steps;
mod taint;
mod tls;
mod tls_profile;
mod tmpol;
mod unsched;

use crate::resources::Resources;
use crate::scenario::Scenario;

/// Returns all scenarios, in the order in which they run.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(config::scenarios());
    all.extend(tmpol::scenarios());
    all.extend(byres::scenarios());
    all.extend(hostlevel::scenarios());
    all.extend(placement::scenarios());
    all.extend(taint::scenarios());
    all.extend(nodelabel::scenarios());
    all.extend(unsched::scenarios());
    all.extend(resacct::scenarios());
    all.extend(nonreg::scenarios());
    all.extend(overhead::scenarios());
    all.extend(nonrt::scenarios());
    all.extend(fundamentals::scenarios());
    all.extend(rte::scenarios());
    all.extend(rtetols::scenarios());
    all.extend(introspection::scenarios());
    all.extend(netpol::scenarios());
    all.extend(sched::scenarios());
    all.extend(schedrst::scenarios());
    all.extend(preempt::scenarios());
    all.extend(fault::scenarios());
    all.extend(cache::scenarios());
    all.extend(stall::scenarios());
    all.extend(tls::scenarios());
    all.extend(install::scenarios());
    all
}

/// Parses several lists in the catalogue's notation, separated by semicolons.
fn lists(text: &str) -> Vec<Resources> {
    text.split(';').map(Resources::literal).collect()
}

#[cfg(test)]
mod tests;
