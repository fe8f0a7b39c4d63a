//! The images of the nodes as a registry takes them, made from the table that the builtin runtime uses: programs of this machine, the shared
//! libraries that they need, and links. Each program is a layer of its own, so images share what they have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster_spec::images::{Image, Reference};
use oci_archive::{Blob, CERTIFICATES, append, header, put};
use programs::child::output_within;
use serde_json::{Value, json};
use tar::{Builder, EntryType};

/// Longest time for `ldd` to list the libraries of a program.
const LDD_LIMIT: Duration = Duration::from_secs(30);
const USERS: &str = "root:x:0:0:root:/root:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n";
/// Label of an image with its name, by which images with the same content differ.
const TITLE: &str = "org.opencontainers.image.title";

/// An image that can be pushed.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// Its name, with the tag.
    pub(crate) name: String,
    /// Its layers, the lowest first.
    pub(crate) layers: Vec<Layer>,
    /// Its configuration.
    pub(crate) config: String,
    /// Its manifest.
    pub(crate) manifest: String,
}

/// A layer in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The file, a tar archive.
    pub(crate) file: PathBuf,
    /// Its digest and size.
    pub(crate) blob: Blob,
}

impl Packed {
    fn new(name: &str, image: &Image, layers: Vec<Layer>) -> Self {
        let config = config(name, image, &layers).to_string();
        let config_blob = Blob::of_bytes(config.as_bytes());
        let blobs = layers.iter().map(|layer| &layer.blob);
        let manifest = oci_archive::manifest(&config_blob, blobs).to_string();
        Self {
            name: name.to_owned(),
            layers,
            config,
            manifest,
        }
    }

    /// Returns its digest, which is that of its manifest.
    pub(crate) fn digest(&self) -> String {
        Blob::of_bytes(self.manifest.as_bytes()).digest
    }

    /// Returns its reference by digest.
    pub(crate) fn reference(&self) -> String {
        let repository = Reference::parse(&self.name).repository;
        format!("{repository}@{}", self.digest())
    }
}

/// Packs images, given with their names, into files of a directory, which is made.
pub(crate) fn pack(dir: &Path, images: &[(String, Image)]) -> std::io::Result<Vec<Packed>> {
    fs_err::create_dir_all(dir)?;
    let base = write_layer(dir.join("base"), |layer| write_base(layer, images))?;
    // A program is the same layer in all images, so it has the paths of all of them.
    let mut places: Vec<(&Path, BTreeSet<&Path>)> = Vec::new();
    for (place, program) in images.iter().flat_map(|(_, image)| &image.programs) {
        match places.iter_mut().find(|(known, _)| known == program) {
            Some((_, places)) => {
                places.insert(place);
            }
            None => places.push((program, BTreeSet::from([place.as_path()]))),
        }
    }
    let mut layers = Vec::new();
    for (index, (program, places)) in places.iter().enumerate() {
        let file = dir.join(format!("program-{index}"));
        let layer = write_layer(file, |layer| write_program(layer, program, places))?;
        layers.push((*program, layer));
    }
    let packed = images.iter().map(|(name, image)| {
        let has = |program: &Path| image.programs.values().any(|own| own == program);
        let own = layers.iter().filter(|(program, _)| has(program));
        let own = own.map(|(_, layer)| layer.clone());
        Packed::new(
            name,
            image,
            std::iter::once(base.clone()).chain(own).collect(),
        )
    });
    Ok(packed.collect())
}

fn config(name: &str, image: &Image, layers: &[Layer]) -> Value {
    let user = image.user.map(|user| user.to_string()).unwrap_or_default();
    let layers: Vec<&str> = layers
        .iter()
        .map(|layer| layer.blob.digest.as_str())
        .collect();
    json!({
        "architecture": oci_archive::architecture(std::env::consts::ARCH),
        "os": "linux",
        "config": {
            "User": user,
            "Env": ["PATH=/usr/local/bin:/bin", format!("SSL_CERT_FILE={CERTIFICATES}")],
            "Entrypoint": image.entrypoint,
            "Labels": { TITLE: name },
        },
        "rootfs": { "type": "layers", "diff_ids": layers },
    })
}

type Archive = Builder<BufWriter<File>>;

fn write_layer(
    file: PathBuf,
    content: impl FnOnce(&mut Archive) -> std::io::Result<()>,
) -> std::io::Result<Layer> {
    let mut archive = Builder::new(BufWriter::new(File::create(&file)?));
    content(&mut archive)?;
    archive.into_inner()?.flush()?;
    let blob = Blob::of(File::open(&file)?)?;
    Ok(Layer { file, blob })
}

