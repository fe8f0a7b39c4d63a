//! The parts of an image's archive in the OCI image layout: entries of a layer, blobs by their digests, manifests, the index.
//!
//! What an image holds, and how its archive is put together, is the caller's. The same calls give the same bytes: entries belong to root and have
//! a fixed time.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// Media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Annotation of a manifest in the index with the name of the image, as containerd and podman read it.
pub const NAME_ANNOTATION: &str = "io.containerd.image.name";
/// Where an image has the trusted certificates, and where many operating systems have them.
pub const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// All places where operating systems have their trusted certificates.
const TRUSTED: [&str; 3] = [
    CERTIFICATES,
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// The name and the size of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// Size, in bytes.
    pub size: u64,
}

impl Blob {
    /// Reads everything and names it.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn of(mut bytes: impl Read) -> io::Result<Self> {
        let (mut hasher, mut size) = (Sha256::new(), 0);
        let mut chunk = vec![0; 1 << 20];
        loop {
            let count = bytes.read(&mut chunk)?;
            if count == 0 {
                break;
            }
            hasher.update(&chunk[..count]);
            size += count as u64;
        }
        Ok(Self {
            digest: named(&hasher.finalize()),
            size,
        })
    }

    /// Names bytes in memory.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            digest: named(&Sha256::digest(bytes)),
            size: bytes.len() as u64,
        }
    }

    /// Returns its path in the archive.
    pub fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }

    /// Returns what refers to it, with its media type.
    pub fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.size })
    }
}

fn named(hash: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(hash))
}

/// Returns the manifest of an image with these layers, the lowest first.
pub fn manifest<'a>(config: &Blob, layers: impl IntoIterator<Item = &'a Blob>) -> Value {
    let layers: Vec<Value> = layers
        .into_iter()
        .map(|layer| layer.descriptor(LAYER))
        .collect();
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(CONFIG),
        "layers": layers,
    })
}

/// Writes the mark of the layout and the index of these manifests.
///
/// # Errors
/// Returns an error if the archive cannot be written.
pub fn put_index(archive: &mut Builder<impl Write>, manifests: &[Value]) -> io::Result<()> {
    put(archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let index = json!({ "schemaVersion": 2, "manifests": manifests });
    put(archive, "index.json", index.to_string().as_bytes())
}

/// Writes a file that everybody may read.
///
/// # Errors
/// Returns an error if the archive cannot be written.
pub fn put(
    archive: &mut Builder<impl Write>,
    path: impl AsRef<Path>,
    bytes: &[u8],
) -> io::Result<()> {
    let header = header(EntryType::Regular, 0o644, bytes.len() as u64);
    append(archive, header, path, bytes)
}

/// Writes an entry whose content has the header's size.
///
/// # Errors
/// Returns an error if the content cannot be read, or the archive cannot be written.
pub fn append(
    archive: &mut Builder<impl Write>,
    mut header: Header,
    path: impl AsRef<Path>,
    content: impl Read,
) -> io::Result<()> {
    archive.append_data(&mut header, path, content)
}

/// Returns a header for an entry that root owns, with a fixed time.
pub fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Returns what images call a processor, by Rust's name of it.
pub fn architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Returns the file with the certificates that this machine trusts, if it has one.
pub fn trusted_certificates() -> Option<PathBuf> {
    let mut places = TRUSTED.iter().map(PathBuf::from);
    places.find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_the_same_name_however_it_is_read() {
        let bytes = vec![7; (1 << 20) + 5];
        let blob = Blob::of(bytes.as_slice()).unwrap();
        assert_eq!(blob, Blob::of_bytes(&bytes));
        assert_eq!(blob.size, 1_048_581);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let blob = Blob::of_bytes(b"abc");
        assert_eq!(blob.digest, format!("sha256:{abc}"));
        assert_eq!(blob.path(), format!("blobs/sha256/{abc}"));
    }

    #[test]
    fn entries_of_a_layer_are_the_same_whenever_they_are_written() {
        let mut layer = Builder::new(Vec::new());
        put(&mut layer, "etc/passwd", b"root").unwrap();
        let bytes = layer.into_inner().unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entry = archive.entries().unwrap().next().unwrap().unwrap();
        let header = entry.header();
        assert_eq!(
            (
                header.mtime().unwrap(),
                header.uid().unwrap(),
                header.mode().unwrap()
            ),
            (0, 0, 0o644)
        );
    }
}
