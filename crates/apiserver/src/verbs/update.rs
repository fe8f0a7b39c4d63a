//! Replacement of objects that exist.

use std::sync::Arc;

use serde_json::{Value, json};

use super::certificates;
use super::create::CreatedBy;
use super::deletion::has_finalizers;
use super::request::{Answer, Request};
use crate::admission::policies::Operation;
use crate::admission::validation::{self, custom, meta};
use crate::admission::{extent, plugins, strategy};
use crate::failure::{Cause, Failure};
use crate::objects::apply::keep_times;
use crate::objects::events;
use crate::storage::{DEFINITIONS, Object, State};
use crate::values::fields::copy;
use crate::values::go::whole_numbers;
use crate::verbs::body::given_version;

/// Kinds that a replacement creates when the object does not exist.
const CREATED_BY_UPDATE: &[&str] = &[
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "endpoints",
    "events",
    "leases.coordination.k8s.io",
    "limitranges",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "runtimeclasses.node.k8s.io",
    "services",
];

/// Built-in kinds for which a replacement must name the version that it replaces.
const VERSION_REQUIRED: &[&str] = &[
    DEFINITIONS,
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "leases.coordination.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "poddisruptionbudgets.policy",
    "runtimeclasses.node.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "volumeattachments.storage.k8s.io",
];

/// Fields of the metadata that only the server writes.
const SERVER_METADATA: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "namespace",
];

