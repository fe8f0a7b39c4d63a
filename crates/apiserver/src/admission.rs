//! Admission: what the default admission plugins of a real server change in objects or refuse, before the objects are validated and stored.
//!
//! The plugins run in the order of the real server. Webhooks and admission policies are not called.

use serde_json::{Value, json};

use super::authn::Identity;
use super::authz::escalation;
use super::failure::{Failure, Subject};
use super::registry::Resource;
use super::store::State;

mod limits;
mod node_restriction;
mod quota;
mod runtime_class;
mod service_account;

/// User name prefix of kubelets.
const NODE_USER_PREFIX: &str = "system:node:";

/// A write under admission.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// The resource.
    pub(crate) resource: &'a Resource,
    /// The subresource, or empty.
    pub(crate) subresource: &'a str,
    /// Namespace, or empty.
    pub(crate) namespace: &'a str,
    /// Name of the object.
    pub(crate) name: &'a str,
    /// The user of the request.
    pub(crate) identity: &'a Identity,
    /// The object before the write; `None` for a new one.
    pub(crate) before: Option<&'a Value>,
    /// Names of the disabled plugins.
    pub(crate) disabled: &'a [String],
}

impl Attempt<'_> {
    /// Returns the refusal of a plugin.
    pub(crate) fn forbidden(&self, why: &str) -> Failure {
        let subject = Subject {
            group: &self.resource.group,
            resource: &self.resource.plural,
            name: self.name,
        };
        Failure::forbidden(&subject, why)
    }

    fn is_enabled(&self, plugin: &str) -> bool {
        !self.disabled.iter().any(|name| name == plugin)
    }

    /// Returns the node that the request's kubelet runs on; `None` for any other user.
    fn node(&self) -> Option<&str> {
        node_of(self.identity)
    }
}

/// Returns the node of a kubelet; `None` for any other user.
pub(crate) fn node_of(identity: &Identity) -> Option<&str> {
    identity
        .user
        .groups
        .iter()
        .any(|group| group == "system:nodes")
        .then(|| identity.user.name.strip_prefix(NODE_USER_PREFIX))
        .flatten()
}

/// Lets the plugins change the object and refuse it.
pub(crate) fn admit(
    state: &State,
    attempt: &Attempt<'_>,
    object: &mut Value,
) -> Result<(), Failure> {
    let storage = attempt.resource.storage.as_str();
    let new = attempt.before.is_none();
    if storage == "pods" && attempt.subresource.is_empty() {
        if new && attempt.is_enabled("LimitRanger") {
            limits::apply(state, attempt, object);
        }
        if new && attempt.is_enabled("ServiceAccount") {
            service_account::admit(state, attempt, object)?;
        }
    }
    if attempt.is_enabled("NodeRestriction") && attempt.node().is_some() {
        node_restriction::check_write(state, attempt, object)?;
    }
    if storage == "nodes" && new && attempt.is_enabled("TaintNodesByCondition") {
        taint(object);
    }
    if storage == "pods" && attempt.subresource.is_empty() {
        if attempt.is_enabled("Priority") {
            priority(state, attempt, object)?;
        }
        if attempt.is_enabled("DefaultTolerationSeconds") {
            default_tolerations(object);
        }
        if new && attempt.is_enabled("RuntimeClass") {
            runtime_class::admit(state, attempt, object)?;
        }
    }
    if new && attempt.is_enabled("StorageObjectInUseProtection") {
        add_protection_finalizer(storage, object);
    }
    if attempt.resource.group == "rbac.authorization.k8s.io" {
        check_escalation(state, attempt, object)?;
    }
    if storage == "pods"
        && attempt.subresource.is_empty()
        && attempt.is_enabled("LimitRanger")
        && new
    {
        limits::check(state, attempt, object)?;
    }
    Ok(())
}

/// Charges a new object to the quotas of its namespace. This plugin runs last, and it is the only one that writes.
pub(crate) fn charge(
    state: &mut State,
    attempt: &Attempt<'_>,
    object: &Value,
    dry_run: bool,
) -> Result<(), Failure> {
    if attempt.before.is_none()
        && attempt.subresource.is_empty()
        && attempt.is_enabled("ResourceQuota")
    {
        quota::charge(state, attempt, object, dry_run)?;
    }
    Ok(())
}

