//! The `scale` subresource: the number of replicas, in one form for all kinds.

use serde_json::{Value, json};

use super::request::{Answer, Request};
use crate::admission::policies::Operation;
use crate::failure::{Cause, Failure};
use crate::objects::apply::{owners_of_scale, owners_with_scale};
use crate::objects::selectors;
use crate::storage::State;
use crate::values::fields::copy;

/// Paths of the numbers and the selector in an object.
struct Paths<'a> {
    replicas: &'a str,
    actual: &'a str,
    /// The selector: a text in custom resources, a structure in built-in ones.
    selector: &'a str,
}

impl Request<'_> {
    fn paths(&self) -> Paths<'_> {
        match self
            .resource
            .custom
            .as_ref()
            .and_then(|custom| custom.scale.as_ref())
        {
            Some([replicas, actual, selector]) => Paths {
                replicas,
                actual,
                selector,
            },
            None => Paths {
                replicas: ".spec.replicas",
                actual: ".status.replicas",
                selector: ".spec.selector",
            },
        }
    }

    fn scale_of(&self, object: &Value) -> Value {
        let paths = self.paths();
        let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or_default();
        let selector = at(object, paths.selector);
        let selector = match selector {
            Some(Value::String(text)) => text.clone(),
            // the selector of the oldest kind is a map of labels
            Some(labels) if self.resource.storage == "replicationcontrollers" => {
                selectors::text(&json!({"matchLabels": labels}))
            }
            Some(selector) => selectors::text(selector),
            None => String::new(),
        };
        let mut metadata = json!({});
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            let value = &object["metadata"][field];
            if !value.is_null() {
                metadata[field] = value.clone();
            }
        }
        let mut scale = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": {}, "status": {"replicas": number(paths.actual)},
        });
        let replicas = number(paths.replicas);
        if replicas != 0 {
            scale["spec"]["replicas"] = json!(replicas);
        }
        if !selector.is_empty() {
            scale["status"]["selector"] = json!(selector);
        }
        scale
    }

    /// Reads the numbers.
    pub(crate) fn get_scale(&self, state: &State) -> Result<Answer, Failure> {
        Ok(Answer::ok(self.scale_of(self.existing(state)?)))
    }

    /// Returns the subresource before a write, with its field owners.
    fn owned_scale_of(&self, object: &Value) -> Value {
        let mut scale = self.scale_of(object);
        let owners = owners_of_scale(&object["metadata"]["managedFields"], self.paths().replicas);
        if owners.as_array().is_some_and(|owners| !owners.is_empty()) {
            scale["metadata"]["managedFields"] = owners;
        }
        scale
    }

    /// Sets the desired number.
    pub(crate) fn replace_scale(&self, state: &mut State) -> Result<Answer, Failure> {
        let subresource_request = self.for_subresource_kind()?;
        let scale = subresource_request.parse()?;
        subresource_request.check_name_and_namespace(&scale)?;
        let before = self.owned_scale_of(self.existing(state)?);
        self.write_scale(state, &before, scale)
    }

    /// Patches or applies the desired number.
    pub(crate) fn patch_scale(&self, state: &mut State) -> Result<Answer, Failure> {
        let before = self.owned_scale_of(self.existing(state)?);
        let scale = self.for_subresource_kind()?.patched_object(&before)?;
        self.write_scale(state, &before, scale)
    }

    fn write_scale(
        &self,
        state: &mut State,
        before: &Value,
        mut scale: Value,
    ) -> Result<Answer, Failure> {
        let subresource_request = self.for_subresource_kind()?;
        let mut warnings = subresource_request.admit(&mut scale)?;
        subresource_request.track(Some(before), &mut scale);
        let wanted = &scale["spec"]["replicas"];
        let number = wanted.as_i64().unwrap_or_default();
        // the number of a custom object is checked together with the object
        if number < 0 && self.resource.custom.is_none() {
            let cause = Cause::invalid(
                "spec.replicas",
                wanted,
                "must be greater than or equal to 0",
            );
            return Err(subresource_request.invalid(&scale, &[cause]));
        }
        warnings.extend(self.change_scale(state, before, &mut scale)?);
        let number = scale["spec"]["replicas"].as_i64().unwrap_or_default();
        let existing = self.object_before_write(state)?;
        let mut object = self.in_requested_version(&existing);
        for field in ["resourceVersion", "uid"] {
            copy(&scale["metadata"], &mut object["metadata"], field);
        }
        let path = self.paths().replicas.to_owned();
        object["metadata"]["managedFields"] = owners_with_scale(
            &existing["metadata"]["managedFields"],
            &scale["metadata"]["managedFields"],
            &path,
            &self.resource.api_version(),
        );
        let mut place = &mut object;
        for step in path.trim_start_matches('.').split('.') {
            place = &mut place[step];
        }
        *place = json!(number);
        // those who may refuse it see both scales as they are read
        let (was, mut will_be) = (self.scale_of(&existing), self.scale_of(&object));
        for field in ["resourceVersion", "uid"] {
            copy(&existing["metadata"], &mut will_be["metadata"], field);
        }
        warnings.extend(self.ask_policies(
            state,
            self.attempt(Some(&was)),
            Operation::Update,
            Some(&will_be),
        )?);
        let mut answer = self.keep(state, &existing, object, warnings)?;
        answer.body = self.scale_of(&answer.body);
        Ok(answer)
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return None;
    }
    path.trim_start_matches('.')
        .split('.')
        .try_fold(object, |value, step| value.get(step))
}
