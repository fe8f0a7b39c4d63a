//! Deletion: immediately, after a grace period, or only marked while finalizers hold the object.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::body::{go_json_error, go_type, not_registered};
use super::definitions;
use super::deletion::has_finalizers;
use super::request::{Answer, Request};
use crate::admission::plugins;
use crate::admission::policies::{self, Operation};
use crate::admission::webhooks;
use crate::failure::{self, Failure, Subject};
use crate::storage::{DEFINITIONS, Key, Object, State};
use crate::values::fields::elements;
use crate::values::times::{instant, now};
use crate::verbs::deletion::{count, mark_for_deletion};

mod options;

pub(super) use self::options::Options;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// Kinds for which the answer to a deletion is the deleted object.
const RETURNS_OBJECT: &[&str] = &[
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourcequotas",
    "resourceslices.resource.k8s.io",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

/// Kinds whose dependents are orphaned by default.
const ORPHANED_BY_DEFAULT: &[&str] = &["replicationcontrollers", "jobs.batch"];

impl Request<'_> {
    /// Deletes an object, or marks it when it has a grace period or finalizers.
    pub(crate) fn delete(&self, state: &mut State) -> Result<Answer, Failure> {
        let options = self.delete_options()?;
        self.delete_with(state, &options)
    }

    /// Returns whether a deletion leaves it to the kind what becomes of dependents. One that is refused for its options does not.
    pub(crate) fn leaves_propagation_open(&self) -> bool {
        self.delete_options()
            .is_ok_and(|options| options.propagation.is_empty() && options.orphan.is_none())
    }

    fn delete_options(&self) -> Result<Options, Failure> {
        let given: Value = if self.body.is_empty() {
            let seconds = self.parameter("gracePeriodSeconds");
            let mut given = json!({});
            if !seconds.is_empty() {
                let number: i64 = seconds.parse().map_err(|_| {
                    Failure::bad_request(format!(
                        "strconv.ParseInt: parsing {seconds:?}: invalid syntax"
                    ))
                })?;
                given["gracePeriodSeconds"] = json!(number);
            }
            if !self.parameter("propagationPolicy").is_empty() {
                given["propagationPolicy"] = json!(self.parameter("propagationPolicy"));
            }
            if let Ok(orphan) = self.parameter("orphanDependents").parse::<bool>() {
                given["orphanDependents"] = json!(orphan);
            }
            given
        } else {
            self.delete_body()?
        };
        let mut options = Options::parse(&given)?;
        options.dry_run |= self.dry_run();
        Ok(options)
    }

    /// Parses the body of a deletion.
    fn delete_body(&self) -> Result<Value, Failure> {
        let given: Value = serde_json::from_slice(self.body).map_err(|error| {
            Failure::bad_request(format!(
                "couldn't get version/kind; json parse error: {}",
                go_json_error(self.body, &error)
            ))
        })?;
        let text = |field: &str| given[field].as_str().unwrap_or_default();
        if !["", "DeleteOptions"].contains(&text("kind")) {
            let why = not_registered(text("apiVersion"), text("kind"));
            return Err(Failure::bad_request(why));
        }
        let seconds = &given["gracePeriodSeconds"];
        if !seconds.is_null() && !seconds.is_i64() {
            return Err(Failure::bad_request(format!(
                "json: cannot unmarshal {} into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
                go_type(seconds)
            )));
        }
        Ok(given)
    }

    /// Refuses a deletion whose preconditions name another object or another version of it.
    pub(super) fn check_preconditions(
        &self,
        before: &Value,
        options: &Options,
    ) -> Result<(), Failure> {
        let is_namespace = self.resource.storage == "namespaces";
        let subject = Subject {
            resource: &self.resource.kind,
            ..self.subject()
        };
        for (wanted, field, word, end) in [
            (
                &options.uid,
                "uid",
                "UID",
                "The object might have been deleted and then recreated",
            ),
            (
                &options.version,
                "resourceVersion",
                "ResourceVersion",
                "The object might have been modified",
            ),
        ] {
            if let Some(wanted) = wanted
                && before["metadata"][field] != wanted.as_str()
            {
                let seen = before["metadata"][field].as_str().unwrap_or_default();
                if is_namespace {
                    let why = format!(
                        "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {seen}"
                    );
                    return Err(Failure::conflict(&self.subject(), &why));
                }
                let why = format!(
                    "the {word} in the precondition ({wanted}) does not match the {word} in record ({seen}). {end}"
                );
                return Err(Failure::conflict(&subject, &why));
            }
        }
        Ok(())
    }

    /// Deletes an object with the given options.
    pub(super) fn delete_with(
        &self,
        state: &mut State,
        options: &Options,
    ) -> Result<Answer, Failure> {
        let before = Arc::clone(self.existing(state)?);
        self.check_preconditions(&before, options)?;
        plugins::check_delete(&self.attempt(Some(&before)), &before)?;
        // an eviction is asked about as such
        let warnings = self.ask_before_deletion(state, &before, options)?;
        let mut answer = self.delete_admitted(state, options, &before);
        answer.warnings.extend(warnings);
        Ok(answer)
    }

    /// Asks admission about a deletion. An eviction was asked about as such.
    fn ask_before_deletion(
        &self,
        state: &State,
        before: &Value,
        options: &Options,
    ) -> Result<Vec<String>, Failure> {
        let concerns_someone = policies::has_bindings(state) || webhooks::are_there(state);
        if !self.subresource.is_empty() || !concerns_someone {
            return Ok(Vec::new());
        }
        let shown = self.in_requested_version(before);
        let attempt = self.attempt(Some(&shown));
        let given = options.shown();
        self.ask_all(state, attempt, Operation::Delete, None, Some(&given))
    }

    /// Deletes an object that admission lets go.
    fn delete_admitted(
        &self,
        state: &mut State,
        options: &Options,
        before: &Arc<Object>,
    ) -> Answer {
        if self.resource.storage == DEFINITIONS && before["metadata"]["deletionTimestamp"].is_null()
        {
            let mut object = definitions::start_deletion(before, &now());
            if !options.dry_run {
                object = Value::clone(&state.put(self.key(), object));
            }
            return self.pending_answer(&object, options);
        }
        let mut object = Value::clone(before);
        let marked = before["metadata"]["deletionTimestamp"].is_string();
        let is_namespace = self.resource.storage == "namespaces";
        let mut grace_seconds = None;
        if self.resource.storage == "pods" {
            match grace(&mut object, options) {
                Grace::Pending => return self.pending_answer(before, options),
                Grace::Ended => {}
                Grace::Seconds(seconds) => grace_seconds = Some(seconds),
            }
        }
        let changed = self.set_collector_finalizers(&mut object, options);
        let held = has_finalizers(&object);
        if is_namespace && marked && held && !changed {
            return self.pending_answer(before, options);
        }
        if grace_seconds.is_some() || held || changed {
            if grace_seconds.is_none() && held {
                mark_for_deletion(&mut object, is_namespace);
            }
            if is_namespace {
                object["status"]["phase"] = json!("Terminating");
            }
            let stays = held || grace_seconds.is_some_and(|seconds| seconds > 0);
            if options.dry_run {
                return self.pending_answer(&object, options);
            }
            if object != *before.value() {
                object = Value::clone(&state.put(self.key(), object));
            }
            if stays {
                return self.pending_answer(&object, options);
            }
        }
        if !options.dry_run
            && let Some(last) = state.remove(&self.key())
        {
            object = Value::clone(&last);
        }
        if RETURNS_OBJECT.contains(&self.resource.storage.as_str()) {
            return Answer::ok(self.in_requested_version(&object));
        }
        Answer::ok(failure::deleted(
            &self.subject(),
            &before["metadata"]["uid"],
        ))
    }

    /// Returns the answer to a deletion that is not finished.
    fn pending_answer(&self, object: &Value, options: &Options) -> Answer {
        let mut answer = Answer::ok(self.in_requested_version(object));
        if options.orphan == Some(false) {
            answer.code = 202;
        }
        answer
    }

    /// Sets the finalizers that tell the garbage collector what to do with dependents; returns whether they changed.
    fn set_collector_finalizers(&self, object: &mut Value, options: &Options) -> bool {
        if self.resource.storage == "events" {
            return false;
        }
        let known: Vec<String> = elements(&object["metadata"]["finalizers"])
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let has = |name: &str| known.iter().any(|known| known == name);
        let orphan = match (options.propagation.as_str(), options.orphan) {
            ("Orphan", _) | ("", Some(true)) => true,
            ("", None) => has(ORPHAN) || self.orphans_by_default() && !has(FOREGROUND),
            _ => false,
        };
        let foreground = match (options.propagation.as_str(), options.orphan) {
            ("Foreground", _) => true,
            ("", None) => has(FOREGROUND),
            _ => false,
        };
        let mut wanted: Vec<String> = known
            .iter()
            .filter(|name| *name != ORPHAN && *name != FOREGROUND)
            .cloned()
            .collect();
        if orphan {
            wanted.push(ORPHAN.to_owned());
        }
        if foreground {
            wanted.push(FOREGROUND.to_owned());
        }
        let same = wanted.len() == known.len() && known.iter().all(|name| wanted.contains(name));
        if same {
            return false;
        }
        if wanted.is_empty() {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("finalizers");
            }
        } else {
            object["metadata"]["finalizers"] = json!(wanted);
        }
        true
    }

    fn orphans_by_default(&self) -> bool {
        ORPHANED_BY_DEFAULT.contains(&self.resource.storage.as_str())
    }

    /// Returns the same request about one object.
    fn about<'r>(&'r self, key: &'r Key) -> Request<'r> {
        Request {
            namespace: &key.namespace,
            name: &key.name,
            unnamed: true,
            ..*self
        }
    }

    /// Deletes all selected objects.
    pub(crate) fn delete_collection(&self, state: &mut State) -> Result<Answer, Failure> {
        let filter = self.filter()?;
        let options = self.delete_options()?;
        let keys: Vec<Key> = state
            .list(&self.resource.storage, self.namespace)
            .filter(|(_, object)| filter.matches(object))
            .map(|(key, _)| key.clone())
            .collect();
        let answer = self.list(state)?;
        if webhooks::are_there(state) {
            // all are asked before the first object goes, because a request that waits for an answer is performed again
            let mut unanswered = None;
            for key in &keys {
                let request = self.about(key);
                let before = Arc::clone(request.existing(state)?);
                let asked = request.ask_before_deletion(state, &before, &options);
                unanswered = asked.err().filter(|_| self.calls.are_open()).or(unanswered);
            }
            if let Some(unanswered) = unanswered {
                return Err(unanswered);
            }
        }
        for key in &keys {
            self.about(key).delete_with(state, &options)?;
        }
        Ok(answer)
    }
}