impl Request<'_> {
    /// Replaces an object.
    pub(crate) fn replace(&self, state: &mut State) -> Result<Answer, Failure> {
        let object = self.parse()?;
        if let Err(failure) = self.check_name_and_namespace(&object) {
            // a body that cannot be decoded has no name
            self.admit(&mut object.clone())?;
            return Err(failure);
        }
        let unversioned = given_version(&object).is_ok_and(|version| version == 0);
        if self.existing(state).is_err() {
            if self.subresource.is_empty()
                && CREATED_BY_UPDATE.contains(&self.resource.storage.as_str())
            {
                return self.create_object(state, object, CreatedBy::Update);
            }
        } else if unversioned
            && (self.resource.custom.is_some()
                || VERSION_REQUIRED.contains(&self.resource.storage.as_str()))
        {
            // unlike other causes, this one names the resource and not the kind
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), why);
            return Err(Failure::invalid(&self.subject(), &[cause]));
        }
        self.write(state, object)
    }

    /// Writes the new state of an object.
    pub(super) fn write(&self, state: &mut State, mut object: Value) -> Result<Answer, Failure> {
        let before = self.object_before_write(state)?;
        let clears_owners = object["metadata"]["managedFields"]
            .as_array()
            .is_some_and(Vec::is_empty);
        let warnings = self.admit(&mut object)?;
        if clears_owners {
            // an empty list asks to clear the owners, a missing one does not
            object["metadata"]["managedFields"] = json!([]);
        }
        if events::is_in_events_group(self.resource) {
            self.track(Some(&self.in_requested_version(&before)), &mut object);
        } else {
            self.track(Some(&before), &mut object);
        }
        self.keep(state, &before, object, warnings)
    }

    /// Stores the new state of an object, with its field owners.
    pub(super) fn keep(
        &self,
        state: &mut State,
        before: &Arc<Object>,
        mut object: Value,
        mut warnings: Vec<String>,
    ) -> Result<Answer, Failure> {
        events::to_core_form(self.resource, &mut object);
        self.check_name_and_namespace(&object)?;
        self.check_version(before, &object)?;
        let marks = meta::deletion_marks(self.resource, before, &object);
        for field in SERVER_METADATA {
            copy(&before["metadata"], &mut object["metadata"], field);
        }
        object["apiVersion"] = before["apiVersion"].clone();
        let attempt = self.attempt(Some(before));
        let told = self.change(state, &attempt, Operation::Update, &mut object, &[]);
        warnings.extend(told.map_err(|failure| failure.after_all(&warnings))?);
        let given = certificates::given(self.resource, &object);
        strategy::prepare_update(
            self.resource,
            state,
            self.subresource,
            before,
            &mut object,
            self.dry_run(),
        )?;
        certificates::prepare_update(self.resource, self.subresource, before, &given, &mut object);
        self.tidy(&mut object);
        let mut causes = validation::of_change(self.resource, self.subresource, before, &object);
        causes.extend(marks);
        causes.extend(custom::validate(
            self.resource,
            self.subresource,
            Some(before),
            &object,
            &causes,
        ));
        causes.extend(certificates::check(
            self.resource,
            self.subresource,
            before,
            &object,
        ));
        if !causes.is_empty() {
            return Err(self.invalid(&object, &causes).after_all(&warnings));
        }
        if self.resource.custom.is_some() {
            warnings.extend(meta::finalizer_warnings(Some(before), &object));
        }
        if self.subresource.is_empty() {
            warnings.extend(validation::warnings::of(
                self.resource,
                Some(before),
                &object,
            ));
        }
        // a scale is asked about as such, before it becomes a change of the object
        if self.subresource != "scale" {
            let asked = self.ask_policies(state, attempt, Operation::Update, Some(&object));
            warnings.extend(asked.map_err(|failure| failure.after_all(&warnings))?);
        }
        if self.subresource.is_empty() {
            let told = extent::check(self.ignored, self.resource, Some(before), &object);
            warnings.extend(told?);
        }
        if plugins::is_resize(&attempt) {
            plugins::charge(state, &attempt, &object, self.dry_run())?;
        }
        keep_times(before, &mut object);
        whole_numbers(&mut object);
        let stored = self.existing(state)?;
        let object = self.in_storage_version(object);
        let is_same = object == *stored.value() && !state.is_stored_without_defaults(&self.key());
        if is_same || self.dry_run() {
            return Ok(Answer {
                code: 200,
                body: self.in_requested_version(&object),
                warnings,
            });
        }
        let may_go = object["metadata"]["deletionTimestamp"].is_string()
            && object["metadata"]["deletionGracePeriodSeconds"]
                .as_i64()
                .unwrap_or_default()
                == 0;
        if may_go && !has_finalizers(&object) {
            state.remove(&self.key());
            let mut object = object;
            // the last state was never stored, so it shows the version before
            copy(
                &before["metadata"],
                &mut object["metadata"],
                "resourceVersion",
            );
            return Ok(Answer {
                code: 200,
                body: self.in_requested_version(&object),
                warnings,
            });
        }
        let written = state.put(self.key(), object);
        Ok(Answer {
            code: 200,
            body: self.in_requested_version(&written),
            warnings,
        })
    }

    /// Refuses a write that is based on another object or another version.
    fn check_version(&self, before: &Value, object: &Value) -> Result<(), Failure> {
        let given = object["metadata"]["uid"].as_str().unwrap_or_default();
        let known = before["metadata"]["uid"].as_str().unwrap_or_default();
        if !given.is_empty() && given != known && !self.content_type.contains("patch") {
            let namespace = match self.namespace {
                "" => String::new(),
                namespace => format!("{namespace}/"),
            };
            let group = match &self.resource.custom {
                Some(_) => format!("{}/", self.resource.group),
                None => String::new(),
            };
            // a request that is only tried does not come as far as the storage
            let root = if self.dry_run() { "" } else { "/registry" };
            // the storage knows some kinds by their first names
            let plural = match self.resource.storage.as_str() {
                "endpoints" => "services/endpoints",
                "ingresses.networking.k8s.io" => "ingress",
                "nodes" => "minions",
                "replicationcontrollers" => "controllers",
                "services" => "services/specs",
                _ => &self.resource.plural,
            };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {root}/{group}{plural}/{namespace}{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {known}",
                self.name
            );
            return Err(Failure::conflict(&self.subject(), &why));
        }
        let given = given_version(object)?;
        if given > 0 && given != given_version(before)? {
            return Err(Failure::modified(&self.subject()));
        }
        Ok(())
    }
}
