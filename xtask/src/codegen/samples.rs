//! `config/samples/*.yaml`: the custom resources as an administrator writes them.

use api::names;
use serde_json::{Value, json};

use super::File;

/// Renders the files.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let objects = objects().into_iter();
    objects
        .map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            File::yaml(format!("samples/{name}.yaml"), &[&object])
        })
        .collect()
}

/// Returns the resources.
pub(super) fn objects() -> Vec<Value> {
    let sample = |name: &str, kind: &str, spec: Value| {
        let version = "nodetopology.openshift.io/v1";
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    };
    vec![
        sample(
            names::OPERATOR_CR,
            api::operator::KIND,
            json!({"nodeGroups": [{"poolName": "worker"}]}),
        ),
        sample(
            names::SCHEDULER_CR,
            api::scheduler::KIND,
            json!({
                "imageSpec": names::pinned_stack_image(),
                "schedulerName": names::SCHEDULER_PROFILE,
            }),
        ),
    ]
}