enum Grace {
    /// A deletion with the same or a shorter grace period is already under way.
    Pending,
    /// The grace period is over.
    Ended,
    /// The object has this many seconds from now on.
    Seconds(i64),
}

/// Sets the grace period of a pod. Only a pod that is bound to a node and has not finished has one.
fn grace(pod: &mut Value, options: &Options) -> Grace {
    let own = pod["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or_default();
    let mut seconds = options.grace.unwrap_or(own);
    let phase = &pod["status"]["phase"];
    let scheduled = pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    if !scheduled || phase == "Failed" || phase == "Succeeded" {
        seconds = 0;
    } else if seconds < 0 {
        seconds = 1;
    }
    let metadata = &mut pod["metadata"];
    let Some(ends) = metadata["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok())
    else {
        let ends = Timestamp::now()
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        metadata["deletionTimestamp"] = json!(instant(ends));
        metadata["deletionGracePeriodSeconds"] = json!(seconds);
        count(metadata);
        return Grace::Seconds(seconds);
    };
    let had = metadata["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or_default();
    if had == 0 {
        return Grace::Ended;
    }
    if seconds >= had {
        return Grace::Pending;
    }
    let ends = ends
        .checked_sub(SignedDuration::from_secs(had - seconds))
        .unwrap_or(ends);
    metadata["deletionTimestamp"] = json!(instant(ends));
    metadata["deletionGracePeriodSeconds"] = json!(seconds);
    Grace::Seconds(seconds)
}
