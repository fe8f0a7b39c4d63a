//! The images of the nodes as an archive (OCI image layout), made from the table that the builtin runtime uses: programs of this machine,
//! the shared libraries that they need, and links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster_spec::images::Image;
use data_encoding::HEXLOWER;
use programs::child::output_within;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// Longest time for `ldd` to list the libraries of a program.
const LDD_LIMIT: Duration = Duration::from_secs(30);
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Where operating systems keep their trusted certificates.
const TRUSTED: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// Their place in the image.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const USERS: &str = "root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n";

/// An image of the archive, with all the names that it gets.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// References; one with a digest is a name like any other, because no registry knows the image.
    pub(crate) names: Vec<String>,
    /// Programs, user and command.
    pub(crate) image: Image,
}

/// Writes the archive. All images have the same programs, so they share one layer.
pub(crate) fn write(path: &Path, images: &[Named]) -> std::io::Result<()> {
    let layer_file = path.with_extension("layer");
    let mut files = BTreeMap::new();
    for named in images {
        files.extend(named.image.programs.clone());
    }
    write_layer(&layer_file, &files)?;
    let (layer, size) = digest_of(&layer_file)?;
    let mut archive = Builder::new(BufWriter::new(File::create(path)?));
    put(
        &mut archive,
        "oci-layout",
        br#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let mut listed = Vec::new();
    let mut blobs = BTreeMap::new();
    for named in images {
        let config = config(&named.image, &layer).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": digest(&config), "size": config.len() },
            "layers": [{ "mediaType": LAYER, "digest": layer, "size": size }],
        })
        .to_string()
        .into_bytes();
        for name in &named.names {
            listed.push(json!({
                "mediaType": MANIFEST,
                "digest": digest(&manifest),
                "size": manifest.len(),
                "annotations": { "io.containerd.image.name": name },
            }));
        }
        for bytes in [config, manifest] {
            blobs.insert(digest(&bytes), bytes);
        }
    }
    for (digest, bytes) in &blobs {
        put(&mut archive, &blob(digest), bytes)?;
    }
    let mut file = File::open(&layer_file)?;
    append(
        &mut archive,
        EntryType::Regular,
        0o644,
        size,
        blob(&layer),
        &mut file,
    )?;
    let index = json!({ "schemaVersion": 2, "manifests": listed });
    put(&mut archive, "index.json", index.to_string().as_bytes())?;
    archive.into_inner()?.flush()?;
    fs_err::remove_file(layer_file)
}

fn config(image: &Image, layer: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let user = image.user.map(|user| user.to_string()).unwrap_or_default();
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": user,
            "Env": ["PATH=/usr/local/bin:/bin", format!("SSL_CERT_FILE={CERTIFICATES}")],
            "Entrypoint": image.entrypoint,
        },
        "rootfs": { "type": "layers", "diff_ids": [layer] },
    })
}

/// Writes one layer with these programs, each once; further paths of a program are links.
fn write_layer(path: &Path, programs: &BTreeMap<PathBuf, PathBuf>) -> std::io::Result<()> {
    let mut layer = Builder::new(BufWriter::new(File::create(path)?));
    let mut directories = BTreeSet::new();
    let mut files: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut links: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut first: BTreeMap<&Path, &Path> = BTreeMap::new();
    for (place, program) in programs {
        if let Some(original) = first.get(program.as_path()) {
            links.insert(place.clone(), (*original).to_owned());
            continue;
        }
        first.insert(program, place);
        files.insert(place.clone(), program.clone());
        for library in libraries(program)? {
            files.insert(library.clone(), library);
        }
    }
    if let Some(trusted) = TRUSTED.iter().map(Path::new).find(|path| path.is_file()) {
        files.insert(PathBuf::from(CERTIFICATES), trusted.to_owned());
    }
    for place in files.keys().chain(links.keys()) {
        directories.extend(place.ancestors().skip(1).map(Path::to_owned));
    }
    directories.remove(Path::new("/"));
    directories.insert(PathBuf::from("/root"));
    for directory in directories {
        let empty = std::io::empty();
        append(
            &mut layer,
            EntryType::Directory,
            0o755,
            0,
            inside(&directory),
            empty,
        )?;
    }
    append(
        &mut layer,
        EntryType::Directory,
        0o1777,
        0,
        "tmp",
        std::io::empty(),
    )?;
    put(&mut layer, "etc/passwd", USERS.as_bytes())?;
    for (place, source) in files {
        let file = File::open(&source)?;
        let size = file.metadata()?.len();
        append(
            &mut layer,
            EntryType::Regular,
            0o755,
            size,
            inside(&place),
            file,
        )?;
    }
    for (place, target) in links {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, inside(&place), target)?;
    }
    layer.into_inner()?.flush()
}

/// Returns the dynamic linker and the shared libraries of a program; a static program has none.
fn libraries(program: &Path) -> std::io::Result<Vec<PathBuf>> {
    let output = output_within(Command::new("ldd").arg(program), LDD_LIMIT)?;
    // `ldd` fails for a program that is not dynamic.
    Ok(parse_ldd(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_ldd(text: &str) -> Vec<PathBuf> {
    let paths = text
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths
        .map(|path| PathBuf::from(path.trim_end_matches(':')))
        .collect()
}

fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn put(archive: &mut Builder<impl Write>, path: &str, bytes: &[u8]) -> std::io::Result<()> {
    append(
        archive,
        EntryType::Regular,
        0o644,
        bytes.len() as u64,
        path,
        bytes,
    )
}

fn append(
    archive: &mut Builder<impl Write>,
    kind: EntryType,
    mode: u32,
    size: u64,
    path: impl AsRef<Path>,
    bytes: impl Read,
) -> std::io::Result<()> {
    archive.append_data(&mut header(kind, mode, size), path, bytes)
}

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

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// Returns digest and size of a file.
fn digest_of(path: &Path) -> std::io::Result<(String, u64)> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let (mut size, mut chunk) = (0, vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        hasher.update(&chunk[..count]);
        size += count as u64;
    }
    Ok((
        format!("sha256:{}", HEXLOWER.encode(&hasher.finalize())),
        size,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linker_and_libraries_are_found_in_the_output_of_ldd() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        assert_eq!(
            parse_ldd(text),
            [Path::new("/lib/x/libm.so.6"), Path::new("/lib64/ld.so.2")]
        );
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }
}
