//! The embedded API server: Kubernetes' API in this process, over TLS, with everything in memory.
//!
//! It has discovery and OpenAPI; the built-in resources of a real server's discovery with their defaults, generations and most common
//! checks; custom resources with structural schemas; create, get, list, watch, replace and all four kinds of patch; delete with
//! preconditions, grace, propagation and finalizers; the subresources that workloads use; tables; fixed tokens, client certificates, tokens
//! of service accounts, impersonation and reviews; role-based access control with the node authorizer; and the admission plugins that pods
//! meet in a real cluster. Requests to kubelets are proxied.
//!
//! It does not have everything: mutating admission policies are not served, secrets do not get tokens of service accounts, certificate requests are not signed, and there is no API aggregation. Rules in CEL are refused if their estimated cost is too
//! high, as in a real server. Expressions of admission policies are stopped when they cost too much; rules of definitions are not, because
//! the interpreter does not report their cost. The checks of a definition accept loops with two variables, `sortBy` and `optMap`, but the interpreter
//! does not support them: objects that such a rule applies to are refused.
//!
//! A room knows only the rooms below it. From below: `failure` (refusals), `values` (plain JSON and texts), `schema` and `storage`,
//! `registry` (the kinds), `objects` (work on whole objects), `access` (who asks, and what they may do), `faults`, `admission` (what a write
//! means: defaults, plugins, strategy, validation), `verbs` (what a request does), `serve` (connections, routes, answers), `server`.
//!
//! Reading order: [`Server::start`], `serve`, `verbs`, `admission`, `registry`, `storage`. Tests with clients are in
//! `testbed/tests/it/api_server`, comparisons with a real server in `judges`.

pub use self::access::any_certificate::AnyCertificate;
pub use self::access::audit;
pub use self::access::identity::User;
pub use self::access::signer::{SignError, Signer, request_der};
pub use self::admission::defaults::fill_in_pod;
pub use self::admission::extent::Ignored;
pub use self::error::Error;
pub use self::serve::from_protobuf;
pub use self::server::{Options, Running, Server};
pub use self::values::quota;

pub mod faults;

mod access;
mod admission;
mod error;
mod failure;
mod objects;
mod registry;
mod schema;
mod serve;
mod server;
mod storage;
mod values;
mod verbs;
