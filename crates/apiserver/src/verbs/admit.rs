//! What every write does with the object of its body: decode it, fill in its defaults, record the owners of its fields, and refuse it.

use serde_json::{Value, json};

use super::occurrences;
use super::repeated::repeated_key;
use super::request::Request;
use crate::admission::attempt::Attempt;
use crate::admission::policies::{self, Operation, Options, Review};
use crate::admission::webhooks::{self, Invocations};
use crate::admission::{defaults, plugins, pod_security};
use crate::failure::{Cause, Failure, Subject};
use crate::objects::apply::Tracker;
use crate::objects::{custom, events};
use crate::schema::decode::{Findings, decode};
use crate::schema::shape;
use crate::storage::State;
use crate::values::times::now;

impl Request<'_> {
    /// Records in the object which fields the request takes; an apply has recorded them already.
    pub(super) fn track(&self, before: Option<&Value>, after: &mut Value) {
        if !self.applies() {
            let now = now();
            // fields that are always written but were not given have no owner
            if self.resource.custom.is_none() && before.is_none() {
                let mut blank = json!({});
                shape::tidy(self.resource.schema(), &mut blank);
                remove_blanks(after, &blank);
            }
            let tracker = Tracker::new(self.resource, self.subresource, &now);
            tracker.update(before, after, &self.manager());
            if !custom::can_keep_owners(self.resource, before, after)
                && let Some(metadata) = after["metadata"].as_object_mut()
            {
                metadata.remove("managedFields");
            }
            if self.resource.custom.is_none() {
                shape::tidy(self.resource.schema(), after);
            }
        }
    }

    /// Normalises and checks an object; returns the warnings.
    pub(super) fn admit(&self, object: &mut Value) -> Result<Vec<String>, Failure> {
        if !object.is_object() {
            return Err(Failure::unprocessable(
                "the server rejected our request due to an error in our request",
            ));
        }
        let kind = &self.resource.kind;
        let version = &self.resource.version;
        self.check_kind(object)?;
        let custom = self.resource.custom.is_some();
        let Findings {
            unknown,
            undecodable,
        } = if custom {
            custom::normalise(self.resource.schema().raw(), object)
        } else {
            decode(self.resource.schema(), object)
        };
        let cannot = |why: &str| {
            Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        };
        if let Some(why) = undecodable {
            return Err(cannot(&why));
        }
        let mut warnings = occurrences::problems(self.json(), &unknown, custom);
        match self.parameter("fieldValidation") {
            "Strict" if !warnings.is_empty() => {
                let why = format!("strict decoding error: {}", warnings.join(", "));
                return Err(if self.changes_by_patch() {
                    self.unfit(object, &why)
                } else {
                    cannot(&why)
                });
            }
            "Ignore" => warnings.clear(),
            _ if self.applies() => warnings.extend(repeated_key(self.body)),
            _ => {}
        }
        if !custom {
            shape::tidy(self.resource.schema(), object);
            defaults::apply(self.resource, object);
        }
        Ok(warnings)
    }

    /// Lets the plugins of admission and the webhooks change an object. `hidden` are the fields of its metadata that the server has set
    /// already, although a real one sets them later. Returns the warnings.
    pub(super) fn change(
        &self,
        state: &State,
        attempt: &Attempt<'_>,
        operation: Operation,
        object: &mut Value,
        hidden: &[&str],
    ) -> Result<Vec<String>, Failure> {
        plugins::admit(state, attempt, object)?;
        let mut warnings = Vec::new();
        // a scale is shown as such, before it becomes a change of the object
        if self.subresource != "scale" && webhooks::are_there(state) {
            let review = Review {
                attempt: *attempt,
                operation,
                object: None,
                options: self.options(),
            };
            let mut invocations = Invocations::default();
            let mut round = |object: &mut Value, invocations: &mut Invocations| {
                self.show(state, &review, object, invocations, hidden)
                    .map(|told| warnings.extend(told))
            };
            round(object, &mut invocations)?;
            if invocations.changed {
                let before = object.clone();
                plugins::admit(state, attempt, object)?;
                invocations.repeat(*object != before);
                round(object, &mut invocations)?;
            }
        }
        plugins::check(state, attempt, object)?;
        Ok(warnings)
    }

    /// Shows an object to the webhooks that may change it.
    fn show(
        &self,
        state: &State,
        review: &Review<'_>,
        object: &mut Value,
        invocations: &mut Invocations,
        hidden: &[&str],
    ) -> Result<Vec<String>, Failure> {
        let mut kept = Vec::new();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for field in hidden {
                kept.extend(metadata.remove(*field).map(|value| (*field, value)));
            }
        }
        let decode = |object: &mut Value| self.decode_changed(object);
        let warnings = webhooks::mutate(
            state,
            self.calls,
            review,
            Some(object),
            invocations,
            &decode,
        )?;
        for (field, value) in kept {
            if object["metadata"][field].is_null() {
                object["metadata"][field] = value;
            }
        }
        Ok(warnings)
    }

    /// Brings an object that a webhook has changed into the form of its kind.
    fn decode_changed(&self, object: &mut Value) -> Result<(), Failure> {
        if events::is_in_events_group(self.resource) {
            // it has the form of the core group here
            return Ok(());
        }
        let found = match &self.resource.custom {
            Some(_) => custom::normalise(self.resource.schema().raw(), object),
            None => decode(self.resource.schema(), object),
        };
        if let Some(why) = found.undecodable {
            return Err(Failure::internal(why));
        }
        if !object.is_object() || !object["metadata"].is_object() {
            return Err(Failure::internal(
                "a webhook made something that is no object",
            ));
        }
        if self.resource.custom.is_none() {
            shape::tidy(self.resource.schema(), object);
            defaults::apply(self.resource, object);
        }
        Ok(())
    }

    /// Asks those plugins of admission about a write that change nothing: Pod Security, the admission policies and the validating
    /// webhooks. Returns their warnings.
    pub(super) fn ask_policies(
        &self,
        state: &State,
        attempt: Attempt<'_>,
        operation: Operation,
        object: Option<&Value>,
    ) -> Result<Vec<String>, Failure> {
        let review = Review {
            attempt,
            operation,
            object,
            options: self.options(),
        };
        self.judge(state, &review)
    }

    fn judge(&self, state: &State, review: &Review<'_>) -> Result<Vec<String>, Failure> {
        let mut warnings = pod_security::check(state, review)?;
        warnings.extend(policies::check(state, review)?);
        let told = webhooks::validate(state, self.calls, review);
        warnings.extend(told.map_err(|failure| failure.after_all(&warnings))?);
        Ok(warnings)
    }

    /// Asks all of admission about a write that is no new state of an object: webhooks may change what is written, then all are asked who may
    /// refuse it. Returns the warnings.
    pub(super) fn ask_all(
        &self,
        state: &State,
        attempt: Attempt<'_>,
        operation: Operation,
        mut object: Option<&mut Value>,
        deletion: Option<&Value>,
    ) -> Result<Vec<String>, Failure> {
        let review = Review {
            attempt,
            operation,
            object: None,
            options: Options {
                deletion,
                dry_run: self.dry_run() || deletion.is_some_and(|given| given["dryRun"].is_array()),
                ..self.options()
            },
        };
        let mut warnings = self.ask_to_change(state, &review, object.as_deref_mut())?;
        let review = Review {
            object: object.as_deref(),
            ..review
        };
        let told = self.judge(state, &review);
        warnings.extend(told.map_err(|failure| failure.after_all(&warnings))?);
        Ok(warnings)
    }

    fn ask_to_change(
        &self,
        state: &State,
        review: &Review<'_>,
        object: Option<&mut Value>,
    ) -> Result<Vec<String>, Failure> {
        if !webhooks::are_there(state) {
            return Ok(Vec::new());
        }
        let mut invocations = Invocations::default();
        let decode = |object: &mut Value| self.decode_written(object);
        webhooks::mutate(state, self.calls, review, object, &mut invocations, &decode)
    }

    /// Lets webhooks change a scale that is written.
    pub(super) fn change_scale(
        &self,
        state: &State,
        before: &Value,
        scale: &mut Value,
    ) -> Result<Vec<String>, Failure> {
        let review = Review {
            attempt: self.attempt(Some(before)),
            operation: Operation::Update,
            object: None,
            options: self.options(),
        };
        self.ask_to_change(state, &review, Some(scale))
    }

    /// Checks what a webhook has made of a body that is no object of the resource.
    fn decode_written(&self, object: &mut Value) -> Result<(), Failure> {
        if let Some(kind) = self.resource.subresource_kind(self.subresource)
            && let Some(why) = decode(kind.schema(), object).undecodable
        {
            return Err(Failure::internal(why));
        }
        Ok(())
    }

    pub(super) fn invalid(&self, object: &Value, causes: &[Cause]) -> Failure {
        let group = if events::is_in_events_group(self.resource) {
            ""
        } else {
            &self.resource.group
        };
        let subject = Subject {
            group,
            resource: &self.resource.kind,
            name: object["metadata"]["name"].as_str().unwrap_or_default(),
        };
        Failure::invalid(&subject, causes)
    }

    /// Returns the body of a review with its field owner, and the warnings.
    pub(crate) fn review(&self) -> Result<(Value, Vec<String>), Failure> {
        let mut object = self.parse()?;
        let warnings = self.admit(&mut object)?;
        match self.resource.kind.as_str() {
            "SelfSubjectRulesReview" => {}
            "SelfSubjectReview" => object["metadata"]["creationTimestamp"] = json!(now()),
            _ => self.track(None, &mut object),
        }
        Ok((object, warnings))
    }
}

/// Removes empty values that an object has although nothing was given for them.
fn remove_blanks(value: &mut Value, blank: &Value) {
    if let (Some(fields), Some(blanks)) = (value.as_object_mut(), blank.as_object()) {
        for (name, blank) in blanks {
            match fields.get_mut(name) {
                Some(field) if blank.is_object() => remove_blanks(field, blank),
                Some(field) if field == blank && is_nothing(blank) => {
                    fields.remove(name);
                }
                _ => {}
            }
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value == "" || value == 0 || value == false
}
