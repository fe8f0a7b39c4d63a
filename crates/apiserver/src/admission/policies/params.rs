//! Parameters of policies: objects of a kind that the policy names, chosen by the binding.

use serde_json::Value;

use crate::objects::selectors::selects;
use crate::registry::built_in;
use crate::storage::{DEFINITIONS, State};
use crate::values::fields::elements;

/// The kind of a policy's parameters.
#[derive(Debug)]
pub(super) enum Kind {
    /// The policy has no parameters.
    None,
    /// Objects of a kind that the server knows.
    Of { storage: String, namespaced: bool },
}

impl Kind {
    /// Finds the kind that a policy names; the error says that there is none.
    pub(super) fn of(state: &State, given: &Value) -> Result<Self, String> {
        if !given.is_object() {
            return Ok(Self::None);
        }
        let text = |field: &str| given[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if let Some(known) = built_in().of_kind(api_version, kind) {
            return Ok(Self::Of {
                storage: known.storage.clone(),
                namespaced: known.namespaced,
            });
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let defined = state.list(DEFINITIONS, "").find(|(_, definition)| {
            let spec = &definition["spec"];
            let mut versions = elements(&spec["versions"]);
            spec["group"] == group
                && spec["names"]["kind"] == kind
                && versions.any(|known| known["name"] == version && known["served"] == true)
        });
        match defined {
            Some((key, definition)) => Ok(Self::Of {
                storage: key.name.clone(),
                namespaced: definition["spec"]["scope"] == "Namespaced",
            }),
            None => Err(format!(
                "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
            )),
        }
    }

    /// Returns the parameters that a binding chooses, `Null` where it uses none; the error says why it may not be used.
    pub(super) fn find(
        &self,
        state: &State,
        reference: &Value,
        namespace: &str,
    ) -> Result<Vec<Value>, String> {
        let Self::Of {
            storage,
            namespaced,
        } = self
        else {
            return Ok(vec![Value::Null]);
        };
        if !reference.is_object() {
            return Ok(vec![Value::Null]);
        }
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let namespace = match (namespaced, text("namespace")) {
            (true, "") if namespace.is_empty() => {
                return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
            }
            (true, "") => namespace,
            (false, given) if !given.is_empty() => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                        .into(),
                );
            }
            (_, given) => given,
        };
        let params: Vec<Value> = match text("name") {
            "" => state
                .list(storage, namespace)
                .filter(|(_, object)| {
                    selects(&reference["selector"], &object["metadata"]["labels"])
                })
                .map(|(_, object)| Value::clone(object))
                .collect(),
            name => state
                .get(storage, namespace, name)
                .map(|object| Value::clone(object))
                .into_iter()
                .collect(),
        };
        if params.is_empty() && text("parameterNotFoundAction") == "Deny" {
            return Err(
                "no params found for policy binding with `Deny` parameterNotFoundAction".into(),
            );
        }
        Ok(params)
    }
}
