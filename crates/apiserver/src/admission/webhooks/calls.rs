//! The calls of webhooks that one request needs, with their answers.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::values::draws::Draws;

/// A call of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// URL of the call, with its time limit.
    pub(crate) url: String,
    /// Host and port to connect to; the error says why there is none.
    pub(crate) endpoint: Result<Endpoint, String>,
    /// Certificates of the authorities that the webhook's certificate may come from, as PEM.
    pub(crate) authorities: Vec<u8>,
    /// The longest time that it may take.
    pub(crate) timeout: Duration,
    /// The body of the request.
    pub(crate) body: Value,
}

/// Where a webhook listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Host name or address.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Name that its certificate must have.
    pub(crate) server_name: String,
}

/// What a webhook has answered.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// Id of the review that it was sent.
    pub(super) uid: String,
    /// The review that came back; the error says why none did.
    pub(super) review: Result<Value, String>,
}

/// The calls that one request needs. It survives all performances of the request.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: HashMap<String, Reply>,
    open: Vec<(String, Call)>,
    draws: Draws,
}

impl Calls {
    /// Returns the answer to a question; without one the call is noted.
    pub(super) fn answer(&self, question: String, call: impl FnOnce() -> Call) -> Option<Reply> {
        let mut inner = self.0.lock();
        if let Some(reply) = inner.known.get(&question) {
            return Some(reply.clone());
        }
        inner.open.push((question, call()));
        None
    }

    /// Returns whether calls have to be made before the request can be performed.
    pub(crate) fn are_open(&self) -> bool {
        !self.0.lock().open.is_empty()
    }

    /// Returns the calls that have to be made before the request can be performed again.
    pub(crate) fn take_open(&self) -> Vec<(String, Call)> {
        std::mem::take(&mut self.0.lock().open)
    }

    /// Notes the answer to a question.
    pub(crate) fn note(&self, question: String, call: &Call, review: Result<Value, String>) {
        let uid = call.body["request"]["uid"].as_str().unwrap_or_default();
        let reply = Reply {
            uid: uid.to_owned(),
            review,
        };
        self.0.lock().known.insert(question, reply);
    }

    /// Performs the request, which draws what it has drawn before.
    pub(crate) fn perform<R>(&self, work: impl FnOnce() -> R) -> R {
        let draws = std::mem::take(&mut self.0.lock().draws);
        let (result, draws) = crate::values::draws::repeat(draws, work);
        self.0.lock().draws = draws;
        result
    }
}
