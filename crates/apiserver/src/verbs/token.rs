//! The `token` subresource of service accounts.

use serde_json::{Value, json};

use super::request::{Answer, Request};
use crate::access::accounts::{Accounts, Claims, ObjectReference, Private, unix_time};
use crate::admission::plugins;
use crate::admission::policies::Operation;
use crate::failure::{Cause, Failure, Subject};
use crate::storage::State;
use crate::values::fields::{copy, items, set_default};
use crate::values::times::{instant, now};

const GROUP: &str = "authentication.k8s.io";
/// Default lifetime of a token, in seconds.
const DEFAULT_LIFETIME: i64 = 3600;
/// Shortest lifetime of a token, in seconds.
const MIN_LIFETIME: i64 = 600;
/// Lifetime that pods request, in seconds. Such a token lasts longer, so that clients that do not renew it still work.
const POD_LIFETIME: i64 = 3607;
/// Extended lifetime of such a token, in seconds: a year.
const EXTENDED_LIFETIME: i64 = 365 * 24 * 3600;

impl Request<'_> {
    /// Issues a token for an account.
    pub(crate) fn token(&self, state: &State, accounts: &Accounts) -> Result<Answer, Failure> {
        let (mut request, mut warnings) = self.token_request()?;
        self.check_request(&request)?;
        let account = self.existing(state)?;
        plugins::admit(state, &self.attempt(None), &mut request)?;
        warnings.extend(self.ask_policies(
            state,
            self.attempt(None),
            Operation::Create,
            Some(&request),
        )?);
        let spec = &request["spec"];
        let lifetime = lifetime(spec)?;
        let audiences = audiences(spec, accounts);
        let account_uid = &account["metadata"]["uid"];
        let bound = spec["boundObjectRef"].clone();
        let mut private = Private {
            namespace: self.namespace.to_owned(),
            serviceaccount: ObjectReference {
                name: self.name.to_owned(),
                uid: account_uid.as_str().unwrap_or_default().to_owned(),
            },
            pod: None,
            secret: None,
            node: None,
            warnafter: None,
        };
        if bound.is_object() {
            self.bind_token(state, &bound, &mut private)?;
        }
        let at = unix_time();
        let mut ends = at + lifetime;
        if lifetime == POD_LIFETIME && private.pod.is_some() && audiences == [accounts.issuer()] {
            private.warnafter = Some(ends);
            ends = at + EXTENDED_LIFETIME;
        }
        let claims = Claims {
            aud: audiences.clone(),
            exp: ends,
            iat: at,
            iss: accounts.issuer().to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            nbf: at,
            sub: format!("system:serviceaccount:{}:{}", self.namespace, self.name),
            private,
        };
        let token = accounts.sign(&claims).map_err(Failure::internal)?;
        let expires = jiff::Timestamp::from_second(at + lifetime).unwrap_or(jiff::Timestamp::MAX);
        let mut body = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": self.name, "namespace": self.namespace,
                "uid": account_uid, "creationTimestamp": now()},
            "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": bound},
        });
        copy(&request["metadata"], &mut body["metadata"], "managedFields");
        body["status"] = json!({"token": token, "expirationTimestamp": instant(expires)});
        Ok(Answer {
            code: 201,
            body,
            warnings,
        })
    }

    /// Returns the request for a token in the body, with its defaults and its managed fields, and the warnings about it.
    fn token_request(&self) -> Result<(Value, Vec<String>), Failure> {
        let subresource_request = self.for_subresource_kind()?;
        let mut request = subresource_request.parse()?;
        let warnings = subresource_request.admit(&mut request)?;
        set_default(&mut request["spec"], "expirationSeconds", || {
            json!(DEFAULT_LIFETIME)
        });
        subresource_request.track(None, &mut request);
        for entry in items(&mut request["metadata"]["managedFields"]) {
            // the field is always present, even when empty
            if let Some(bound) = entry["fieldsV1"]["f:spec"].get_mut("f:boundObjectRef")
                && let Some(owned) = bound.as_object_mut()
            {
                owned.remove(".");
            }
        }
        Ok((request, warnings))
    }

    /// Checks that a request is about the account in the path.
    fn check_request(&self, request: &Value) -> Result<(), Failure> {
        let text = |field: &str| request["metadata"][field].as_str().unwrap_or_default();
        let (name, namespace) = (text("name"), text("namespace"));
        if !namespace.is_empty() && namespace != self.namespace {
            return Err(Failure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !name.is_empty() && name != self.name {
            let subject = Subject {
                group: GROUP,
                resource: "TokenRequest",
                name: self.name,
            };
            let why = "must match the service account name if specified";
            let cause = Cause::invalid("metadata.name", &json!(name), why);
            return Err(Failure::invalid(&subject, &[cause]));
        }
        Ok(())
    }

    /// Binds a token to the object with whose end it becomes invalid.
    fn bind_token(
        &self,
        state: &State,
        bound: &Value,
        private: &mut Private,
    ) -> Result<(), Failure> {
        let name = bound["name"].as_str().unwrap_or_default();
        let kind = bound["kind"].as_str().unwrap_or_default();
        let (resource, namespace) = match kind {
            "Pod" => ("pods", self.namespace),
            "Secret" => ("secrets", self.namespace),
            "Node" => ("nodes", ""),
            other => {
                let version = bound["apiVersion"].as_str().unwrap_or_default();
                let slash = if version.contains('/') { "" } else { "/" };
                return Err(Failure::bad_request(format!(
                    "cannot bind token to object of type {slash}{version}, Kind={other}"
                )));
            }
        };
        let subject = Subject {
            group: "",
            resource,
            name,
        };
        let object = state
            .get(resource, namespace, name)
            .ok_or_else(|| Failure::not_found(&subject))?;
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let given = bound["uid"].as_str().unwrap_or_default();
        if !given.is_empty() && given != uid {
            let subject = Subject {
                resource: kind,
                ..subject
            };
            return Err(Failure::conflict(
                &subject,
                &format!(
                    "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been deleted and then recreated"
                ),
            ));
        }
        let named = ObjectReference {
            name: name.to_owned(),
            uid: uid.to_owned(),
        };
        match kind {
            "Pod" => {
                if object["spec"]["serviceAccountName"] != self.name {
                    return Err(Failure::bad_request(format!(
                        "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                        self.name
                    )));
                }
                private.pod = Some(named);
                let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
                if let Some(found) = state.get("nodes", "", node) {
                    private.node = Some(ObjectReference {
                        name: node.to_owned(),
                        uid: found["metadata"]["uid"]
                            .as_str()
                            .unwrap_or_default()
                            .to_owned(),
                    });
                }
            }
            "Secret" => private.secret = Some(named),
            _ => private.node = Some(named),
        }
        Ok(())
    }
}

/// Returns the requested lifetime, in seconds.
fn lifetime(spec: &Value) -> Result<i64, Failure> {
    let lifetime = spec["expirationSeconds"]
        .as_i64()
        .unwrap_or(DEFAULT_LIFETIME);
    let problem = if lifetime < MIN_LIFETIME {
        "may not specify a duration less than 10 minutes"
    } else if lifetime > i64::from(u32::MAX) {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(lifetime);
    };
    let subject = Subject {
        group: GROUP,
        resource: "TokenRequest",
        name: "",
    };
    let cause = Cause::invalid("spec.expirationSeconds", &json!(lifetime), problem);
    Err(Failure::invalid(&subject, &[cause]))
}

/// Returns the requested audiences; without any, that of this server.
fn audiences(spec: &Value, accounts: &Accounts) -> Vec<String> {
    match spec["audiences"].as_array() {
        Some(list) if !list.is_empty() => list
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => vec![accounts.issuer().to_owned()],
    }
}
