//! Placement under a topology manager policy (scenarios-serial.md 8.1).

mod many;
mod pending;
mod single;

use crate::scenario::Scenario;

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = single::scenarios();
    all.extend(many::scenarios());
    all.extend(pending::scenarios());
    all
}
