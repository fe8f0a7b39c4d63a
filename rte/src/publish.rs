//! What happens with the result of a scan: the `NodeResourceTopology` object, the conditions of the own pod, and records of fingerprints.
//!
//! Reading order: [`content`] (what is to be in the object), [`publisher`] (how the object is written), `merge_patch` (only the
//! difference), `readiness` (conditions of the own pod), `status_dump` (records), `call` (a call to the API server).

mod call;
pub mod content;
mod merge_patch;
pub mod publisher;
pub(crate) mod readiness;
pub(crate) mod status_dump;
