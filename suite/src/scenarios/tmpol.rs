//! Placement under a topology manager policy (scenarios-serial.md 8.1).

mod many;
mod pending;
mod single;

use crate::scenario::Scenario;
use crate::scenarios::area::Area;

/// The head of all groups; each adds its table to the context.
const AREA: Area = Area {
    context: "[serial][disruptive][scheduler] numaresources workload placement considering TM policy",
    labels: &[
        "disruptive",
        "scheduler",
        "feature:wlplacement",
        "feature:tmpol",
    ],
    needs: &[],
};

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = single::scenarios();
    all.extend(many::scenarios());
    all.extend(pending::scenarios());
    all
}
