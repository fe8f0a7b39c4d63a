//! `config/pushed/`: the installation with the image that was pushed to a registry, by digest. `cargo xtask image --push` writes it; it is
//! nobody's but the user's, so it is not in the repository and the drift check leaves it alone.

use std::path::{Path, PathBuf};

use api::names;
use serde_json::json;

use super::{File, HEADING, config, install, samples};

/// Directory of the files, relative to `config/`.
const DIRECTORY: &str = "pushed";

/// Writes the installation of an image. Returns its directory.
///
/// # Errors
/// Returns an error if a file cannot be rendered or written.
pub(crate) fn write(repository: &str, digest: &str) -> anyhow::Result<PathBuf> {
    let config = config();
    for file in files(repository, digest)? {
        file.write(&config)?;
    }
    Ok(config.join(DIRECTORY))
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
    let overlay = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../crd", "operator.yaml"],
        "images": [{"name": names::STACK_REPOSITORY, "newName": repository, "digest": digest}],
    });
    let mut files = vec![
        File::yaml("Kustomization", &[overlay])?,
        install::trusting(digest)?,
        File::yaml("samples.yaml", &objects)?,
    ];
    for file in &mut files {
        file.path = Path::new(DIRECTORY).join(&file.path).display().to_string();
        let text = file.text.strip_prefix(HEADING).unwrap_or(&file.text);
        file.text = format!("# Written by `cargo xtask image --push`.\n{text}");
    }
    Ok(files)
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
        let operator = text("pushed/operator.yaml");
        assert!(operator.contains(&format!("value: {digest}\n")));
        let replaced = format!("image: {}:", names::STACK_REPOSITORY);
        let count = operator.matches(&replaced).count();
        assert_eq!(count, operator.matches("image: ").count());
        for file in &files {
            assert!(!file.text.contains(names::STACK_DIGEST), "{}", file.path);
            assert!(!file.text.starts_with(HEADING), "{}", file.path);
        }
    }
}
