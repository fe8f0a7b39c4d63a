//! The manifests that install the operator.

use std::borrow::Cow;
use std::path::Path;

use data_encoding::HEXLOWER;
use kube::api::DynamicObject;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::images;
use crate::step::StepError;

/// The manifests that `cargo xtask codegen` renders: definitions first, then the operator.
const BUILT_IN: [(&str, &str); 4] = [
    (
        "operators",
        include_str!("../../../config/crd/nodetopology.openshift.io_numaresourcesoperators.yaml"),
    ),
    (
        "schedulers",
        include_str!("../../../config/crd/nodetopology.openshift.io_numaresourcesschedulers.yaml"),
    ),
    (
        "topologies",
        include_str!("../../../config/crd/topology.node.k8s.io_noderesourcetopologies.yaml"),
    ),
    ("operator", include_str!("../../../config/operator.yaml")),
];

/// Loads all objects, in order: the built-in ones, or those of a directory with the layout of `config` (`crd/*.yaml`, `operator.yaml`). They run
/// this image of the stack, if one is given.
pub(super) fn load(
    dir: Option<&Path>,
    image: Option<&str>,
) -> Result<Vec<DynamicObject>, StepError> {
    let mut objects = Vec::new();
    for (name, text) in texts(dir)? {
        objects.extend(parse(&text).map_err(|error| {
            StepError::fail(format!("cannot read the manifest {name}: {error}"))
        })?);
    }
    if let Some(image) = image {
        images::replace(&mut objects, image);
    }
    Ok(objects)
}

/// Computes a digest of all manifests and of the image that they run, by which a change of them is detected.
pub(super) fn digest(dir: Option<&Path>) -> Result<String, StepError> {
    let mut digest = Sha256::new();
    for (_, text) in texts(dir)? {
        digest.update(text.as_bytes());
    }
    digest.update(images::named_by_user().unwrap_or_default());
    Ok(HEXLOWER.encode(&digest.finalize()))
}

/// Returns the texts of the files with their names.
fn texts(dir: Option<&Path>) -> Result<Vec<(String, Cow<'static, str>)>, StepError> {
    let Some(dir) = dir else {
        let built_in = BUILT_IN.map(|(name, text)| (format!("{name} (built in)"), text.into()));
        return Ok(built_in.into());
    };
    let mut texts = Vec::new();
    for file in files(dir)? {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|error| {
            StepError::fail(format!("cannot read the manifest {name}: {error}"))
        })?;
        texts.push((name, text.into()));
    }
    Ok(texts)
}

fn files(dir: &Path) -> Result<Vec<std::path::PathBuf>, StepError> {
    let folder = dir.join("crd");
    let entries = std::fs::read_dir(&folder).map_err(|error| {
        StepError::fail(format!(
            "cannot read the manifests in {}: {error}",
            folder.display()
        ))
    })?;
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    files.push(dir.join("operator.yaml"));
    Ok(files)
}

fn parse(text: &str) -> Result<Vec<DynamicObject>, String> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = serde_json::Value::deserialize(document).map_err(|error| error.to_string())?;
        if !value.is_null() {
            objects.push(serde_json::from_value(value).map_err(|error| error.to_string())?);
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;

    #[test]
    fn the_built_in_manifests_define_before_they_use() {
        let objects = load(None, None).expect("built-in manifests are readable");
        let kinds: Vec<_> = objects
            .iter()
            .filter_map(|object| object.types.as_ref())
            .map(|types| types.kind.as_str())
            .collect();
        assert_eq!(kinds[..3], ["CustomResourceDefinition"; 3]);
        assert_eq!(kinds[3], "Namespace");
        assert!(
            objects
                .iter()
                .any(|object| object.name_any() == api::names::OPERATOR_DEPLOYMENT)
        );
    }

    #[test]
    fn the_built_in_manifests_run_another_image_where_one_is_given() {
        let objects = load(None, Some("r.example/s:1")).expect("built-in manifests are readable");
        let text = serde_json::to_string(&objects).expect("objects are JSON");
        assert!(text.contains("r.example/s:1"));
        assert!(!text.contains(api::names::STACK_IMAGE), "{text}");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = load(Some(Path::new("does/not/exist")), None).expect_err("no manifests");
        assert!(
            error
                .into_failure("")
                .message
                .starts_with("cannot read the manifests in does/not/exist/crd: ")
        );
    }
}
