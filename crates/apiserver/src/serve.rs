//! Connections, routes and answers: what stands between HTTP and the verbs.
//!
//! Reading order: `connections`, `routes`, then `resources` (with `negotiation`, `perform` and the `webhooks` that it asks, `lists`, `watch`, and `proxy` for
//! what kubelets, pods and services answer) and `paths`. `shared` is what all connections have in common, `faulty` what faults do to them.

mod answers;
mod connections;
mod faulty;
mod lists;
mod negotiation;
mod paths;
mod perform;
mod protobuf;
mod proxy;
mod requests;
mod resources;
mod routes;
mod shared;
mod watch;
mod webhooks;

pub(crate) use self::connections::accept;
pub(crate) use self::shared::Shared;

/// Returns the object of a body in Kubernetes' protobuf form; `None` when it is none.
pub fn from_protobuf(body: &[u8]) -> Option<serde_json::Value> {
    protobuf::decode(body).ok()
}
