//! The scenarios of the catalogue, one module per area, with its ids and labels (scenarios-serial.md 8, 9).
//!
//! `registry` has the titles and labels of all, and `page` renders them for people. `steps`, `load`, `attributes` and `tls_profile` have what
//! stories of several areas share. All other modules are areas; none of them borrows from another.
//!
//! `CONTRIBUTING.md` says how to add a scenario or a fault.

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
mod nfd;
mod nodelabel;
mod nonreg;
mod nonrt;
mod overhead;
mod page;
mod placement;
mod preempt;
mod registry;
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

pub use page::markdown;

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
    all.extend(nfd::scenarios());
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
