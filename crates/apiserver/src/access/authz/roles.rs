//! Role-based access control: what the roles that are bound to a user allow.

use serde_json::Value;

use super::attributes::Attributes;
use crate::access::identity::User;
use crate::objects::selectors;
use crate::storage::State;
use crate::values::fields::elements;

/// Returns whether a role that is bound to the user allows the request.
pub(super) fn by_roles(state: &State, user: &User, attributes: &Attributes<'_>) -> bool {
    if user.groups.iter().any(|group| group == "system:masters") {
        return true;
    }
    let cluster = bindings(state, "clusterrolebindings", "", user);
    let local = (!attributes.namespace.is_empty())
        .then(|| bindings(state, "rolebindings", attributes.namespace, user))
        .into_iter()
        .flatten();
    cluster.chain(local).any(|binding| {
        role_of(state, binding, attributes.namespace)
            .is_some_and(|role| rules_in(state, role).any(|rule| rule_allows(rule, attributes)))
    })
}

/// Returns the rules of a user in a namespace, cluster-wide ones first.
pub(crate) fn rules_of<'a>(state: &'a State, user: &'a User, namespace: &'a str) -> Vec<&'a Value> {
    let cluster = bindings(state, "clusterrolebindings", "", user);
    let local = bindings(state, "rolebindings", namespace, user);
    cluster
        .chain(local)
        .filter_map(|binding| role_of(state, binding, namespace))
        .flat_map(|role| rules_in(state, role))
        .collect()
}

/// Returns the rules of a role. An aggregated role has the rules of its parts, even before the controller has written them into it.
pub(super) fn rules_in<'a>(
    state: &'a State,
    role: &'a Value,
) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
    let own = elements(&role["rules"]);
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    let Some(selectors) = selectors.filter(|_| role["rules"].as_array().is_none_or(Vec::is_empty))
    else {
        return Box::new(own);
    };
    let parts = state
        .list("clusterroles.rbac.authorization.k8s.io", "")
        .map(|(_, part)| part.value())
        .filter(|part| part["metadata"]["name"] != role["metadata"]["name"])
        .filter(move |part| {
            let labels = &part["metadata"]["labels"];
            selectors
                .iter()
                .any(|selector| selectors::selects(selector, labels))
        })
        .flat_map(|part| rules_in(state, part));
    Box::new(parts)
}

/// Returns the role that a binding refers to.
pub(super) fn role_of<'a>(state: &'a State, binding: &Value, namespace: &str) -> Option<&'a Value> {
    let role = &binding["roleRef"];
    let name = role["name"].as_str().unwrap_or_default();
    let found = if role["kind"] == "ClusterRole" {
        state.get("clusterroles.rbac.authorization.k8s.io", "", name)
    } else {
        state.get("roles.rbac.authorization.k8s.io", namespace, name)
    };
    found.map(|role| role.value())
}

fn bindings<'a>(
    state: &'a State,
    kind: &'static str,
    namespace: &'a str,
    user: &'a User,
) -> impl Iterator<Item = &'a Value> {
    let resource = match kind {
        "rolebindings" => "rolebindings.rbac.authorization.k8s.io",
        _ => "clusterrolebindings.rbac.authorization.k8s.io",
    };
    state
        .list(resource, namespace)
        .map(|(_, binding)| binding.value())
        .filter(move |binding| {
            let subjects = elements(&binding["subjects"]);
            subjects
                .into_iter()
                .any(|subject| is_subject(subject, user))
        })
}

fn is_subject(subject: &Value, user: &User) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => user.name == name,
        Some("Group") => user.groups.iter().any(|group| group == name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or_default();
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

/// Returns whether a rule of a role allows the request.
pub(super) fn rule_allows(rule: &Value, attributes: &Attributes<'_>) -> bool {
    let has = |field: &str, wanted: &str| {
        let list = elements(&rule[field]);
        list.filter_map(Value::as_str)
            .any(|value| value == "*" || value == wanted)
    };
    if !has("verbs", attributes.verb) {
        return false;
    }
    if !attributes.path.is_empty() {
        let list = elements(&rule["nonResourceURLs"]);
        return list.filter_map(Value::as_str).any(|url| {
            url.strip_suffix('*')
                .map_or(url == attributes.path, |start| {
                    attributes.path.starts_with(start)
                })
        });
    }
    let resource = if attributes.subresource.is_empty() {
        has("resources", attributes.resource)
    } else {
        has(
            "resources",
            &format!("{}/{}", attributes.resource, attributes.subresource),
        ) || has("resources", &format!("*/{}", attributes.subresource))
    };
    let named = rule["resourceNames"]
        .as_array()
        .is_none_or(|names| names.is_empty() || names.iter().any(|name| name == attributes.name));
    resource && has("apiGroups", attributes.group) && named
}
