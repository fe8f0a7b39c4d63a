//! Admission webhooks: programs outside of the server that change writes or refuse them.
//!
//! Admission runs in a transaction, and nobody may wait for a webhook in it. So it only notes which calls it needs ([`Calls`]) and fails; the
//! calls are made without the lock, and the request is performed again with their answers, from its beginning, as a real server does
//! it when an object changes meanwhile. It draws the same ids and times again, and an answer counts for exactly what the webhook was asked:
//! if an object has changed meanwhile, the webhook is asked again.
//!
//! Configurations are read from the state, so that a change of them counts for the next request; a real server takes up to a second to hear
//! of it. A cluster without webhooks pays two look-ups for each write.
//!
//! What a real server has and this one does not: annotations of an audit log, because there is none; calls about reviews and tokens, which
//! are answered but not stored; and the equivalent versions of built-in kinds.

use serde_json::{Value, json};

pub(crate) use self::calls::{Call, Calls, Endpoint};
use self::hook::Hook;
use self::verdict::Verdict;
use super::policies::{Review, conditions};
use crate::failure::Failure;
use crate::storage::State;

mod calls;
mod endpoint;
mod hook;
mod patch;
mod review;
mod verdict;

/// Where configurations of webhooks are stored that change writes.
pub(crate) const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
/// Where configurations of webhooks are stored that only refuse writes.
pub(crate) const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
/// Group of the kinds that no webhook sees, so that a webhook cannot lock out those who would mend it.
const UNSEEN: &str = "admissionregistration.k8s.io";

/// Returns whether there are configurations of webhooks: a cheap question, for callers that would have to prepare a review.
pub(crate) fn are_there(state: &State) -> bool {
    [MUTATING, VALIDATING]
        .iter()
        .any(|storage| state.list(storage, "").next().is_some())
}

/// Which mutating webhooks were called for a write, and which of them have to see it again.
#[derive(Debug, Default)]
pub(crate) struct Invocations {
    /// Whether a webhook has changed the object, so that everything that changes objects runs once more.
    pub(crate) changed: bool,
    /// Whether this is the second time.
    again: bool,
    /// The webhooks that want to see later changes.
    called: Vec<String>,
    /// Those of them after whose call something changed.
    outdated: Vec<String>,
}

impl Invocations {
    /// Begins the second round, in which only webhooks are called that want to see later changes; `changed` says whether the plugins have made
    /// one.
    pub(crate) fn repeat(&mut self, changed: bool) {
        self.again = true;
        if changed {
            self.outdate();
        }
    }

    fn outdate(&mut self) {
        self.outdated.append(&mut self.called);
    }
}

/// Lets the mutating webhooks change the object of a write or refuse it. `decode` brings what a webhook made into the form of the kind.
/// Returns their warnings.
pub(crate) fn mutate(
    state: &State,
    calls: &Calls,
    review: &Review<'_>,
    object: Option<&mut Value>,
    invocations: &mut Invocations,
    decode: &dyn Fn(&mut Value) -> Result<(), Failure>,
) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    if !review.attempt.is_enabled("MutatingAdmissionWebhook") || is_unseen(review) {
        return Ok(warnings);
    }
    let mut object = object;
    let round = usize::from(invocations.again);
    for hook in Hook::all(state, MUTATING) {
        let review = Review {
            object: object.as_deref(),
            ..*review
        };
        let outdated = invocations.outdated.contains(&hook.id);
        let Some(matched) = matched(state, &review, &hook)? else {
            continue;
        };
        if invocations.again && !outdated {
            continue;
        }
        let Some(asked) = hook.ask(state, calls, &review, &matched, round)? else {
            return Err(Failure::unanswered());
        };
        let patch = match asked {
            Verdict::Ignored => None,
            Verdict::Refused {
                failure,
                warnings: told,
            } => {
                warnings.extend(told);
                return Err(failure.after(&warnings));
            }
            Verdict::Allowed {
                patch,
                warnings: told,
            } => {
                warnings.extend(told);
                patch
            }
        };
        if let Some(patch) = patch {
            let Some(object) = object.as_deref_mut() else {
                let why = format!(
                    "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                    hook.name
                );
                return Err(Failure::internal(why).after(&warnings));
            };
            let before = object.clone();
            patch::apply(object, patch)
                .and_then(|()| decode(object))
                .map_err(|failure| failure.after(&warnings))?;
            if *object != before {
                invocations.outdate();
                invocations.changed = true;
            }
        }
        if hook.sees_later_changes() {
            invocations.called.push(hook.id);
        }
    }
    Ok(warnings)
}

/// Asks the validating webhooks about a write, all at once. Returns their warnings; the error is the first refusal.
pub(crate) fn validate(
    state: &State,
    calls: &Calls,
    review: &Review<'_>,
) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    if !review.attempt.is_enabled("ValidatingAdmissionWebhook") || is_unseen(review) {
        return Ok(warnings);
    }
    let mut verdicts = Vec::new();
    let mut is_open = false;
    for hook in Hook::all(state, VALIDATING) {
        if let Some(matched) = matched(state, review, &hook)? {
            match hook.ask(state, calls, review, &matched, 0) {
                Ok(Some(verdict)) => verdicts.push(verdict),
                Ok(None) => is_open = true,
                Err(failure) => verdicts.push(Verdict::Refused {
                    failure,
                    warnings: Vec::new(),
                }),
            }
        }
    }
    if is_open {
        return Err(Failure::unanswered());
    }
    let mut refusal = None;
    for verdict in verdicts {
        match verdict {
            Verdict::Ignored => {}
            Verdict::Allowed { warnings: told, .. } => warnings.extend(told),
            Verdict::Refused {
                failure,
                warnings: told,
            } => {
                warnings.extend(told);
                refusal.get_or_insert(failure);
            }
        }
    }
    match refusal {
        None => Ok(warnings),
        Some(failure) => Err(failure.after(&warnings)),
    }
}

fn is_unseen(review: &Review<'_>) -> bool {
    review.attempt.resource.group == UNSEEN
}

/// Returns in which version a webhook is asked about a write; `None` where it is not about it.
fn matched(state: &State, review: &Review<'_>, hook: &Hook<'_>) -> Result<Option<String>, Failure> {
    let spec = hook.spec;
    let resources = json!({
        "namespaceSelector": spec["namespaceSelector"], "objectSelector": spec["objectSelector"],
        "matchPolicy": spec["matchPolicy"], "resourceRules": spec["rules"],
    });
    if spec["rules"].as_array().is_none_or(Vec::is_empty) {
        return Ok(None);
    }
    let Some(version) = super::policies::matched_version(state, review, &resources) else {
        return Ok(None);
    };
    match conditions(state, review, &spec["matchConditions"], &version) {
        Ok(true) => Ok(Some(version)),
        Ok(false) => Ok(None),
        Err(_) if hook.ignores_failures() => Ok(None),
        Err(why) => Err(review.attempt.forbidden(&why)),
    }
}