/// Refuses deletions: of protected namespaces, and by kubelets of what is not theirs.
pub(crate) fn check_delete(attempt: &Attempt<'_>, before: &Value) -> Result<(), Failure> {
    if attempt.is_enabled("NodeRestriction") && attempt.node().is_some() {
        node_restriction::check_delete(attempt, before)?;
    }
    if attempt.resource.storage == "namespaces"
        && ["default", "kube-system", "kube-public"].contains(&attempt.name)
    {
        return Err(attempt.forbidden("this namespace may not be deleted"));
    }
    Ok(())
}

/// Adds the finalizer that keeps a volume or a claim until nothing uses it.
fn add_protection_finalizer(storage: &str, object: &mut Value) {
    let finalizer = match storage {
        "persistentvolumes" => "kubernetes.io/pv-protection",
        "persistentvolumeclaims" => "kubernetes.io/pvc-protection",
        _ => return,
    };
    let list = &mut object["metadata"]["finalizers"];
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|known| known == finalizer)
    {
        list.push(json!(finalizer));
    }
}

/// Refuses roles and bindings that would grant permissions which their writer does not have.
fn check_escalation(state: &State, attempt: &Attempt<'_>, object: &Value) -> Result<(), Failure> {
    let user = &attempt.identity.user;
    let resource = attempt.resource.plural.as_str();
    let same = |field: &str| {
        attempt
            .before
            .is_some_and(|before| before[field] == object[field])
    };
    if resource.ends_with("roles") {
        if same("rules") && same("aggregationRule") {
            return Ok(());
        }
        let why = escalation::role_refusal(state, user, resource, attempt.namespace, object);
        return why.map_or(Ok(()), |why| Err(attempt.forbidden(&why)));
    }
    if same("roleRef") && same("subjects") {
        return Ok(());
    }
    match escalation::binding_refusal(state, user, attempt.namespace, object) {
        None => Ok(()),
        Some(escalation::Refusal::Grants(why)) => Err(attempt.forbidden(&why)),
        Some(escalation::Refusal::NoRole(name)) => Err(Failure::not_found(&Subject {
            group: &attempt.resource.group,
            resource,
            name: &name,
        })),
    }
}

/// Adds the not-ready taint to a new node, because a node is not ready until it reports that it is.
fn taint(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let taints = &mut node["spec"]["taints"];
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(list) = taints.as_array_mut()
        && !list
            .iter()
            .any(|taint| taint["key"] == KEY && taint["effect"] == "NoSchedule")
    {
        list.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}

fn default_tolerations(pod: &mut Value) {
    let list = pod["spec"]["tolerations"].as_array().cloned();
    let mut list = list.unwrap_or_default();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let covered = list.iter().any(|toleration| {
            let of = |field: &str| toleration[field].as_str().unwrap_or_default();
            (of("key") == key || of("key").is_empty())
                && (of("effect") == "NoExecute" || of("effect").is_empty())
        });
        if !covered {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    if !list.is_empty() {
        pod["spec"]["tolerations"] = Value::Array(list);
    }
}

fn priority(state: &State, attempt: &Attempt<'_>, pod: &mut Value) -> Result<(), Failure> {
    const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
    if let Some(before) = attempt.before {
        for field in ["priority", "preemptionPolicy"] {
            if pod["spec"][field].is_null() && !before["spec"][field].is_null() {
                pod["spec"][field] = before["spec"][field].clone();
            }
        }
        return Ok(());
    }
    let named = pod["spec"]["priorityClassName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let class = if named.is_empty() {
        // of several default classes, the one with the lowest value counts
        state
            .list(CLASSES, "")
            .map(|(_, class)| &**class)
            .filter(|class| class["globalDefault"] == true)
            .min_by_key(|class| class["value"].as_i64())
    } else {
        let class = state.get(CLASSES, "", &named).map(|class| &**class);
        Some(class.ok_or_else(|| {
            attempt.forbidden(&format!("no PriorityClass with name {named} was found"))
        })?)
    };
    let value = class
        .and_then(|class| class["value"].as_i64())
        .unwrap_or_default();
    let policy = class
        .and_then(|class| class["preemptionPolicy"].as_str())
        .unwrap_or("PreemptLowerPriority");
    let spec = &mut pod["spec"];
    if let Some(given) = spec["priority"].as_i64()
        && given != value
    {
        return Err(attempt.forbidden(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        )));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str()
        && given != policy
    {
        return Err(attempt.forbidden(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    if let Some(class) = class {
        spec["priorityClassName"] = class["metadata"]["name"].clone();
    }
    spec["priority"] = json!(value);
    spec["preemptionPolicy"] = json!(policy);
    Ok(())
}
