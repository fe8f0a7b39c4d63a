//! The `scale` subresource: how many replicas something has, in one form for all kinds.

use serde_json::{Value, json};

use super::{Answer, Request};
use crate::failure::{Cause, Failure, Subject};
use crate::selectors;
use crate::store::State;

/// Where the numbers of a kind are.
struct Paths<'a> {
    replicas: &'a str,
    actual: &'a str,
    /// Where the selector is: as a text for custom resources, as what it is for built-in ones.
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
            // the oldest kind has nothing but labels there
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

    /// Sets the number that is wanted.
    pub(crate) fn replace_scale(&self, state: &mut State) -> Result<Answer, Failure> {
        let scale = self.parse()?;
        if scale["metadata"]["name"] != self.name {
            return Err(Failure::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                scale["metadata"]["name"].as_str().unwrap_or_default(),
                self.name
            )));
        }
        self.write_scale(state, &scale)
    }

    /// Patches the number that is wanted.
    pub(crate) fn patch_scale(&self, state: &mut State) -> Result<Answer, Failure> {
        let before = self.scale_of(self.existing(state)?);
        let scale = self.patched(before)?;
        self.write_scale(state, &scale)
    }

    fn write_scale(&self, state: &mut State, scale: &Value) -> Result<Answer, Failure> {
        let wanted = &scale["spec"]["replicas"];
        let number = wanted.as_i64().unwrap_or_default();
        if number < 0 {
            let subject = Subject {
                group: "autoscaling",
                resource: "Scale",
                name: self.name,
            };
            let cause = Cause::invalid(
                "spec.replicas",
                wanted,
                "must be greater than or equal to 0",
            );
            return Err(Failure::invalid(&subject, &[cause]));
        }
        let mut object = self.present(self.existing(state)?);
        object["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
        let path = self.paths().replicas.to_owned();
        let mut place = &mut object;
        for step in path.trim_start_matches('.').split('.') {
            place = &mut place[step];
        }
        *place = json!(number);
        let mut answer = self.write(state, object)?;
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
