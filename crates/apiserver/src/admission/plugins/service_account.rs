//! The service account of a pod, and the volume with its token that is mounted into the containers.

use serde_json::{Value, json};

use crate::admission::attempt::Attempt;
use crate::failure::Failure;
use crate::storage::State;
use crate::values::annotations::MIRROR;
use crate::values::fields::elements;
use crate::values::names::suffix;

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME: &str = "kube-api-access-";
/// Requested lifetime in seconds. The server recognizes exactly this value and issues a token that lasts longer, so that clients that do
/// not renew it still work.
const EXPIRATION: u32 = 3607;

pub(super) fn admit(state: &State, attempt: &Attempt<'_>, pod: &mut Value) -> Result<(), Failure> {
    let spec = &pod["spec"];
    let named = spec["serviceAccountName"].as_str().unwrap_or_default();
    if !pod["metadata"]["annotations"][MIRROR].is_null() {
        return check_mirror(attempt, spec);
    }
    let name = if named.is_empty() { "default" } else { named }.to_owned();
    let Some(account) = state.get("serviceaccounts", attempt.namespace, &name) else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            attempt.namespace
        );
        let mut failure = attempt.forbidden(&why);
        // a controller creates the default account of a new namespace; a real server waits for it, too
        failure.is_transient = name == "default";
        return Err(failure);
    };
    let spec = &mut pod["spec"];
    spec["serviceAccountName"] = json!(name);
    spec["serviceAccount"] = json!(name);
    let mounts = spec["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if mounts {
        mount(spec);
    }
    if spec["imagePullSecrets"].is_null()
        && let Some(secrets) = account["imagePullSecrets"].as_array()
        && !secrets.is_empty()
    {
        spec["imagePullSecrets"] = json!(secrets);
    }
    Ok(())
}

fn check_mirror(attempt: &Attempt<'_>, spec: &Value) -> Result<(), Failure> {
    if spec["serviceAccountName"]
        .as_str()
        .is_some_and(|name| !name.is_empty())
    {
        return Err(attempt.forbidden("a mirror pod may not reference service accounts"));
    }
    let volumes = || elements(&spec["volumes"]);
    if volumes().any(|volume| volume["secret"].is_object()) {
        return Err(attempt.forbidden("a mirror pod may not reference secrets"));
    }
    let mut sources = volumes().flat_map(|volume| elements(&volume["projected"]["sources"]));
    if sources.any(|source| source["serviceAccountToken"].is_object()) {
        return Err(
            attempt.forbidden("a mirror pod may not use ServiceAccountToken volume projections")
        );
    }
    Ok(())
}

fn mount(spec: &mut Value) {
    let existing = elements(&spec["volumes"])
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(VOLUME))
        .map(str::to_owned);
    let has_volume = existing.is_some();
    let volume = existing.unwrap_or_else(|| format!("{VOLUME}{}", suffix()));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let Some(list) = spec.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        for container in list {
            let mounts = &mut container["volumeMounts"];
            if !mounts.is_array() {
                *mounts = json!([]);
            }
            if let Some(mounts) = mounts.as_array_mut()
                && !mounts.iter().any(|mount| mount["mountPath"] == MOUNT)
            {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT}));
                needed = true;
            }
        }
    }
    if has_volume || !needed {
        return;
    }
    if !spec["volumes"].is_array() {
        spec["volumes"] = json!([]);
    }
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": EXPIRATION, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
    }
}
