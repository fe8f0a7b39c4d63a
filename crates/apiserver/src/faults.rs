//! Faults on demand, as a server, a load balancer or a network can cause them.
//!
//! A [`Rule`] says which requests it matches ([`Selector`]), which of those it strikes (it can skip the first ones, stop after a number,
//! and draw a share with a seed), and what happens to them ([`Fault`]). Rules apply in the order in which they were added: delays add up,
//! and the first fault that decides the outcome ends the search. Apart from rules, open watches can be ended and the server can be taken
//! down at any moment.
//!
//! Module `http` offers the same below `/testing`, for members of `system:masters`.
//!
//! Reading order: `rule`, `state` (with the `ticket` of each open watch), `outcome` (what happens to a request), `open_watch`, `control`
//! (the handle of tests), `http`.

mod control;
pub(crate) mod http;
mod open_watch;
mod outcome;
mod rule;
mod state;
mod ticket;

pub use self::control::Faults;
pub(crate) use self::open_watch::OpenWatch;
pub(crate) use self::outcome::{Answer, Effects, Outcome, apply_rules, timed_out};
pub use self::rule::{Fault, Rule, RuleId, RuleStatus, Selector, WatchEnd};
pub(crate) use self::state::State;
