//! `config/samples/*.yaml`: the custom resources as an administrator writes them.

use api::names;
use serde_json::{Value, json};

use super::File;

/// The files.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let sample = |name: &str, kind: &str, spec: Value| {
        let version = "nodetopology.openshift.io/v1";
        let object =
            json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        File::yaml(format!("samples/{name}.yaml"), &[object])
    };
    Ok(vec![
        sample(
            names::OPERATOR_CR,
            api::operator::KIND,
            json!({"nodeGroups": [{"poolName": "worker"}]}),
        )?,
        sample(
            names::SCHEDULER_CR,
            api::scheduler::KIND,
            json!({
                "imageSpec": names::pinned_stack_image(),
                "schedulerName": names::SCHEDULER_PROFILE,
            }),
        )?,
    ])
}
