//! What is left in the zones of each node, computed from the last NRT and the pods placed since (scheduler.md 5).
//!
//! An NRT publishes what was left when its exporter looked, and the fingerprint of the pods that it accounts for. Between a placement
//! and the NRT that shows it, the pod must be charged here. So each node keeps the newest NRT whose pod set is understood (its *base*),
//! and which of the node's pods that base accounts for. Every other pod that lives is charged to *all* zones that it may be on. If the
//! kubelet's managers are known, these are the zones where the base leaves room for it; otherwise they are all zones. Every NRT or pod
//! event recomputes the result at once: nothing polls.
//!
//! The pod set of an NRT may differ from the one known here: a pod may not be admitted yet, or be gone already. So the ledger searches
//! for the fingerprint among the sets that differ from the known set in those few pods. A set that is found says exactly which pods the
//! amounts contain. An NRT whose set is not found changes only the kubelet's settings, and the base stays until a later NRT is understood.
//!
//! A fingerprint covers only the names of pods. So a pod with the name of a recent one is accounted for only by NRTs that arrive after
//! it was seen running.
//!
//! In reading order:
//! - [`settings`]: how much is accounted for; [`view`]: the result, as filters and scores read it.
//! - `ledger`: the NRTs and the pods of a node; `tracked`: what it records of a pod.
//! - `held`: what the pods hold, by zone. `accounting`: which pods the newest NRT accounts for; `search`: the set of pods that a fingerprint covers.
//! - `remaining`: what is left in the zones; `charge`: what pods take that no NRT accounts for yet.
//! - [`simulate`]: what would be left if some pods were evicted.
//! - [`cache`]: all nodes, each with its ledger.

mod accounting;
pub mod cache;
mod charge;
mod held;
mod ledger;
mod remaining;
mod search;
pub mod settings;
pub mod simulate;
mod tracked;
pub mod view;

pub use accounting::Check;
pub(crate) use charge::is_zoned;
pub(crate) use ledger::Ledger;
pub(crate) use tracked::NrtNumber;
