//! The archive: an OCI image layout that also has the files that `docker load` and older tools expect. The same files give the same
//! archive.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::Context as _;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::contents::{Contents, Entry};
use super::make_parent;

/// User of the image; manifests set another one where needed.
const USER: &str = "65532:65532";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image, ready to be written.
#[derive(Debug)]
pub(super) struct Layout {
    layer: Vec<u8>,
    config: Vec<u8>,
    reference: String,
}

impl Layout {
    /// Builds an image with one layer.
    pub(super) fn new(contents: &Contents, reference: &str) -> anyhow::Result<Self> {
        let layer = layer(contents)?;
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {
                "User": USER,
                "Env": ["PATH=/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
                "Entrypoint": ["/bin/numaresources-tests"],
                "WorkingDir": "/tmp",
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
            "history": [{"created_by": "cargo xtask image"}],
        });
        Ok(Self {
            layer,
            config: config.to_string().into_bytes(),
            reference: reference.to_owned(),
        })
    }

    /// Writes the archive and replaces an older one.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        make_parent(path)?;
        let mut archive = Builder::new(BufWriter::new(File::create(path)?));
        let descriptor = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &self.config),
            "layers": [descriptor(LAYER, &self.layer)],
        })
        .to_string()
        .into_bytes();
        let mut listed = descriptor(MANIFEST, &manifest);
        // the tag, in the annotations of podman and of docker
        listed["annotations"] = json!({
            "org.opencontainers.image.ref.name": self.reference,
            "io.containerd.image.name": self.reference,
        });
        let index = json!({"schemaVersion": 2, "manifests": [listed]});
        let docker = json!([{
            "Config": blob(&self.config),
            "RepoTags": [self.reference],
            "Layers": [blob(&self.layer)],
        }]);
        let text = |value: Value| value.to_string().into_bytes();
        put(
            &mut archive,
            "oci-layout",
            br#"{"imageLayoutVersion":"1.0.0"}"#,
        )?;
        put(&mut archive, "index.json", &text(index))?;
        put(&mut archive, "manifest.json", &text(docker))?;
        for bytes in [&manifest, &self.config, &self.layer] {
            put(&mut archive, &blob(bytes), bytes)?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }
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

fn put(archive: &mut Builder<impl Write>, path: &str, bytes: &[u8]) -> std::io::Result<()> {
    let header = header(EntryType::Regular, 0o644, bytes.len() as u64);
    append(archive, header, path, bytes)
}

fn append(
    archive: &mut Builder<impl Write>,
    mut header: Header,
    path: &str,
    bytes: impl Read,
) -> std::io::Result<()> {
    archive.append_data(&mut header, path, bytes)
}

/// Returns a header for an entry that root owns, with a fixed time.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Returns the path of a blob in the archive.
fn blob(bytes: &[u8]) -> String {
    format!("blobs/{}", digest(bytes).replace(':', "/"))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_archive_names_is_in_it_with_the_right_digest() {
        let contents = Contents(vec![
            ("tmp".into(), Entry::Directory { mode: 0o1777 }),
            ("etc/passwd".into(), Entry::Text("root\n".to_owned())),
            ("pause".into(), Entry::Link("/bin/x".to_owned())),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/image.tar");
        let layout = Layout::new(&contents, "localhost/a:b").unwrap();
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
            assert_eq!(digest(bytes), value["digest"].as_str().unwrap());
            assert_eq!(value["size"], bytes.len());
            bytes.clone()
        };
        let manifest: Value =
            serde_json::from_slice(&of(&read("index.json")["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&of(&manifest["config"])).unwrap();
        let layer = of(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        let docker = read("manifest.json");
        assert!(files.contains_key(docker[0]["Config"].as_str().unwrap()));
        assert!(files.contains_key(docker[0]["Layers"][0].as_str().unwrap()));
    }
}
