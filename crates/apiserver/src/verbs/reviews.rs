//! Reviews: questions about a user and the user's permissions. A client asks by creating an object that is never stored.

use serde_json::{Value, json};

use super::request::{Answer, Request};
use crate::access::authn::{self, Users};
use crate::access::authz::{self, Attributes};
use crate::access::identity::{Identity, User};
use crate::failure::{Cause, Failure, Subject};
use crate::storage::Store;

/// Returns whether a resource is one of the reviews.
pub(crate) fn is_review(storage: &str) -> bool {
    [
        "selfsubjectreviews.authentication.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
    ]
    .contains(&storage)
}

/// Answers a review.
pub(crate) fn answer(
    store: &Store,
    users: &Users,
    request: &Request<'_>,
) -> Result<Answer, Failure> {
    let (mut review, warnings) = request.review()?;
    let kind = request.resource.kind.as_str();
    match kind {
        "SelfSubjectReview" => {
            review["status"] = json!({"userInfo": user_info(request.identity)});
        }
        "TokenReview" => token(store, users, &mut review)?,
        "SelfSubjectRulesReview" => rules(store, request.identity, &mut review)?,
        _ => access(store, request, kind, &mut review)?,
    }
    Ok(Answer {
        code: 201,
        body: request.in_requested_version(&review),
        warnings,
    })
}

fn user_info(identity: &Identity) -> Value {
    let mut info = json!({});
    if !identity.user.name.is_empty() {
        info["username"] = json!(identity.user.name);
    }
    if !identity.user.uid.is_empty() {
        info["uid"] = json!(identity.user.uid);
    }
    if !identity.user.groups.is_empty() {
        info["groups"] = json!(identity.user.groups);
    }
    if !identity.extra.is_empty() {
        info["extra"] = json!(identity.extra);
    }
    info
}

fn token(store: &Store, users: &Users, review: &mut Value) -> Result<(), Failure> {
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::bad_request(
            "token is required for TokenReview in authentication",
        ));
    }
    let audiences: Vec<String> = review["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    review["status"] = match authn::review(store, users, token, &audiences) {
        Ok((identity, valid_audiences)) => {
            let mut status = json!({"authenticated": true, "user": user_info(&identity)});
            if !valid_audiences.is_empty() {
                status["audiences"] = json!(valid_audiences);
            }
            status
        }
        Err(error) => json!({"user": {}, "error": error}),
    };
    Ok(())
}

fn access(
    store: &Store,
    request: &Request<'_>,
    kind: &str,
    review: &mut Value,
) -> Result<(), Failure> {
    let spec = &review["spec"];
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let refuse = |cause: Cause| {
        let subject = Subject {
            group: "authorization.k8s.io",
            resource: "",
            name: "",
        };
        Err(Failure::invalid(&subject, &[cause]))
    };
    if resource.is_object() && path.is_object() {
        let written = format!("{{\"Path\":{},\"Verb\":{}}}", path["path"], path["verb"]);
        let cause = Cause::invalid(
            "spec.nonResourceAttributes",
            &Value::Null,
            "cannot be specified in combination with resourceAttributes",
        );
        return refuse(cause.with_value(&written));
    }
    if resource.is_null() && path.is_null() {
        return refuse(Cause::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let user = if kind == "SelfSubjectAccessReview" {
        request.identity.user.clone()
    } else {
        let groups: Vec<String> = spec["groups"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        if text(&spec["user"]).is_empty() && groups.is_empty() {
            return refuse(Cause::invalid(
                "spec.user",
                &json!(""),
                "at least one of user or group must be specified",
            ));
        }
        User {
            name: text(&spec["user"]),
            groups,
            uid: text(&spec["uid"]),
        }
    };
    if kind == "LocalSubjectAccessReview" && resource["namespace"] != request.namespace {
        return refuse(Cause::invalid(
            "spec.resourceAttributes.namespace",
            &resource["namespace"],
            "must match metadata.namespace",
        ));
    }
    let parts = [
        "verb",
        "group",
        "resource",
        "subresource",
        "namespace",
        "name",
    ]
    .map(|field| text(&resource[field]));
    let (url, url_verb) = (text(&path["path"]), text(&path["verb"]));
    let [verb, group, plural, subresource, namespace, name] = &parts;
    let attributes = if path.is_object() {
        Attributes {
            verb: &url_verb,
            path: &url,
            ..Attributes::default()
        }
    } else {
        Attributes {
            verb,
            group,
            resource: plural,
            subresource,
            namespace,
            name,
            ..Attributes::default()
        }
    };
    let allowed = authz::allows(&store.lock(), &user, &attributes);
    review["status"] = json!({"allowed": allowed});
    Ok(())
}

fn rules(store: &Store, identity: &Identity, review: &mut Value) -> Result<(), Failure> {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(Failure::bad_request("no namespace on request"));
    }
    let state = store.lock();
    let mut resources = Vec::new();
    let mut paths = Vec::new();
    for rule in authz::rules_of(&state, &identity.user, namespace) {
        let list = |field: &str| rule[field].as_array().is_some_and(|list| !list.is_empty());
        if list("resources") {
            let mut entry = json!({"verbs": rule["verbs"]});
            for field in ["apiGroups", "resources", "resourceNames"] {
                if list(field) {
                    entry[field] = rule[field].clone();
                }
            }
            resources.push(entry);
        }
        if list("nonResourceURLs") {
            paths.push(json!({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}));
        }
    }
    review["spec"] = json!({});
    review["status"] =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    Ok(())
}
