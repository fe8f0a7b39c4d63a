//! Prevents privilege escalation: users grant only what they have themselves, unless they may `escalate` the role or `bind` it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::roles::{role_of, rules_in};
use super::{Attributes, allows, rules_of};
use crate::access::identity::User;
use crate::storage::State;
use crate::values::fields::elements;

const GROUP: &str = "rbac.authorization.k8s.io";

/// One permission without its verb: group, resource and name of the object, or a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permission {
    group: Option<String>,
    path: Option<String>,
    resource: Option<String>,
    name: Option<String>,
}

fn texts(rule: &Value, field: &str) -> Vec<String> {
    let list = elements(&rule[field]);
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Splits a rule into single permissions, each with its verb.
fn permissions(rule: &Value) -> Vec<(Permission, String)> {
    let mut permissions = Vec::new();
    let verbs = texts(rule, "verbs");
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            let mut names: Vec<Option<String>> =
                texts(rule, "resourceNames").into_iter().map(Some).collect();
            if names.is_empty() {
                names.push(None);
            }
            for name in names {
                for verb in &verbs {
                    let permission = Permission {
                        group: Some(group.clone()),
                        path: None,
                        resource: Some(resource.clone()),
                        name: name.clone(),
                    };
                    permissions.push((permission, verb.clone()));
                }
            }
        }
    }
    for path in texts(rule, "nonResourceURLs") {
        for verb in &verbs {
            let permission = Permission {
                group: None,
                path: Some(path.clone()),
                resource: None,
                name: None,
            };
            permissions.push((permission, verb.clone()));
        }
    }
    permissions
}

fn covers(rule: &Value, permission: &Permission, verb: &str) -> bool {
    let has = |field: &str, wanted: &str| {
        texts(rule, field)
            .iter()
            .any(|known| known == "*" || known == wanted)
    };
    if !has("verbs", verb) {
        return false;
    }
    if let Some(path) = &permission.path {
        return texts(rule, "nonResourceURLs").iter().any(|known| {
            known == "*"
                || known == path
                || known
                    .strip_suffix('*')
                    .is_some_and(|start| path.starts_with(start))
        });
    }
    let wanted = permission.resource.as_deref().unwrap_or_default();
    let any_subresource = wanted
        .split_once('/')
        .is_some_and(|(_, subresource)| has("resources", &format!("*/{subresource}")));
    let names = texts(rule, "resourceNames");
    has("apiGroups", permission.group.as_deref().unwrap_or_default())
        && (has("resources", wanted) || any_subresource)
        && (names.is_empty()
            || permission
                .name
                .as_ref()
                .is_some_and(|name| names.contains(name)))
}

/// Returns the rules that the user lacks, in the words of the refusal; `None` when there are none.
fn missing(state: &State, user: &User, namespace: &str, rules: &[Value]) -> Option<String> {
    let own = rules_of(state, user, namespace);
    let mut missing_verbs: BTreeMap<Permission, Vec<String>> = BTreeMap::new();
    for (permission, verb) in rules.iter().flat_map(permissions) {
        if !own.iter().any(|rule| covers(rule, &permission, &verb)) {
            let verbs = missing_verbs.entry(permission).or_default();
            if !verbs.contains(&verb) {
                verbs.push(verb);
            }
        }
    }
    if missing_verbs.is_empty() {
        return None;
    }
    let lines: Vec<String> = missing_verbs
        .iter()
        .map(|(permission, verbs)| {
            let mut fields = Vec::new();
            for (name, value) in [
                ("APIGroups", &permission.group),
                ("Resources", &permission.resource),
                ("NonResourceURLs", &permission.path),
                ("ResourceNames", &permission.name),
            ] {
                if let Some(value) = value {
                    fields.push(format!("{name}:[{value:?}]"));
                }
            }
            let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
            fields.push(format!("Verbs:[{}]", verbs.join(" ")));
            format!("{{{}}}", fields.join(", "))
        })
        .collect();
    let groups: Vec<String> = user
        .groups
        .iter()
        .map(|group| format!("{group:?}"))
        .collect();
    Some(format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        lines.join("\n")
    ))
}

fn is_allowed(
    state: &State,
    user: &User,
    verb: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> bool {
    let attributes = Attributes {
        verb,
        group: GROUP,
        resource,
        namespace,
        name,
        ..Attributes::default()
    };
    allows(state, user, &attributes)
}

/// Returns why a user may not write a role with these rules.
pub(crate) fn role_refusal(
    state: &State,
    user: &User,
    resource: &str,
    namespace: &str,
    role: &Value,
) -> Option<String> {
    let name = role["metadata"]["name"].as_str().unwrap_or_default();
    if is_allowed(state, user, "escalate", resource, namespace, name) {
        return None;
    }
    let rules = role["rules"].as_array().cloned().unwrap_or_default();
    missing(state, user, namespace, &rules)
}

/// Why a user may not bind a role.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The role does not exist.
    NoRole(String),
    /// The role has permissions that the user lacks.
    Grants(String),
}

/// Returns why a user may not write a binding.
pub(crate) fn binding_refusal(
    state: &State,
    user: &User,
    namespace: &str,
    binding: &Value,
) -> Option<Refusal> {
    let role = &binding["roleRef"];
    let name = role["name"].as_str().unwrap_or_default();
    let resource = if role["kind"] == "ClusterRole" {
        "clusterroles"
    } else {
        "roles"
    };
    if is_allowed(state, user, "bind", resource, namespace, name) {
        return None;
    }
    let Some(found) = role_of(state, binding, namespace) else {
        return Some(Refusal::NoRole(name.to_owned()));
    };
    let rules: Vec<Value> = rules_in(state, found).cloned().collect();
    missing(state, user, namespace, &rules).map(Refusal::Grants)
}
