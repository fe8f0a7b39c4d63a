//! The images of the nodes as an archive (OCI image layout), made from the table that the builtin runtime uses: programs of this machine,
//! the shared libraries that they need, and links.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster_spec::images::Image;
use oci_archive::{Blob, CERTIFICATES, append, header, put};
use programs::child::output_within;
use serde_json::{Value, json};
use tar::{Builder, EntryType};

/// Longest time for `ldd` to list the libraries of a program.
const LDD_LIMIT: Duration = Duration::from_secs(30);
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
    let layer = Blob::of(File::open(&layer_file)?)?;
    let mut listed = Vec::new();
    let mut blobs = BTreeMap::new();
    for named in images {
        let config = config(&named.image, &layer.digest).to_string();
        let config_blob = Blob::of_bytes(config.as_bytes());
        let manifest = oci_archive::manifest(&config_blob, &layer).to_string();
        let manifest_blob = Blob::of_bytes(manifest.as_bytes());
        for name in &named.names {
            let mut entry = manifest_blob.descriptor(oci_archive::MANIFEST);
            entry["annotations"] = json!({ oci_archive::NAME_ANNOTATION: name });
            listed.push(entry);
        }
        blobs.extend([
            (config_blob.path(), config),
            (manifest_blob.path(), manifest),
        ]);
    }
    let mut archive = Builder::new(BufWriter::new(File::create(path)?));
    oci_archive::put_index(&mut archive, &listed)?;
    for (path, text) in &blobs {
        put(&mut archive, path, text.as_bytes())?;
    }
    append(
        &mut archive,
        header(EntryType::Regular, 0o644, layer.size),
        layer.path(),
        File::open(&layer_file)?,
    )?;
    archive.into_inner()?.flush()?;
    fs_err::remove_file(layer_file)
}

fn config(image: &Image, layer: &str) -> Value {
    let user = image.user.map(|user| user.to_string()).unwrap_or_default();
    json!({
        "architecture": oci_archive::architecture(std::env::consts::ARCH),
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
    if let Some(trusted) = oci_archive::trusted_certificates() {
        files.insert(PathBuf::from(CERTIFICATES), trusted);
    }
    for place in files.keys().chain(links.keys()) {
        directories.extend(place.ancestors().skip(1).map(Path::to_owned));
    }
    directories.remove(Path::new("/"));
    directories.insert(PathBuf::from("/root"));
    for directory in directories {
        let header = header(EntryType::Directory, 0o755, 0);
        append(&mut layer, header, inside(&directory), std::io::empty())?;
    }
    let shared = header(EntryType::Directory, 0o1777, 0);
    append(&mut layer, shared, "tmp", std::io::empty())?;
    put(&mut layer, "etc/passwd", USERS.as_bytes())?;
    for (place, source) in files {
        let file = File::open(&source)?;
        let header = header(EntryType::Regular, 0o755, file.metadata()?.len());
        append(&mut layer, header, inside(&place), file)?;
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
