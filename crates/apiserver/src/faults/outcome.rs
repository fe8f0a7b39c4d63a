//! Applies the rules to a request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::open_watch::OpenWatch;
use super::rule::{Fault, RequestAttributes, RuleId, WatchEnd};
use super::state::State;
use crate::access::target::{Target, is_watch, query};
use crate::failure::{Failure, Subject};
use crate::storage;

/// What faults do to a request that is served.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    staleness: Option<Staleness>,
    /// What becomes of the answer.
    pub(crate) answer: Answer,
    open: Mutex<Option<OpenWatch>>,
}

/// What becomes of the answer to a request that was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is sent.
    #[default]
    Sent,
    /// The connection ends instead.
    Lost,
    /// 504 is sent instead.
    TimedOut,
}

/// How old the state is that a read sees.
#[derive(Clone, Copy, Debug)]
enum Staleness {
    AtVersion(u64),
    VersionsBack(u64),
}

impl Effects {
    /// Returns the state that a read sees; `None` for the present one.
    pub(crate) fn past_state(
        &self,
        state: &storage::State,
        storage: &str,
    ) -> Option<storage::State> {
        let version = match self.staleness? {
            Staleness::AtVersion(version) => version,
            Staleness::VersionsBack(versions) => state.version().saturating_sub(versions),
        };
        Some(state.at_version(storage, version))
    }

    /// Returns the ticket of a watch, at the first call only.
    pub(crate) fn take_ticket(&self) -> Option<OpenWatch> {
        let mut open = self.open.lock();
        open.take()
    }
}

/// The outcome for a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The request is served.
    Served(Arc<Effects>),
    /// The request is refused.
    Refused(Failure),
    /// The request is refused in plain text, before the API handles it; the client should retry after this many seconds.
    Busy(u64),
    /// The connection ends.
    Disconnected,
}

/// What the rules decide about one request.
#[derive(Default)]
struct Decision {
    delay: Duration,
    staleness: Option<Staleness>,
    answer: Answer,
    limit: Option<(u64, WatchEnd)>,
    /// What happens instead of an answer; `None` when the request is served.
    ending: Option<Ending>,
}

/// What happens to a request that is not served.
enum Ending {
    /// The request is refused.
    Refused(Failure),
    /// The watch gets a single event, which says that its version is expired.
    ExpiredWatch,
    /// The request is refused in plain text.
    Busy(u64),
    /// The request is refused when the time is over or the rule is removed.
    Hanging(RuleId, Option<Duration>),
    /// The connection ends.
    Disconnected,
}

impl Ending {
    /// Returns what a fault makes of a request; `None` for a fault that lets the server answer.
    fn of(fault: &Fault, rule: RuleId, attributes: &RequestAttributes) -> Option<Self> {
        let subject = Subject {
            group: &attributes.group,
            resource: &attributes.resource,
            name: &attributes.name,
        };
        Some(match fault {
            Fault::Conflict => Self::Refused(Failure::modified(&subject)),
            Fault::Expired if attributes.verb == "watch" => Self::ExpiredWatch,
            Fault::Expired => Self::Refused(Failure::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            )),
            Fault::TooManyRequests {
                retry_after_seconds,
            } => Self::Busy(*retry_after_seconds),
            Fault::InternalError => Self::Refused(Failure::internal("injected fault")),
            Fault::Unavailable => Self::Refused(Failure::unavailable(
                "the server is currently unable to handle the request",
            )),
            Fault::Hang { milliseconds } => {
                let time_limit = milliseconds.map(|time| Duration::from_millis(time.get()));
                Self::Hanging(rule, time_limit)
            }
            Fault::Disconnect => Self::Disconnected,
            Fault::Delay { .. }
            | Fault::LoseAnswer
            | Fault::TimeOutAfterCommit
            | Fault::Stale { .. }
            | Fault::Freeze
            | Fault::EndWatch { .. } => return None,
        })
    }
}

impl Decision {
    /// Adds what a fault does to the answer of a request that is served.
    fn add(&mut self, fault: &Fault, version: u64) {
        match fault {
            Fault::Delay { milliseconds } => self.delay += Duration::from_millis(*milliseconds),
            Fault::LoseAnswer => self.answer = Answer::Lost,
            Fault::TimeOutAfterCommit => self.answer = Answer::TimedOut,
            Fault::Stale { versions } => {
                self.staleness = Some(Staleness::VersionsBack(*versions));
            }
            Fault::Freeze => self.staleness = Some(Staleness::AtVersion(version)),
            Fault::EndWatch { after_events, how } => self.limit = Some((*after_events, *how)),
            // these end the request
            Fault::Conflict
            | Fault::Expired
            | Fault::TooManyRequests { .. }
            | Fault::InternalError
            | Fault::Unavailable
            | Fault::Hang { .. }
            | Fault::Disconnect => {}
        }
    }
}

