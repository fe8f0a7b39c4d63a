//! The archive: an OCI image layout that also has the files that `docker load` and older tools expect. The same files give the same
//! archive.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Context as _;
use oci_archive::{Blob, append, header, put};
use serde_json::{Map, Value, json};
use tar::{Builder, EntryType};

use super::contents::{Contents, Entry};
use super::origin::Origin;
use super::variant::Variant;
use super::{labels, make_parent};

/// An image, ready to be written.
#[derive(Debug)]
pub(super) struct Layout {
    layer: Part,
    config: Part,
    manifest: Part,
    reference: String,
}

/// Bytes with their name, which takes seconds to compute for a layer.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    blob: Blob,
}

impl Part {
    fn new(bytes: Vec<u8>) -> Self {
        let blob = Blob::of_bytes(&bytes);
        Self { bytes, blob }
    }

    fn json(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }
}

impl Layout {
    /// Builds an image with one layer. The same contents and origin give the same bytes.
    pub(super) fn new(
        contents: &Contents,
        variant: Variant,
        origin: &Origin,
        architecture: &str,
    ) -> anyhow::Result<Self> {
        let layer = Part::new(layer(contents)?);
        let labels = labels::of(variant, origin);
        let config = Part::json(&config(
            variant,
            origin,
            &labels,
            &layer.blob.digest,
            architecture,
        ));
        let mut manifest = oci_archive::manifest(&config.blob, [&layer.blob]);
        manifest["annotations"] = labels.into();
        Ok(Self {
            layer,
            config,
            manifest: Part::json(&manifest),
            reference: variant.reference(),
        })
    }

    /// Returns the digest of the image.
    pub(super) fn digest(&self) -> &str {
        &self.manifest.blob.digest
    }

    /// Writes the archive and replaces an older one.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        make_parent(path)?;
        let mut archive = Builder::new(BufWriter::new(File::create(path)?));
        let mut listed = self.manifest.blob.descriptor(oci_archive::MANIFEST);
        // the tag, in the annotations of podman and of docker
        listed["annotations"] = json!({
            "org.opencontainers.image.ref.name": self.reference,
            oci_archive::NAME_ANNOTATION: self.reference,
        });
        let docker = json!([{
            "Config": self.config.blob.path(),
            "RepoTags": [self.reference],
            "Layers": [self.layer.blob.path()],
        }]);
        oci_archive::put_index(&mut archive, &[listed])?;
        put(&mut archive, "manifest.json", docker.to_string().as_bytes())?;
        for part in [&self.manifest, &self.config, &self.layer] {
            put(&mut archive, part.blob.path(), &part.bytes)?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }
}

/// Returns the configuration of an image: how its containers start, and where it comes from.
fn config(
    variant: Variant,
    origin: &Origin,
    labels: &Map<String, Value>,
    diff_id: &str,
    architecture: &str,
) -> Value {
    let mut start = json!({
        "User": variant.user(),
        "Env": variant.environment(),
        "WorkingDir": "/tmp",
        "Labels": labels,
    });
    if let Some(program) = variant.entrypoint() {
        start["Entrypoint"] = json!([program]);
    }
    if let Some(program) = variant.command() {
        start["Cmd"] = json!([program]);
    }
    let mut step = json!({"created_by": "cargo xtask image"});
    let mut config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": start,
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    });
    if let Some(date) = &origin.date {
        config["created"] = json!(date);
        step["created"] = json!(date);
    }
    config["history"] = json!([step]);
    config
}