/// Writes what all images have: directories, users, trusted certificates and the shared libraries of all programs.
fn write_base(layer: &mut Archive, images: &[(String, Image)]) -> std::io::Result<()> {
    let programs: BTreeMap<&PathBuf, &PathBuf> = images
        .iter()
        .flat_map(|(_, image)| &image.programs)
        .collect();
    let mut files: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for program in programs.values().copied().collect::<BTreeSet<_>>() {
        for library in libraries(program)? {
            files.insert(library.clone(), library);
        }
    }
    if let Some(trusted) = oci_archive::trusted_certificates() {
        files.insert(PathBuf::from(CERTIFICATES), trusted);
    }
    let places = files.keys().chain(programs.keys().copied());
    let mut directories: BTreeSet<PathBuf> = places
        .flat_map(|place| place.ancestors().skip(1).map(Path::to_owned))
        .collect();
    directories.remove(Path::new("/"));
    directories.extend(["/etc", "/root"].map(PathBuf::from));
    for directory in directories {
        let header = header(EntryType::Directory, 0o755, 0);
        append(layer, header, inside(&directory), std::io::empty())?;
    }
    let shared = header(EntryType::Directory, 0o1777, 0);
    append(layer, shared, "tmp", std::io::empty())?;
    put(layer, "etc/passwd", USERS.as_bytes())?;
    for (place, source) in files {
        write_file(layer, &place, &source)?;
    }
    Ok(())
}

/// Writes a program at the first of its paths, and links to it at the others.
fn write_program(
    layer: &mut Archive,
    program: &Path,
    places: &BTreeSet<&Path>,
) -> std::io::Result<()> {
    let mut places = places.iter().copied();
    let Some(first) = places.next() else {
        return Ok(());
    };
    write_file(layer, first, program)?;
    for place in places {
        let mut header = header(EntryType::Symlink, 0o777, 0);
        layer.append_link(&mut header, inside(place), first)?;
    }
    Ok(())
}

fn write_file(layer: &mut Archive, place: &Path, source: &Path) -> std::io::Result<()> {
    let file = File::open(source)?;
    let header = header(EntryType::Regular, 0o755, file.metadata()?.len());
    append(layer, header, inside(place), file)
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

    /// Returns an image with programs that are scripts: one at two paths, and one that only the second image has.
    fn mk_images(dir: &Path) -> Vec<(String, Image)> {
        let program = |name: &str| {
            let file = dir.join(name);
            fs_err::write(&file, format!("program {name}")).unwrap();
            file
        };
        let mut small = Image::default();
        small.add("/bin/a", program("one"));
        small.add("/pause", program("one"));
        let mut large = small.clone();
        large.add("/usr/bin/b", program("two"));
        vec![
            ("localhost/x/small:dev".to_owned(), small.clone()),
            ("localhost/x/large:dev".to_owned(), large),
            ("localhost/x/again:dev".to_owned(), small),
        ]
    }

    #[test]
    fn images_share_the_layers_of_what_they_have_in_common_and_differ_in_their_digests() {
        let dir = tempfile::tempdir().unwrap();
        let packed = pack(&dir.path().join("out"), &mk_images(dir.path())).unwrap();
        let [small, large, again] = packed.as_slice() else {
            unreachable!("there are three images")
        };
        assert_eq!(small.layers, large.layers[..2]);
        assert_eq!(large.layers.len(), 3);
        assert_eq!(small.layers, again.layers);
        assert_ne!(small.digest(), again.digest());
        let digest = small.digest();
        assert_eq!(small.reference(), format!("localhost/x/small@{digest}"));
    }

    #[test]
    fn the_same_programs_give_the_same_digests() {
        let dir = tempfile::tempdir().unwrap();
        let digests = |out: &str| -> Vec<String> {
            let packed = pack(&dir.path().join(out), &mk_images(dir.path())).unwrap();
            packed.iter().map(Packed::digest).collect()
        };
        assert_eq!(digests("first"), digests("second"));
    }

    #[test]
    fn a_program_is_a_file_at_one_path_and_a_link_at_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let packed = pack(&dir.path().join("out"), &mk_images(dir.path())).unwrap();
        let mut layer = tar::Archive::new(File::open(&packed[0].layers[1].file).unwrap());
        let entries: Vec<(PathBuf, EntryType)> = layer
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (
                    entry.path().unwrap().into_owned(),
                    entry.header().entry_type(),
                )
            })
            .collect();
        let expected = [("bin/a", EntryType::Regular), ("pause", EntryType::Symlink)];
        assert_eq!(
            entries,
            expected.map(|(path, kind)| (PathBuf::from(path), kind))
        );
    }
}
