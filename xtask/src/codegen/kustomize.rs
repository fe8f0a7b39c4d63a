//! `Kustomization` files: the installation as a base, with components that only some clusters need.
//!
//! The files have no extension, so that `kubectl apply -f DIRECTORY` ignores them.

use api::names;
use manifests::operator;
use manifests::to_value;
use serde_json::{Value, json};

use super::File;

/// Default TCP port of the API server.
const API_SERVER_PORT: u16 = 6443;

/// Renders the files, given those with the definitions.
pub(super) fn files(definitions: &[File]) -> anyhow::Result<Vec<File>> {
    let definitions: Vec<&str> = definitions
        .iter()
        .filter_map(|file| file.path.strip_prefix("crd/"))
        .collect();
    let policies = operator::network_policies(names::NAMESPACE, &[API_SERVER_PORT]);
    let policies: Vec<Value> = policies.iter().map(to_value).collect();
    let roles = operator::users::roles().iter().map(to_value).collect();
    let mut files = vec![
        kustomization("", "Kustomization", &["crd", "operator.yaml"])?,
        kustomization("crd/", "Kustomization", &definitions)?,
    ];
    for (directory, objects) in [
        ("network-policies", policies),
        (
            "monitoring",
            operator::monitoring::objects(names::NAMESPACE),
        ),
        ("user-roles", roles),
    ] {
        let name = format!("{directory}.yaml");
        let inside = format!("{directory}/");
        files.push(kustomization(&inside, "Component", &[&name])?);
        files.push(File::yaml(format!("{inside}{name}"), &objects)?);
    }
    Ok(files)
}

pub(super) fn kustomization(
    directory: &str,
    kind: &str,
    resources: &[&str],
) -> anyhow::Result<File> {
    let version = match kind {
        "Component" => "kustomize.config.k8s.io/v1alpha1",
        _ => "kustomize.config.k8s.io/v1beta1",
    };
    let object = json!({"apiVersion": version, "kind": kind, "resources": resources});
    File::yaml(format!("{directory}Kustomization"), &[object])
}
