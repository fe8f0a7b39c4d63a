//! What the exporter publishes and reports, after the original exporter's own suite (scenarios-other.md 3, 7), as far as plain
//! Kubernetes and the installed stack allow.
//!
//! Where the original sleeps for some periods, these scenarios wait for the effect, or prove that the exporter has looked in between.

mod disrupted;
mod endpoint;
mod fingerprint;
mod inside;
pub(super) mod installed;
mod local;
mod own;
mod owned;
pub(super) mod placement;
mod published;
mod reported;

use crate::needs::Need;
use crate::scenario::Scenario;

/// A node with zones.
const NEEDS: &[Need] = &[Need::nodes(1)];

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = published::scenarios();
    all.extend(reported::scenarios());
    all.extend(endpoint::scenarios());
    all.extend(owned::scenarios());
    all.extend(fingerprint::scenarios());
    all.extend(placement::scenarios());
    all.extend(inside::scenarios());
    all.extend(installed::scenarios());
    all.extend(local::scenarios());
    all.extend(disrupted::scenarios());
    all
}
