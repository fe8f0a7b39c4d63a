//! The node authorizer: kubelets may read what concerns their own node and the pods bound to it, and report about both.

use serde_json::Value;

use super::attributes::Attributes;
use super::roles::rule_allows;
use crate::access::identity::User;
use crate::storage::State;
use crate::values::pods::all_containers;

/// Group and user name prefix of kubelets.
const GROUP: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";
/// The verbs of requests for one object.
const ONE_OBJECT: [&str; 5] = ["get", "create", "update", "patch", "delete"];

/// Why a request is denied; empty when no reason is given.
type Refusal = String;

/// Decides about a kubelet's request; `None` for any other user.
pub(super) fn allows(
    state: &State,
    user: &User,
    attributes: &Attributes<'_>,
) -> Option<Result<(), Refusal>> {
    let node = user.name.strip_prefix(PREFIX)?;
    if !user.groups.iter().any(|group| group == GROUP) {
        return None;
    }
    Some(decide(state, node, attributes))
}

fn decide(state: &State, node: &str, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let name = attributes.name;
    match (attributes.group, attributes.resource) {
        ("", "secrets" | "configmaps") => read_configuration(state, node, attributes),
        ("", "persistentvolumeclaims" | "persistentvolumes") => {
            if attributes.verb != "get" {
                return deny("can only get individual resources of this type");
            }
            check_relationship(state, node, attributes)
        }
        ("", "serviceaccounts") => match (attributes.verb, attributes.subresource) {
            ("create", "token") | ("get", "") => check_relationship(state, node, attributes),
            _ => deny("can only create tokens for individual service accounts"),
        },
        ("", "nodes") => access_node(node, attributes),
        ("", "pods") => access_pod(state, node, attributes),
        ("coordination.k8s.io", "leases") => access_lease(node, attributes),
        ("storage.k8s.io", "csinodes") => {
            if ONE_OBJECT.contains(&attributes.verb) {
                allow_if(attributes.verb == "create" || name == node)
            } else {
                deny("can only get, create, update, patch, or delete a CSINode")
            }
        }
        _ => {
            let role = state.get("clusterroles.rbac.authorization.k8s.io", "", "system:node");
            let rules = role.and_then(|role| role["rules"].as_array());
            allow_if(
                rules.is_some_and(|rules| rules.iter().any(|rule| rule_allows(rule, attributes))),
            )
        }
    }
}

fn deny(why: &str) -> Result<(), Refusal> {
    Err(why.to_owned())
}

fn allow_if(allowed: bool) -> Result<(), Refusal> {
    if allowed { Ok(()) } else { deny("") }
}

/// Decides about secrets and config maps, which a node reads for its pods.
fn read_configuration(
    state: &State,
    node: &str,
    attributes: &Attributes<'_>,
) -> Result<(), Refusal> {
    if !["get", "list", "watch"].contains(&attributes.verb) {
        return deny("can only read resources of this type");
    }
    if !attributes.subresource.is_empty() {
        return deny("cannot read subresource");
    }
    if attributes.namespace.is_empty() {
        return deny("can only read namespaced object of this type");
    }
    check_relationship(state, node, attributes)
}

/// Decides about Node objects, of which a node reads only its own.
fn access_node(node: &str, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    let name = attributes.name;
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if name == node => Ok(()),
        ("", "get" | "list" | "watch") if name.is_empty() => deny(&format!(
            "node '{node}' cannot read all nodes, only its own Node object"
        )),
        ("", "get" | "list" | "watch") => deny(&format!(
            "node '{node}' cannot read '{name}', only its own Node object"
        )),
        _ => deny(""),
    }
}

