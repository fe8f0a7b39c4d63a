//! `config/crd/*.yaml`: one file for each custom resource definition.

use super::File;

/// Renders the files.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    api::crd::all()
        .into_iter()
        .map(|definition| {
            let path = format!(
                "crd/{}_{}.yaml",
                definition.spec.group, definition.spec.names.plural
            );
            File::yaml(path, &[definition])
        })
        .collect()
}
