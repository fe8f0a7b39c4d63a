//! Reviews: questions about a user and the user's permissions. A client asks by creating an object that is never stored.

use serde_json::{Value, json};

use super::request::{Answer, Request};
use crate::access::authn::{self, Users};
use crate::access::authz::{self, Attributes};
use crate::access::identity::{Identity, User};
use crate::admission::validation::reviews;
use crate::failure::{Failure, Subject};
use crate::storage::Store;
use crate::values::fields::elements;

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
    let audiences: Vec<String> = elements(&review["spec"]["audiences"])
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
    let given = review["metadata"]["namespace"].as_str().unwrap_or_default();
    if kind == "LocalSubjectAccessReview" && !given.is_empty() && given != request.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let causes = reviews::access(kind, review, request.namespace);
    if !causes.is_empty() {
        let subject = Subject {
            group: "authorization.k8s.io",
            resource: "",
            name: "",
        };
        return Err(Failure::invalid(&subject, &causes));
    }
    let spec = &review["spec"];
    let user = if kind == "SelfSubjectAccessReview" {
        request.identity.user.clone()
    } else {
        reviewed_user(spec)
    };
    let allowed = authz::allows(&store.lock(), &user, &attributes(spec));
    review["status"] = json!({"allowed": allowed});
    Ok(())
}

/// Returns the user that a review names.
fn reviewed_user(spec: &Value) -> User {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups = elements(&spec["groups"]);
    User {
        name: text(&spec["user"]),
        groups: groups.map(text).collect(),
        uid: text(&spec["uid"]),
    }
}

/// Returns what a review asks permission for.
fn attributes(spec: &Value) -> Attributes<'_> {
    let text = |part: &str, field: &str| spec[part][field].as_str().unwrap_or_default();
    if spec["nonResourceAttributes"].is_object() {
        let of_path = |field| text("nonResourceAttributes", field);
        return Attributes {
            verb: of_path("verb"),
            path: of_path("path"),
            ..Attributes::default()
        };
    }
    let of_resource = |field| text("resourceAttributes", field);
    Attributes {
        verb: of_resource("verb"),
        group: of_resource("group"),
        resource: of_resource("resource"),
        subresource: of_resource("subresource"),
        namespace: of_resource("namespace"),
        name: of_resource("name"),
        ..Attributes::default()
    }
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
