//! What pods hold of the zones of a node.

use std::collections::BTreeMap;

use topology::mask::ZoneId;
use topology::resource::Resources;

use crate::state::pod::PodKey;

/// What pods hold, by zone.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldByPod(pub(super) BTreeMap<PodKey, ZoneAmounts>);

/// Amounts by zone.
pub(super) type ZoneAmounts = BTreeMap<ZoneId, Resources>;
