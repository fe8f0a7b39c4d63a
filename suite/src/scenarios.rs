//! The scenarios of the catalogue, one module per area, with its ids and labels (scenarios-serial.md 8, 9).

mod byres;
mod cache;
mod config;
mod fault;
mod fundamentals;
mod hostlevel;
mod install;
mod introspection;
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
mod taint;
mod tls;
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

/// Returns the labels of a scenario: those of the suite, of its file and table, and its own.
fn labels(common: &[&'static str], own: &str) -> Vec<&'static str> {
    let mut labels = vec!["e2e:serial"];
    labels.extend(common);
    for word in own.split_whitespace() {
        let known = crate::labels::KNOWN.iter().find(|known| **known == word);
        labels.push(
            known
                .copied()
                .expect("labels of the tables are in the list of known labels"),
        );
    }
    labels
}

/// Builds the title as in the catalogue: containers, table, tags, text.
fn title(context: &str, test_id: Option<u32>, tags: &str, text: &str) -> String {
    let id = test_id.map_or(String::new(), |id| format!("[test_id:{id}]"));
    let tags = format!("{id}{tags}");
    [context, &tags, text]
        .iter()
        .filter(|part| !part.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Parses several lists in the catalogue's notation, separated by semicolons.
fn lists(text: &str) -> Vec<Resources> {
    text.split(';').map(Resources::literal).collect()
}

#[cfg(test)]
mod tests;
