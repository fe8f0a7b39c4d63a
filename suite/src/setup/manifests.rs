//! The manifests that install the operator.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use kube::api::DynamicObject;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::environment::Platform;
use crate::images;
use crate::step::StepError;

/// The manifests that `cargo xtask codegen` renders, by their paths below `config`: definitions first, then the operator. The definition of NRTs is not
/// among them, because the operator brings it, as where OLM installs it.
const BUILT_IN: [(&str, &str); 4] = [
    (
        "crd/nodetopology.openshift.io_numaresourcesoperators.yaml",
        include_str!("../../../config/crd/nodetopology.openshift.io_numaresourcesoperators.yaml"),
    ),
    (
        "crd/nodetopology.openshift.io_numaresourcesschedulers.yaml",
        include_str!("../../../config/crd/nodetopology.openshift.io_numaresourcesschedulers.yaml"),
    ),
    (OPERATOR, include_str!("../../../config/operator.yaml")),
    (
        OPERATOR_OF_OPENSHIFT,
        include_str!("../../../config/openshift/operator.yaml"),
    ),
];
/// The operator with the rights that it needs on plain Kubernetes.
const OPERATOR: &str = "operator.yaml";
/// The operator with the rights that it needs on OpenShift and on a hosted cluster.
const OPERATOR_OF_OPENSHIFT: &str = "openshift/operator.yaml";

/// Loads all objects for a platform, in order: the built-in ones, or those of a directory with the layout of `config` (`crd/*.yaml`,
/// `operator.yaml` or `openshift/operator.yaml`). They run this image of the stack, if one is given.
pub(super) fn load(
    dir: Option<&Path>,
    platform: Platform,
    image: Option<&str>,
) -> Result<Vec<DynamicObject>, StepError> {
    let unwanted = match platform {
        Platform::Kubernetes => OPERATOR_OF_OPENSHIFT,
        Platform::Openshift | Platform::Hypershift => OPERATOR,
    };
    let mut objects = Vec::new();
    for (name, text) in texts(dir, &[unwanted])? {
        objects.extend(parse(&text).map_err(|error| {
            StepError::fail(format!("cannot read the manifest {name}: {error}"))
        })?);
    }
    if let Some(image) = image {
        images::replace(&mut objects, image);
    }
    Ok(objects)
}

/// Computes a digest of the manifests for all platforms and of the image that they run, by which a change of them is detected.
pub(super) fn digest(dir: Option<&Path>) -> Result<String, StepError> {
    let mut digest = Sha256::new();
    let absent: Vec<&str> = [OPERATOR, OPERATOR_OF_OPENSHIFT]
        .into_iter()
        .filter(|operator| dir.is_some_and(|dir| !dir.join(operator).exists()))
        .collect();
    for (_, text) in texts(dir, &absent)? {
        digest.update(text.as_bytes());
    }
    digest.update(images::named_by_user().unwrap_or_default());
    Ok(HEXLOWER.encode(&digest.finalize()))
}

/// Returns the texts of the files with their names, without those with these paths.
fn texts(
    dir: Option<&Path>,
    unwanted: &[&str],
) -> Result<Vec<(String, Cow<'static, str>)>, StepError> {
    let Some(dir) = dir else {
        let wanted = BUILT_IN
            .into_iter()
            .filter(|(path, _)| !unwanted.contains(path));
        return Ok(wanted
            .map(|(path, text)| (format!("{path} (built in)"), text.into()))
            .collect());
    };
    let mut files = definitions(dir)?;
    files.extend(
        [OPERATOR, OPERATOR_OF_OPENSHIFT]
            .into_iter()
            .filter(|path| !unwanted.contains(path))
            .map(|path| dir.join(path)),
    );
    let mut texts = Vec::new();
    for file in files {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(&file).map_err(|error| {
            StepError::fail(format!("cannot read the manifest {name}: {error}"))
        })?;
        texts.push((name, text.into()));
    }
    Ok(texts)
}

/// Returns the files with definitions in a directory, sorted.
fn definitions(dir: &Path) -> Result<Vec<PathBuf>, StepError> {
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
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_built_in_manifests_define_before_they_use() {
        let objects =
            load(None, Platform::Kubernetes, None).expect("built-in manifests are readable");
        let kinds: Vec<_> = objects
            .iter()
            .filter_map(|object| object.types.as_ref())
            .map(|types| types.kind.as_str())
            .collect();
        assert_eq!(kinds[..2], ["CustomResourceDefinition"; 2]);
        assert_eq!(kinds[2], "Namespace");
        assert!(
            objects
                .iter()
                .any(|object| object.name_any() == api::names::OPERATOR_DEPLOYMENT)
        );
    }

    #[test]
    fn the_built_in_manifests_run_another_image_where_one_is_given() {
        let objects = load(None, Platform::Kubernetes, Some("r.example/s:1"))
            .expect("built-in manifests are readable");
        let text = serde_json::to_string(&objects).expect("objects are JSON");
        assert!(text.contains("r.example/s:1"));
        assert!(!text.contains(api::names::STACK_IMAGE), "{text}");
    }

    #[rstest]
    #[case::kubernetes(Platform::Kubernetes, true, false)]
    #[case::openshift(Platform::Openshift, false, true)]
    #[case::hosted(Platform::Hypershift, false, true)]
    fn the_operator_has_the_rights_that_the_platform_needs(
        #[case] platform: Platform,
        #[case] asks_kubelets: bool,
        #[case] configures_machines: bool,
    ) {
        let built_in = load(None, platform, None).expect("built-in manifests are readable");
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
        let of_directory =
            load(Some(&config), platform, None).expect("so are those of a directory");
        for objects in [built_in, of_directory] {
            let text = serde_json::to_string(&objects).expect("objects are JSON");
            assert_eq!(text.contains("nodes/proxy"), asks_kubelets);
            assert_eq!(text.contains("machineconfigs"), configures_machines);
            assert_eq!(text.matches("\"kind\":\"Deployment\"").count(), 1);
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = load(
            Some(Path::new("does/not/exist")),
            Platform::Kubernetes,
            None,
        )
        .expect_err("no manifests");
        assert!(
            error
                .into_failure("")
                .message
                .starts_with("cannot read the manifests in does/not/exist/crd: ")
        );
    }
}
