//! The objects that the operator keeps, so that those at the end can be compared with those at the start.

use std::collections::BTreeMap;

use api::names;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// First letters of the kinds of the operator's custom resources.
const OWNERS: &str = "NUMAResources";

/// The content of every object that a custom resource of the stack owns, by kind and name.
pub type Objects = BTreeMap<String, Value>;

/// Reads all objects that the custom resources of the stack own.
///
/// # Errors
/// Returns an error if a list cannot be read.
pub async fn read(client: &Client) -> kube::Result<Objects> {
    let namespaced = [
        ApiResource::erase::<DaemonSet>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        ApiResource::erase::<Role>(&()),
        ApiResource::erase::<RoleBinding>(&()),
    ];
    let global = [
        ApiResource::erase::<ClusterRole>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicy>(&()),
        ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&()),
    ];
    let namespaced = namespaced.iter().map(|resource| {
        let client = client.clone();
        Api::<DynamicObject>::namespaced_with(client, names::NAMESPACE, resource)
    });
    let global = global
        .iter()
        .map(|resource| Api::<DynamicObject>::all_with(client.clone(), resource));
    let mut objects = Objects::new();
    for api in namespaced.chain(global) {
        let list = api.list(&ListParams::default()).await?;
        let kind = list.types.kind.clone();
        for object in list {
            if object
                .owner_references()
                .iter()
                .any(|owner| owner.kind.starts_with(OWNERS))
            {
                let key = format!("{} {}", kind.trim_end_matches("List"), object.name_any());
                objects.insert(key, content(object));
            }
        }
    }
    Ok(objects)
}

/// Returns what the operator decides of an object: not what the API server counts, and not the state of the world.
fn content(object: DynamicObject) -> Value {
    let mut annotations = object.metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| {
        !matches!(
            key.as_str(),
            "deployment.kubernetes.io/revision" | "deprecated.daemonset.template.generation"
        )
    });
    let mut data = object.data;
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
    }
    json!({"labels": object.metadata.labels, "annotations": annotations, "data": data})
}

/// Returns how the objects differ from those before, one sentence for each.
pub fn differences(before: &Objects, now: &Objects) -> Vec<String> {
    let gone = before
        .keys()
        .filter(|key| !now.contains_key(*key))
        .map(|key| format!("{key} is gone"));
    let others = now.iter().filter_map(|(key, value)| match before.get(key) {
        None => Some(format!("{key} is new")),
        Some(old) if old != value => Some(format!("{key} became {value} and was {old}")),
        Some(_) => None,
    });
    gone.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_told() {
        let before = Objects::from([("A a".into(), json!(1)), ("B b".into(), json!(2))]);
        let now = Objects::from([("B b".into(), json!(3)), ("C c".into(), json!(4))]);
        assert_eq!(
            differences(&before, &now),
            ["A a is gone", "B b became 3 and was 2", "C c is new"]
        );
        assert_eq!(differences(&before, &before), Vec::<String>::new());
    }
}
