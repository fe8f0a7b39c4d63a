//! Placement under a topology manager policy (scenarios-serial.md 8.1).

mod many;
mod pending;
mod single;

use crate::scenario::Scenario;

const CONTEXT: &str =
    "[serial][disruptive][scheduler] numaresources workload placement considering TM policy";
const LABELS: &[&str] = &[
    "disruptive",
    "scheduler",
    "feature:wlplacement",
    "feature:tmpol",
];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = single::scenarios();
    all.extend(many::scenarios());
    all.extend(pending::scenarios());
    all
}
