//! Applies the rules to a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::rule::{Fault, RequestAttributes, RuleId, WatchEnd};
use super::ticket::{OpenWatch, Ticket};
use crate::Shared;
use crate::failure::{Failure, Subject};
use crate::store;

/// What faults do to a request that is served.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    staleness: Option<Staleness>,
    /// Whether the connection ends instead of sending the answer.
    pub(crate) answer_lost: bool,
    open: Mutex<Option<OpenWatch>>,
}

/// How old the state is that a read sees.
#[derive(Clone, Copy, Debug)]
enum Staleness {
    AtVersion(u64),
    VersionsBack(u64),
}

impl Effects {
    /// Returns the state that a read sees; `None` for the present one.
    pub(crate) fn past_state(&self, state: &store::State, storage: &str) -> Option<store::State> {
        let version = match self.staleness? {
            Staleness::AtVersion(version) => version,
            Staleness::VersionsBack(versions) => state.version().saturating_sub(versions),
        };
        Some(state.at_version(storage, version))
    }

    /// Returns the ticket of a watch, at the first call only.
    pub(crate) fn take_ticket(&self) -> Option<OpenWatch> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
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
    answer_lost: bool,
    limit: Option<(u64, WatchEnd)>,
    outcome: Option<(RuleId, Fault)>,
}

/// Applies the rules to a request. `user` is called only when there are rules or the request is a watch.
pub(crate) async fn apply_rules(
    shared: &Arc<Shared>,
    parts: &http::request::Parts,
    user: impl FnOnce() -> String,
) -> Outcome {
    let attributes = |user| attributes(parts, user);
    let watching = crate::serve::is_watch(parts);
    if !watching && !shared.faults.any() {
        return Outcome::Served(Arc::default());
    }
    let attributes = attributes(user());
    if attributes.path.starts_with("/testing") {
        return Outcome::Served(Arc::default());
    }
    let decision = decide(shared, &attributes);
    if !decision.delay.is_zero() {
        tokio::time::sleep(decision.delay).await;
    }
    let mut limit = decision.limit;
    if let Some((rule, fault)) = decision.outcome {
        let subject = Subject {
            group: &attributes.group,
            resource: &attributes.resource,
            name: &attributes.name,
        };
        let refused = match fault {
            Fault::Conflict => Failure::modified(&subject),
            Fault::Expired if attributes.verb == "watch" => {
                limit = Some((0, WatchEnd::Expired));
                return served(
                    shared,
                    attributes,
                    watching,
                    decision.staleness,
                    false,
                    limit,
                );
            }
            Fault::Expired => Failure::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            ),
            Fault::TooManyRequests {
                retry_after_seconds,
            } => return Outcome::Busy(retry_after_seconds),
            Fault::InternalError => Failure::internal("injected fault"),
            Fault::Unavailable => {
                Failure::unavailable("the server is currently unable to handle the request")
            }
            Fault::Hang { milliseconds } => {
                let time_limit = milliseconds.map(|time| Duration::from_millis(time.get()));
                hang(shared, rule, time_limit).await;
                Failure::timeout("request did not complete within the allotted timeout")
            }
            _ => return Outcome::Disconnected,
        };
        return Outcome::Refused(refused);
    }
    served(
        shared,
        attributes,
        watching,
        decision.staleness,
        decision.answer_lost,
        limit,
    )
}

fn served(
    shared: &Arc<Shared>,
    attributes: RequestAttributes,
    watching: bool,
    staleness: Option<Staleness>,
    answer_lost: bool,
    limit: Option<(u64, WatchEnd)>,
) -> Outcome {
    let open = watching.then(|| OpenWatch::new(shared, Ticket::open(shared, attributes, limit)));
    Outcome::Served(Arc::new(Effects {
        staleness,
        answer_lost,
        open: Mutex::new(open),
    }))
}

fn decide(shared: &Shared, attributes: &RequestAttributes) -> Decision {
    let mut decision = Decision::default();
    let mut struck = false;
    for entry in &mut shared.faults.rules().entries {
        if !entry.strikes(attributes) {
            continue;
        }
        struck = true;
        match &entry.rule.fault {
            Fault::Delay { milliseconds } => {
                decision.delay += Duration::from_millis(*milliseconds);
            }
            Fault::LoseAnswer => decision.answer_lost = true,
            Fault::Stale { versions } => {
                decision.staleness = Some(Staleness::VersionsBack(*versions));
            }
            Fault::Freeze => decision.staleness = Some(Staleness::AtVersion(entry.version)),
            Fault::EndWatch { after_events, how } => decision.limit = Some((*after_events, *how)),
            fault => {
                decision.outcome = Some((entry.id, fault.clone()));
                break;
            }
        }
    }
    if struck {
        shared.faults.strikes.send_modify(|strikes| *strikes += 1);
    }
    decision
}

/// Waits until the time is over or the rule is removed.
async fn hang(shared: &Shared, rule: RuleId, time_limit: Option<Duration>) {
    let mut generation = shared.faults.generation.subscribe();
    let removed = async {
        while shared.faults.rules().entries.iter().any(|e| e.id == rule) {
            // the sender is part of `shared`, so it still exists
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
    let query = crate::serve::query(parts);
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
    match crate::serve::Target::parse(&segments) {
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