fn layer(contents: &Contents) -> anyhow::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (path, entry) in &contents.0 {
        let added = match entry {
            Entry::Directory { mode } => {
                let header = header(EntryType::Directory, *mode, 0);
                append(&mut archive, header, path, std::io::empty())
            }
            Entry::File { source, mode, size } => {
                let header = header(EntryType::Regular, *mode, *size);
                File::open(source).and_then(|file| append(&mut archive, header, path, file))
            }
            Entry::Text(text) => {
                let header = header(EntryType::Regular, 0o644, text.len() as u64);
                append(&mut archive, header, path, text.as_bytes())
            }
            Entry::Link(target) => {
                let mut header = header(EntryType::Symlink, 0o777, 0);
                archive.append_link(&mut header, path, target)
            }
        };
        added.with_context(|| format!("adding {path} to the image"))?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::image::origin::tests::mk_origin;

    #[test]
    fn what_the_archive_names_is_in_it_with_the_right_digest() {
        let contents = Contents(vec![
            ("tmp".into(), Entry::Directory { mode: 0o1777 }),
            ("etc/passwd".into(), Entry::Text("root\n".to_owned())),
            ("pause".into(), Entry::Link("/bin/x".to_owned())),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/image.tar");
        let layout = Layout::new(&contents, Variant::Tests, &mk_origin("main"), "amd64").unwrap();
        layout.write(&path).unwrap();

        let mut archive = tar::Archive::new(File::open(&path).unwrap());
        let mut files = std::collections::BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(name, bytes);
        }
        let read = |name: &str| -> Value { serde_json::from_slice(&files[name]).unwrap() };
        let of = |value: &Value| {
            let name = value["digest"].as_str().unwrap().replace(':', "/");
            let bytes = &files[&format!("blobs/{name}")];
            assert_eq!(
                Blob::of_bytes(bytes).digest,
                value["digest"].as_str().unwrap()
            );
            assert_eq!(value["size"], bytes.len());
            bytes.clone()
        };
        let manifest: Value =
            serde_json::from_slice(&of(&read("index.json")["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&of(&manifest["config"])).unwrap();
        let layer = of(&manifest["layers"][0]);
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            Blob::of_bytes(&layer).digest
        );
        assert_eq!(config["created"], "2026-01-02T03:04:05Z");
        let revision = "org.opencontainers.image.revision";
        assert_eq!(config["config"]["Labels"][revision], "abc");
        assert_eq!(manifest["annotations"][revision], "abc");
        assert_eq!(
            read("index.json")["manifests"][0]["digest"],
            layout.digest()
        );
        let docker = read("manifest.json");
        assert!(files.contains_key(docker[0]["Config"].as_str().unwrap()));
        assert!(files.contains_key(docker[0]["Layers"][0].as_str().unwrap()));
    }

    /// The archive of a folder with two files, made in an order and at a time.
    fn packed(names: [&str; 2], made: SystemTime) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            std::fs::write(&path, name).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(made).unwrap();
        }
        let file = |name: &str| Entry::File {
            source: dir.path().join(name),
            mode: 0o755,
            size: 1,
        };
        let contents = Contents(vec![
            ("bin".into(), Entry::Directory { mode: 0o755 }),
            ("bin/a".into(), file("a")),
            ("bin/b".into(), file("b")),
        ]);
        let path = dir.path().join("image.tar");
        let layout = Layout::new(&contents, Variant::Stack, &mk_origin("main"), "amd64").unwrap();
        layout.write(&path).unwrap();
        std::fs::read(&path).unwrap()
    }

    #[test]
    fn the_same_files_give_the_same_archive_wherever_and_whenever_they_were_made() {
        let day = SystemTime::UNIX_EPOCH + Duration::from_hours(24);
        let first = packed(["a", "b"], day);
        assert_eq!(first, packed(["b", "a"], SystemTime::now()));
    }

    #[test]
    fn another_commit_is_another_image_with_the_same_layer() {
        let contents = Contents(vec![("bin".into(), Entry::Directory { mode: 0o755 })]);
        let of = |origin| Layout::new(&contents, Variant::Stack, &origin, "arm64").unwrap();
        let (one, mut other) = (mk_origin("main"), mk_origin("main"));
        other.commit = "def".into();
        let (one, other) = (of(one), of(other));
        assert_ne!(one.digest(), other.digest());
        assert_eq!(one.layer.blob.digest, other.layer.blob.digest);
    }
}
