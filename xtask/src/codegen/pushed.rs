//! `config/pushed/`: the installation, and the Job of the tests, with the images that were pushed to a registry, by digest. `cargo xtask image --push` writes it; it is
//! nobody's but the user's, so it is not in the repository and the drift check leaves it alone.

use std::path::PathBuf;

use api::names;
use serde_json::json;

use super::{File, HEADING, config, install, job, kustomize, samples};

/// Directory of the files, relative to `config/`.
const DIRECTORY: &str = "pushed";
/// Directory of the files of the tests, in the same place.
const TESTS: &str = "pushed/tests";

/// Writes the installation of an image. Returns its directory.
///
/// # Errors
/// Returns an error if a file cannot be rendered or written.
pub(crate) fn write(repository: &str, digest: &str) -> anyhow::Result<PathBuf> {
    write_all(DIRECTORY, &files(repository, digest)?)
}

/// Writes the Job that runs an image of the tests. Returns its directory.
///
/// # Errors
/// Returns an error if a file cannot be rendered or written.
pub(crate) fn write_tests(repository: &str, digest: &str) -> anyhow::Result<PathBuf> {
    write_all(TESTS, &files_of_tests(repository, digest)?)
}

fn write_all(directory: &str, files: &[File]) -> anyhow::Result<PathBuf> {
    let config = config();
    for file in files {
        file.write(&config)?;
    }
    Ok(config.join(directory))
}

fn files_of_tests(repository: &str, digest: &str) -> anyhow::Result<Vec<File>> {
    let job = "job.yaml";
    let files = vec![
        kustomize::kustomization("", "Kustomization", &[job])?,
        File::yaml(job, &job::objects(&format!("{repository}@{digest}")))?,
    ];
    Ok(of_user(TESTS, files))
}

fn files(repository: &str, digest: &str) -> anyhow::Result<Vec<File>> {
    // the transformer of kustomize knows the fields of pods, but not this one
    let image = format!("{repository}@{digest}");
    let mut objects = samples::objects();
    for object in &mut objects {
        if let Some(field) = object.pointer_mut("/spec/imageSpec") {
            *field = json!(image);
        }
    }
    let overlay = |definitions: &str| {
        json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [definitions, "operator.yaml"],
            "images": [{"name": names::STACK_REPOSITORY, "newName": repository, "digest": digest}],
        })
    };
    let mut files = install::trusting(digest)?;
    files.extend([
        File::yaml("Kustomization", &[overlay("../crd")])?,
        File::yaml("openshift/Kustomization", &[overlay("../../crd")])?,
        File::yaml("samples.yaml", &objects)?,
    ]);
    Ok(of_user(DIRECTORY, files))
}

/// Moves files to a directory, and says in their first lines that they are the user's.
fn of_user(directory: &str, files: Vec<File>) -> Vec<File> {
    let moved = |file: File| {
        let text = file.text.strip_prefix(HEADING).unwrap_or(&file.text);
        File {
            path: format!("{directory}/{}", file.path),
            text: format!("# Written by `cargo xtask image --push`.\n{text}"),
        }
    };
    files.into_iter().map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_names_the_image_of_a_development_cluster_but_as_what_is_replaced() {
        let digest = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let files = files("registry.example.com/numaresources/stack", digest).unwrap();
        let text = |path: &str| {
            let file = files.iter().find(|file| file.path == path);
            file.map(|file| file.text.as_str()).unwrap()
        };
        let image = format!("imageSpec: registry.example.com/numaresources/stack@{digest}\n");
        assert!(text("pushed/samples.yaml").contains(&image));
        for operator in ["pushed/operator.yaml", "pushed/openshift/operator.yaml"] {
            let operator = text(operator);
            assert!(operator.contains(&format!("value: {digest}\n")));
            let replaced = format!("image: {}:", names::STACK_REPOSITORY);
            let count = operator.matches(&replaced).count();
            assert_eq!(count, operator.matches("image: ").count());
        }
        for file in &files {
            assert!(!file.text.contains(names::STACK_DIGEST), "{}", file.path);
            assert!(!file.text.starts_with(HEADING), "{}", file.path);
        }
    }
    #[test]
    fn the_job_names_nothing_but_the_pushed_image() {
        let digest = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let files = files_of_tests("registry.example.com/numaresources/tests", digest).unwrap();
        let job = files
            .iter()
            .find(|file| file.path == "pushed/tests/job.yaml");
        let text = &job.unwrap().text;
        let image = format!("registry.example.com/numaresources/tests@{digest}\n");
        // two containers, and two variables for the pods that the tests start
        assert_eq!(text.matches(&image).count(), 4, "{text}");
        assert!(!text.contains("localhost"), "{text}");
        assert!(!text.starts_with(HEADING), "{text}");
    }
}