/// Applies the rules to a request. `user` is called only when there are rules or the request is a watch.
pub(crate) async fn apply_rules(
    faults: &Arc<State>,
    parts: &http::request::Parts,
    user: impl FnOnce() -> String,
) -> Outcome {
    let watching = is_watch(parts);
    if !watching && !faults.any() {
        return Outcome::Served(Arc::default());
    }
    let attributes = attributes(parts, user());
    if attributes.path.starts_with("/testing") {
        return Outcome::Served(Arc::default());
    }
    let mut decision = decide(faults, &attributes);
    if !decision.delay.is_zero() {
        tokio::time::sleep(decision.delay).await;
    }
    match decision.ending.take() {
        None => {}
        Some(Ending::ExpiredWatch) => {
            decision.answer = Answer::Sent;
            decision.limit = Some((0, WatchEnd::Expired));
        }
        Some(Ending::Refused(failure)) => return Outcome::Refused(failure),
        Some(Ending::Busy(seconds)) => return Outcome::Busy(seconds),
        Some(Ending::Hanging(rule, time_limit)) => {
            hang(faults, rule, time_limit).await;
            return Outcome::Refused(timed_out());
        }
        Some(Ending::Disconnected) => return Outcome::Disconnected,
    }
    let open =
        watching.then(|| OpenWatch::new(faults, faults.open_ticket(attributes, decision.limit)));
    Outcome::Served(Arc::new(Effects {
        staleness: decision.staleness,
        answer: decision.answer,
        open: Mutex::new(open),
    }))
}

/// Returns the failure of a request that took too long.
pub(crate) fn timed_out() -> Failure {
    Failure::timeout("request did not complete within the allotted timeout")
}

/// Looks for the rules that strike a request. The first fault that decides the outcome ends the search.
fn decide(faults: &State, attributes: &RequestAttributes) -> Decision {
    let mut decision = Decision::default();
    let mut struck = false;
    for entry in &mut faults.rules().entries {
        if !entry.strikes(attributes) {
            continue;
        }
        struck = true;
        let fault = &entry.rule.fault;
        decision.ending = Ending::of(fault, entry.id, attributes);
        if decision.ending.is_some() {
            break;
        }
        decision.add(fault, entry.version);
    }
    if struck {
        faults.strikes.send_modify(|strikes| *strikes += 1);
    }
    decision
}

/// Waits until the time is over or the rule is removed.
async fn hang(faults: &State, rule: RuleId, time_limit: Option<Duration>) {
    let mut generation = faults.generation.subscribe();
    let removed = async {
        while faults.rules().entries.iter().any(|e| e.id == rule) {
            // the sender is part of `faults`, so it still exists
            let _ = generation.changed().await;
        }
    };
    match time_limit {
        Some(time_limit) => {
            let _ = tokio::time::timeout(time_limit, removed).await;
        }
        None => removed.await,
    }
}

/// Returns the request's attributes that selectors compare.
fn attributes(parts: &http::request::Parts, user: String) -> RequestAttributes {
    let path = parts.uri.path();
    let query = query(parts);
    let agent = parts
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut attributes = RequestAttributes {
        user,
        user_agent: agent.to_owned(),
        path: path.to_owned(),
        ..RequestAttributes::default()
    };
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match Target::parse(&segments) {
        Some(target) => {
            target
                .verb(&parts.method, &query)
                .clone_into(&mut attributes.verb);
            target.group.clone_into(&mut attributes.group);
            target.plural.clone_into(&mut attributes.resource);
            target.subresource.clone_into(&mut attributes.subresource);
            target.namespace.clone_into(&mut attributes.namespace);
            attributes.name = if target.name.is_empty() {
                selected_name(&query).unwrap_or_default()
            } else {
                target.name.to_owned()
            };
        }
        None => attributes.verb = parts.method.as_str().to_lowercase(),
    }
    attributes
}

/// Returns the object name in a field selector.
fn selected_name(query: &HashMap<String, String>) -> Option<String> {
    let terms = query.get("fieldSelector")?.split(',');
    terms
        .filter_map(|term| term.strip_prefix("metadata.name="))
        .map(|name| name.trim_start_matches('=').to_owned())
        .next()
}
