//! One webhook of a configuration.

use std::time::Duration;

use serde_json::Value;

use super::calls::{Call, Calls};
use super::verdict::Verdict;
use super::{MUTATING, Review, endpoint, review};
use crate::failure::Failure;
use crate::storage::State;
use crate::values::fields::elements;

/// How long a webhook may take that names no limit, in seconds. It is a default of the kind, so every stored webhook names one.
const TIMEOUT: u64 = 10;
/// Versions of reviews that this server speaks.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// A webhook.
pub(super) struct Hook<'a> {
    /// What makes it one of all webhooks: the unique id of its configuration, and its place there.
    pub(super) id: String,
    /// Its name.
    pub(super) name: &'a str,
    /// What its configuration says of it.
    pub(super) spec: &'a Value,
    is_mutating: bool,
}

impl<'a> Hook<'a> {
    /// Returns all webhooks of a kind of configurations, by the names of these.
    pub(super) fn all(state: &'a State, storage: &'a str) -> impl Iterator<Item = Self> {
        state.list(storage, "").flat_map(move |(_, configuration)| {
            let uid = configuration["metadata"]["uid"]
                .as_str()
                .unwrap_or_default();
            let hooks = elements(&configuration["webhooks"]);
            hooks.enumerate().map(move |(index, spec)| Self {
                id: format!("{uid}/{index}"),
                name: spec["name"].as_str().unwrap_or_default(),
                spec,
                is_mutating: storage == MUTATING,
            })
        })
    }

    /// Returns whether a write goes on when the webhook cannot be asked.
    pub(super) fn ignores_failures(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }

    /// Returns whether the webhook wants to see what others change after it.
    pub(super) fn sees_later_changes(&self) -> bool {
        self.spec["reinvocationPolicy"] == "IfNeeded"
    }

    /// Returns what the webhook says of a write; `None` while it has not been asked.
    pub(super) fn ask(
        &self,
        state: &State,
        calls: &Calls,
        about: &Review<'_>,
        version: &str,
        round: usize,
    ) -> Result<Option<Verdict>, Failure> {
        if about.options.dry_run
            && !["None", "NoneOnDryRun"]
                .iter()
                .any(|free| self.spec["sideEffects"] == *free)
        {
            let why = format!("admission webhook {:?} does not support dry run", self.name);
            return Err(Failure::bad_request(why));
        }
        let mut versions = elements(&self.spec["admissionReviewVersions"]);
        let Some(spoken) =
            versions.find_map(|known| REVIEWS.into_iter().find(|spoken| known == spoken))
        else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Ok(Some(self.failed(why)));
        };
        let mut body = review::body(about, version, spoken);
        let question = format!("{} {round} {body}", self.id);
        let reply = calls.answer(question, || {
            body["request"]["uid"] = Value::from(uuid::Uuid::new_v4().to_string());
            self.call(state, body)
        });
        let Some(reply) = reply else {
            return Ok(None);
        };
        let answered = reply
            .review
            .map_err(|why| format!("failed to call webhook: {why}"));
        let verdict = answered.and_then(|answer| {
            Verdict::read(self.name, self.is_mutating, spoken, &reply.uid, &answer)
        });
        Ok(Some(verdict.unwrap_or_else(|why| self.failed(&why))))
    }

    /// Returns what a call that failed means for the write.
    fn failed(&self, why: &str) -> Verdict {
        if self.ignores_failures() {
            tracing::warn!(
                webhook = self.name,
                why,
                "Ignoring a webhook that cannot be asked"
            );
            return Verdict::Ignored;
        }
        let why = format!("failed calling webhook {:?}: {why}", self.name);
        Verdict::Refused {
            failure: Failure::internal(why),
            warnings: Vec::new(),
        }
    }

    fn call(&self, state: &State, body: Value) -> Call {
        use base64::Engine as _;
        let client = &self.spec["clientConfig"];
        let seconds = self.spec["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT);
        let bundle = client["caBundle"].as_str().unwrap_or_default();
        let authorities = base64::engine::general_purpose::STANDARD.decode(bundle);
        Call {
            url: format!("{}?timeout={seconds}s", endpoint::url(client)),
            endpoint: endpoint::resolve(state, client),
            authorities: authorities.unwrap_or_default(),
            timeout: Duration::from_secs(seconds),
            body,
        }
    }
}
