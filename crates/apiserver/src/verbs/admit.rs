//! What every write does with the object of its body: decode it, fill in its defaults, record the owners of its fields, and refuse it.

use serde_json::{Value, json};

use super::occurrences;
use super::request::Request;
use crate::admission::attempt::Attempt;
use crate::admission::policies::{self, Operation, Review};
use crate::admission::{defaults, pod_security};
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
                return Err(cannot(&format!(
                    "strict decoding error: {}",
                    warnings.join(", ")
                )));
            }
            "Ignore" => warnings.clear(),
            _ => {}
        }
        if !custom {
            shape::tidy(self.resource.schema(), object);
            defaults::apply(self.resource, object);
        }
        Ok(warnings)
    }

    /// Asks those plugins of admission about a write that change nothing: Pod Security and the admission policies. Returns their
    /// warnings.
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
            dry_run: self.dry_run(),
        };
        let mut warnings = pod_security::check(state, &review)?;
        warnings.extend(policies::check(state, &review)?);
        Ok(warnings)
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
