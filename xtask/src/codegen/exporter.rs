//! `config/exporter/`: the exporter without an operator.

use api::names;
use manifests::rte::standalone;

use super::{File, kustomize};

/// Renders the files. The directory has its own copy of the definition, because a kustomization may not name files outside of it.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let definition = "noderesourcetopologies.yaml";
    let exporter = "exporter.yaml";
    Ok(vec![
        kustomize::kustomization("exporter/", "Kustomization", &[definition, exporter])?,
        File::yaml(
            format!("exporter/{definition}"),
            &[api::crd::node_resource_topology()],
        )?,
        File::yaml(
            format!("exporter/{exporter}"),
            &standalone::objects(names::STACK_IMAGE),
        )?,
    ])
}