/// Decides about pods, of which a node reads only its own.
fn access_pod(state: &State, node: &str, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    match (attributes.subresource, attributes.verb) {
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Ok(())
        }
        ("", "get") => check_relationship(state, node, attributes),
        ("", "list" | "watch") => {
            let own = format!("spec.nodeName={node}");
            if attributes
                .fields
                .split(',')
                .any(|field| field == own || field.replacen("==", "=", 1) == own)
            {
                Ok(())
            } else if attributes.name.is_empty() {
                deny("can only list/watch pods with spec.nodeName field selector")
            } else {
                check_relationship(state, node, attributes)
            }
        }
        _ => deny(""),
    }
}

/// Decides about leases, of which a node has one.
fn access_lease(node: &str, attributes: &Attributes<'_>) -> Result<(), Refusal> {
    if !ONE_OBJECT.contains(&attributes.verb) {
        deny("can only get, create, update, patch, or delete a node lease")
    } else if attributes.namespace != LEASES {
        deny(&format!(
            "can only access leases in the {LEASES:?} system namespace"
        ))
    } else if attributes.verb != "create" && attributes.name != node {
        deny("can only access node lease with the same name as the requesting node")
    } else {
        Ok(())
    }
}

/// Allows the request if a pod on the node needs the object.
fn check_relationship(
    state: &State,
    node: &str,
    attributes: &Attributes<'_>,
) -> Result<(), Refusal> {
    let name = attributes.name;
    if name.is_empty() {
        return Err("No Object name found".to_owned());
    }
    let is_on_node = |pod: &Value| pod["spec"]["nodeName"] == node;
    let found = match attributes.resource {
        "pods" => state
            .get("pods", attributes.namespace, name)
            .is_some_and(|pod| is_on_node(pod)),
        "persistentvolumes" => {
            let volume = state.get("persistentvolumes", "", name);
            volume.is_some_and(|volume| {
                let claim = &volume["spec"]["claimRef"];
                let of = |field: &str| claim[field].as_str().unwrap_or_default().to_owned();
                is_used_on_node(
                    state,
                    &is_on_node,
                    &of("namespace"),
                    "persistentvolumeclaims",
                    &of("name"),
                )
            })
        }
        resource => is_used_on_node(state, &is_on_node, attributes.namespace, resource, name),
    };
    if found {
        return Ok(());
    }
    Err(format!(
        "no relationship found between node '{node}' and this object"
    ))
}

fn is_used_on_node(
    state: &State,
    is_on_node: &dyn Fn(&Value) -> bool,
    namespace: &str,
    resource: &str,
    name: &str,
) -> bool {
    state
        .list("pods", namespace)
        .filter(|(_, pod)| is_on_node(pod))
        .any(|(_, pod)| {
            let spec = &pod["spec"];
            if resource == "serviceaccounts" {
                return spec["serviceAccountName"] == name;
            }
            refers_to(spec, resource, name)
        })
}

/// Returns whether a pod specification refers to a secret, a config map or a claim.
fn refers_to(spec: &Value, resource: &str, name: &str) -> bool {
    let list = |value: &'_ Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let (volume, volume_name, key, from) = match resource {
        "secrets" => ("secret", "secretName", "secretKeyRef", "secretRef"),
        "configmaps" => ("configMap", "name", "configMapKeyRef", "configMapRef"),
        _ => ("persistentVolumeClaim", "claimName", "", ""),
    };
    let in_volumes = list(spec, "volumes").iter().any(|entry| {
        let projected = list(&entry["projected"], "sources");
        entry[volume][volume_name] == name
            || projected
                .iter()
                .any(|source| source[volume]["name"] == name)
    });
    let pulls = resource == "secrets"
        && list(spec, "imagePullSecrets")
            .iter()
            .any(|secret| secret["name"] == name);
    let in_containers = || {
        all_containers(spec).any(|container| {
            let env = list(container, "env");
            let all = list(container, "envFrom");
            env.iter()
                .any(|variable| variable["valueFrom"][key]["name"] == name)
                || all.iter().any(|source| source[from]["name"] == name)
        })
    };
    in_volumes || pulls || !key.is_empty() && in_containers()
}
