//! What a write means: what the server adds to an object, what it ignores of it, and what it refuses.
//!
//! May import every room below: `access` (who writes), `objects`, `registry`, `storage`, `schema`, `values`, `failure`. It knows nothing of
//! requests: `verbs` calls it, in this order: `defaults` (fills in what is missing), `plugins` (the admission plugins of a real server, which
//! see a write as an `attempt`) and `webhooks` that change objects, `strategy` (what the server sets itself), `validation` (what it refuses),
//! `pod_security` (the levels of namespaces), `policies` (the admission policies of the cluster), `webhooks` that validate, `extent` (what the
//! embedded cluster does not act on).
//!
//! Reading order: `verbs::create` shows the steps of one write; then the modules in that order. The first functions of `defaults`, `strategy`
//! and `validation` say what is done for each kind.

pub(crate) mod attempt;
pub(crate) mod defaults;
pub(crate) mod extent;
pub(crate) mod plugins;
pub(crate) mod pod_security;
pub(crate) mod policies;
pub(crate) mod strategy;
pub(crate) mod validation;
pub(crate) mod webhooks;
