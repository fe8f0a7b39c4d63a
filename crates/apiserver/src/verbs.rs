//! Requests for objects: read, create, replace, patch, delete. Each function is one transaction on the state.
//!
//! Reading order: `request` (what a request is), `read`, `body` and `admit` (what all writes do with their bodies), `create`, `update`,
//! `patch`, `delete`, then the subresources `scale`, `binding`, `eviction`, `token`, and `reviews`, which store nothing. `definitions`
//! takes the steps that follow a write of a definition of custom resources, `certificates` those for requests for certificates.

mod admit;
mod binding;
mod body;
mod certificates;
mod create;
pub(crate) mod definitions;
mod delete;
mod deletion;
mod eviction;
mod occurrences;
mod patch;
mod read;
mod repeated;
mod request;
pub(crate) mod reviews;
mod scale;
mod token;
mod update;

pub(crate) use self::read::{Filter, Page};
pub(crate) use self::request::{Answer, Request};
