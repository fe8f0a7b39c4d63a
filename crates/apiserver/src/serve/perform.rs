//! Performs a request for a resource in one transaction. Where the transaction needs the answers of webhooks, it is performed again with them.

use std::time::Duration;

use tokio::time::Instant;

use super::shared::Shared;
use super::webhooks;
use crate::admission::webhooks::Calls;
use crate::failure::Failure;
use crate::storage::{DEFINITIONS, State};
use crate::verbs::{Answer, Request, definitions, reviews};

/// How long a request waits for objects that controllers create.
const TRANSIENT_RETRY_LIMIT: Duration = Duration::from_secs(2);

/// Longest time of a request that webhooks are asked about.
const LONGEST_REQUEST: Duration = Duration::from_mins(1);

/// Performs a request in one transaction. A transient failure is retried after each write, until a deadline.
pub(super) async fn perform(
    shared: &Shared,
    verb: &str,
    request: &Request<'_>,
) -> Result<Answer, Failure> {
    let until = Instant::now() + TRANSIENT_RETRY_LIMIT;
    let mut newest = shared.store.subscribe();
    loop {
        let done = with_webhooks(request.calls, || perform_once(shared, verb, request)).await;
        match done {
            Err(failure) if failure.is_transient => {
                let changed = tokio::time::timeout_at(until, newest.changed()).await;
                if !matches!(changed, Ok(Ok(()))) {
                    return Err(failure);
                }
            }
            other => return other,
        }
    }
}

/// Performs work in one transaction, again and again until all webhooks that it needs have answered.
pub(super) async fn with_webhooks<T>(
    calls: &Calls,
    work: impl Fn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let answered = async {
        loop {
            let done = calls.perform(&work);
            let open = calls.take_open();
            if open.is_empty() {
                return done;
            }
            let asked = open.into_iter().map(|(question, call)| async move {
                let review = webhooks::ask(&call).await;
                calls.note(question, &call, review);
            });
            futures::future::join_all(asked).await;
        }
    };
    let late = "request did not complete within requested timeout - context deadline exceeded";
    tokio::time::timeout(LONGEST_REQUEST, answered)
        .await
        .unwrap_or_else(|_| Err(Failure::timeout(late)))
}

fn perform_once(shared: &Shared, verb: &str, request: &Request<'_>) -> Result<Answer, Failure> {
    if verb == "create" && reviews::is_review(&request.resource.storage) {
        return reviews::answer(&shared.store, &shared.users, request);
    }
    let options = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "",
    };
    if !options.is_empty() {
        request.check_write_options(options)?;
    }
    let state = &mut shared.store.lock();
    let answer = dispatch(shared, verb, request, state);
    let is_defined = request.resource.custom.is_some() || request.resource.storage == DEFINITIONS;
    if is_defined && answer.is_ok() && !["get", "list"].contains(&verb) {
        definitions::reconcile(state);
    }
    answer
}

fn dispatch(
    shared: &Shared,
    verb: &str,
    request: &Request<'_>,
    state: &mut State,
) -> Result<Answer, Failure> {
    let past = request.past_state(state);
    match (request.subresource, verb) {
        ("scale", "get") => request.get_scale(state),
        ("scale", "update") => request.replace_scale(state),
        ("scale", "patch") => request.patch_scale(state),
        ("binding", "create") => request.bind(state),
        ("", "create") if request.resource.storage == "bindings" => request.bind(state),
        ("eviction", "create") => request.evict(state),
        ("token", "create") => request.token(state, &shared.users.accounts),
        (_, "get") => request.get(past.as_ref().unwrap_or(state)),
        (_, "list") => request.list(past.as_ref().unwrap_or(state)),
        ("", "create") => request.create(state),
        (_, "update") => request.replace(state),
        (_, "patch") => request.patch(state),
        (_, "delete") => request.delete(state),
        (_, "deletecollection") => request.delete_collection(state),
        _ => Err(Failure::method_not_allowed()),
    }
}
