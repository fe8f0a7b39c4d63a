//! Applies the rules to a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::rule::{Asked, Fault, RuleId, WatchEnd};
use super::ticket::{Open, Ticket};
use crate::Shared;
use crate::failure::{Failure, Subject};
use crate::store;

/// What faults do to a request that is served.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    past: Option<Past>,
    /// Whether the connection ends instead of sending the answer.
    pub(crate) answer_lost: bool,
    open: Mutex<Option<Open>>,
}

/// How old the state is that a read sees.
#[derive(Clone, Copy, Debug)]
enum Past {
    At(u64),
    Back(u64),
}

impl Effects {
    /// Returns the state that a read sees; `None` for the present one.
    pub(crate) fn past(&self, state: &store::State, storage: &str) -> Option<store::State> {
        let version = match self.past? {
            Past::At(version) => version,
            Past::Back(versions) => state.version().saturating_sub(versions),
        };
        Some(state.rewound(storage, version))
    }

    /// Returns the ticket of a watch, at the first call only.
    pub(crate) fn take_ticket(&self) -> Option<Open> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.take()
    }
}

/// The outcome for a request.
#[derive(Debug)]
pub(crate) enum Met {
    /// The request is served.
    Served(Arc<Effects>),
    /// The request is refused.
    Refused(Failure),
    /// The request is refused in plain text, before the API handles it; the client should retry after this many seconds.
    Busy(u64),
    /// The connection ends.
    Cut,
}

/// What the rules decide about one request.
#[derive(Default)]
struct Decision {
    delay: Duration,
    past: Option<Past>,
    answer_lost: bool,
    limit: Option<(u64, WatchEnd)>,
    outcome: Option<(RuleId, Fault)>,
}

/// Applies the rules to a request. `user` is called only when there are rules or the request is a watch.
pub(crate) async fn meet(
    shared: &Arc<Shared>,
    parts: &http::request::Parts,
    user: impl FnOnce() -> String,
) -> Met {
    let asked = |user| asked(parts, user);
    let watching = crate::serve::is_watch(parts);
    if !watching && !shared.faults.any() {
        return Met::Served(Arc::default());
    }
    let asked = asked(user());
    if asked.path.starts_with("/testing") {
        return Met::Served(Arc::default());
    }
    let decision = decide(shared, &asked);
    if !decision.delay.is_zero() {
        tokio::time::sleep(decision.delay).await;
    }
    let mut limit = decision.limit;
    if let Some((rule, fault)) = decision.outcome {
        let subject = Subject {
            group: &asked.group,
            resource: &asked.resource,
            name: &asked.name,
        };
        let refused = match fault {
            Fault::Conflict => Failure::modified(&subject),
            Fault::Expired if asked.verb == "watch" => {
                limit = Some((0, WatchEnd::Expired));
                return served(shared, asked, watching, decision.past, false, limit);
            }
            Fault::Expired => Failure::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            ),
            Fault::TooManyRequests {
                retry_after_seconds,
            } => return Met::Busy(retry_after_seconds),
            Fault::InternalError => Failure::internal("a fault was asked for"),
            Fault::Unavailable => {
                Failure::unavailable("the server is currently unable to handle the request")
            }
            Fault::Hang { milliseconds } => {
                let over = milliseconds.map(|time| Duration::from_millis(time.get()));
                hang(shared, rule, over).await;
                Failure::timeout("request did not complete within the allotted timeout")
            }
            _ => return Met::Cut,
        };
        return Met::Refused(refused);
    }
    served(
        shared,
        asked,
        watching,
        decision.past,
        decision.answer_lost,
        limit,
    )
}

fn served(
    shared: &Arc<Shared>,
    asked: Asked,
    watching: bool,
    past: Option<Past>,
    answer_lost: bool,
    limit: Option<(u64, WatchEnd)>,
) -> Met {
    let open = watching.then(|| Open::new(shared, Ticket::open(shared, asked, limit)));
    Met::Served(Arc::new(Effects {
        past,
        answer_lost,
        open: Mutex::new(open),
    }))
}

fn decide(shared: &Shared, asked: &Asked) -> Decision {
    let mut decision = Decision::default();
    let mut struck = false;
    for entry in &mut shared.faults.rules().entries {
        if !entry.strikes(asked) {
            continue;
        }
        struck = true;
        match &entry.rule.fault {
            Fault::Delay { milliseconds } => {
                decision.delay += Duration::from_millis(*milliseconds);
            }
            Fault::LoseAnswer => decision.answer_lost = true,
            Fault::Stale { versions } => decision.past = Some(Past::Back(*versions)),
            Fault::Freeze => decision.past = Some(Past::At(entry.version)),
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
async fn hang(shared: &Shared, rule: RuleId, over: Option<Duration>) {
    let mut generation = shared.faults.generation.subscribe();
    let removed = async {
        while shared.faults.rules().entries.iter().any(|e| e.id == rule) {
            // the sender is part of `shared`, so it still exists
            let _ = generation.changed().await;
        }
    };
    match over {
        Some(over) => {
            let _ = tokio::time::timeout(over, removed).await;
        }
        None => removed.await,
    }
}

/// Returns the request's attributes that selectors compare.
fn asked(parts: &http::request::Parts, user: String) -> Asked {
    let path = parts.uri.path();
    let query = crate::serve::query(parts);
    let agent = parts
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut asked = Asked {
        user,
        user_agent: agent.to_owned(),
        path: path.to_owned(),
        ..Asked::default()
    };
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match crate::serve::Target::parse(&segments) {
        Some(target) => {
            target
                .verb(&parts.method, &query)
                .clone_into(&mut asked.verb);
            target.group.clone_into(&mut asked.group);
            target.plural.clone_into(&mut asked.resource);
            target.subresource.clone_into(&mut asked.subresource);
            target.namespace.clone_into(&mut asked.namespace);
            asked.name = if target.name.is_empty() {
                selected_name(&query).unwrap_or_default()
            } else {
                target.name.to_owned()
            };
        }
        None => asked.verb = parts.method.as_str().to_lowercase(),
    }
    asked
}

/// Returns the object name in a field selector.
fn selected_name(query: &HashMap<String, String>) -> Option<String> {
    let terms = query.get("fieldSelector")?.split(',');
    terms
        .filter_map(|term| term.strip_prefix("metadata.name="))
        .map(|name| name.trim_start_matches('=').to_owned())
        .next()
}
