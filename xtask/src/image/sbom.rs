//! The bill of materials beside each image: what its programs really link, and its other files, as CycloneDX 1.5 in JSON.
//!
//! `cargo tree` says what is linked, because it resolves features as the build does: `cargo metadata` would add what only tests use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::contents::{Contents, Entry, certificates};
use super::origin::{Origin, VERSION};
use super::shell::{self, Shell};
use super::variant::{PROGRAMS, Variant};
use super::{Build, make_parent};
use crate::cargo;

/// A package by name and version.
type Key = (String, String);

/// What the programs link.
#[derive(Clone, Debug, Default)]
pub(super) struct Linked {
    packages: BTreeMap<Key, Package>,
    rustc: String,
    libc: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Package {
    licence: String,
    /// A package of this workspace comes from no registry.
    own: bool,
    uses: BTreeSet<Key>,
}

impl Linked {
    /// Asks cargo what a build links.
    ///
    /// # Errors
    /// Returns an error if cargo cannot tell, or tells it in an unknown form.
    pub(super) fn find(build: &Build) -> anyhow::Result<Self> {
        let mut tree = cargo::command();
        tree.args(["tree", "--locked", "--prefix", "depth"])
            .args(["--edges", "normal,no-proc-macro"])
            .args(["--format", "{p}\t{l}", "--target", &build.target])
            .args(PROGRAMS.iter().flat_map(|program| ["-p", program.package]));
        build.apply_to(&mut tree);
        let output = tree.output().context("starting cargo tree")?;
        ensure!(
            output.status.success(),
            "cargo tree ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let tree = String::from_utf8(output.stdout).context("reading the output of cargo tree")?;
        Ok(Self {
            packages: parse(&tree)?,
            rustc: build.rustc.clone(),
            libc: build.libc(),
        })
    }

    /// Returns the packages that a package needs, itself included.
    fn reach(&self, roots: &[&str]) -> BTreeSet<&Key> {
        let mut open: Vec<&Key> = self
            .packages
            .iter()
            .filter(|((name, _), package)| package.own && roots.contains(&name.as_str()))
            .map(|(key, _)| key)
            .collect();
        let mut reached = BTreeSet::new();
        while let Some(key) = open.pop() {
            if reached.insert(key) {
                open.extend(self.packages[key].uses.iter());
            }
        }
        reached
    }
}

/// Reads `cargo tree --prefix depth`: the depth, the package, its licence, and `(*)` where its own packages stand further up.
fn parse(tree: &str) -> anyhow::Result<BTreeMap<Key, Package>> {
    let mut packages: BTreeMap<Key, Package> = BTreeMap::new();
    let mut path: Vec<Key> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let unknown = || format!("cargo tree printed {line:?}");
        let (package, licence) = line.split_once('\t').with_context(unknown)?;
        let digits = package.bytes().take_while(u8::is_ascii_digit).count();
        let (depth, package) = package.split_at(digits);
        let depth: usize = depth.parse().with_context(unknown)?;
        let mut words = package.split(' ');
        let name = words.next().with_context(unknown)?.to_owned();
        let version = words.next().and_then(|word| word.strip_prefix('v'));
        let key = (name, version.with_context(unknown)?.to_owned());
        ensure!(depth <= path.len(), unknown());
        path.truncate(depth);
        if let Some(parent) = path.last() {
            let parent = packages.entry(parent.clone()).or_default();
            parent.uses.insert(key.clone());
        }
        let entry = packages.entry(key.clone()).or_default();
        let licence = licence.trim_end_matches("(*)").trim();
        // an old form that is no expression
        entry.licence = licence.replace('/', " OR ").replace("  ", " ");
        entry.own = package.contains(" (/");
        path.push(key);
    }
    Ok(packages)
}

/// Hashes of files, because two images have the same large programs.
#[derive(Debug, Default)]
pub(super) struct Hashes(BTreeMap<PathBuf, String>);

impl Hashes {
    fn of(&mut self, file: &Path) -> anyhow::Result<&str> {
        if !self.0.contains_key(file) {
            let bytes =
                std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            let hash = HEXLOWER.encode(&Sha256::digest(bytes));
            self.0.insert(file.to_owned(), hash);
        }
        Ok(&self.0[file])
    }
}

/// Renders the bill of an image.
///
/// # Errors
/// Returns an error if a file of the image cannot be read.
pub(super) fn render(
    variant: Variant,
    contents: &Contents,
    linked: &Linked,
    shell: Option<&Shell>,
    origin: &Origin,
    hashes: &mut Hashes,
) -> anyhow::Result<Value> {
    let roots: Vec<&str> = variant
        .programs()
        .iter()
        .map(|program| program.package)
        .collect();
    let reached = linked.reach(&roots);
    let mut components = Vec::new();
    let mut edges = Vec::new();
    for key in &reached {
        let package = &linked.packages[*key];
        components.push(library(key, package));
        let uses: Vec<String> = package.uses.iter().map(purl).collect();
        edges.push(json!({"ref": purl(key), "dependsOn": uses}));
    }
    // linked into every program
    components.push(part(
        "library",
        "rust-std",
        &linked.rustc,
        "MIT OR Apache-2.0",
    ));
    let (name, version) = linked.libc.split_once(' ').unwrap_or((&linked.libc, ""));
    let licence = if name == "musl" {
        "MIT"
    } else {
        "LGPL-2.1-or-later"
    };
    components.push(part("library", name, version, licence));
    for (path, entry) in &contents.0 {
        let Entry::File { source, .. } = entry else {
            continue;
        };
        let mut file = match path.as_str() {
            shell::PATH => {
                let version = shell.map(Shell::version).transpose()?.unwrap_or_default();
                part("application", "busybox", &version, "GPL-2.0-only")
            }
            path if path == certificates() => part("data", "ca-certificates", "", "MPL-2.0"),
            path if path.starts_with("bin/") => part("application", path, VERSION, "Apache-2.0"),
            path => json!({"type": "file", "bom-ref": path, "name": path}),
        };
        file["hashes"] = json!([{"alg": "SHA-256", "content": hashes.of(source)?}]);
        file["properties"] = json!([{"name": "path", "value": format!("/{path}")}]);
        components.push(file);
    }
    let mut metadata = json!({
        "component": {
            "type": "container",
            "bom-ref": "image",
            "name": format!("numaresources/{}", variant.name()),
            "version": VERSION,
            "description": variant.description(),
        },
        "properties": [{"name": "commit", "value": origin.commit}],
    });
    if let Some(date) = &origin.date {
        metadata["timestamp"] = json!(date);
    }
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": edges,
    }))
}

/// Writes a bill beside its image.
pub(super) fn write(bill: &Value, path: &Path) -> anyhow::Result<()> {
    let text = format!("{bill:#}\n");
    make_parent(path)
        .and_then(|()| std::fs::write(path, text))
        .with_context(|| format!("writing {}", path.display()))
}

fn library(key: &Key, package: &Package) -> Value {
    let mut library = json!({
        "type": "library", "bom-ref": purl(key), "name": key.0, "version": key.1, "purl": purl(key),
    });
    if !package.licence.is_empty() {
        library["licenses"] = json!([{"expression": package.licence}]);
    }
    library
}

fn part(kind: &str, name: &str, version: &str, licence: &str) -> Value {
    let mut part =
        json!({"type": kind, "bom-ref": name, "name": name, "licenses": [{"expression": licence}]});
    if !version.is_empty() {
        part["version"] = json!(version);
    }
    part
}

/// Returns the address of a package in the form that scanners look up.
fn purl((name, version): &Key) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::origin::tests::mk_origin;

    const TREE: &str = "0stack v0.1.0 (/src/stack)\tApache-2.0\n1rte v0.1.0 (/src/rte)\tApache-2.0\n2libc v0.2.1\tMIT/Apache-2.0\n\
                        1serde v1.0.0\tMIT OR Apache-2.0\n\n0suite v0.1.0 (/src/suite)\tApache-2.0\n1rte v0.1.0 (/src/rte)\tApache-2.0 (*)\n\
                        1etcetera v0.1.0+up.1\tMIT\n\n0scheduler v0.1.0 (/src/scheduler)\tApache-2.0\n";

    fn mk_linked() -> Linked {
        Linked {
            packages: parse(TREE).unwrap(),
            rustc: "1.95.0".into(),
            libc: "glibc 2.36".into(),
        }
    }

    fn bill(variant: Variant) -> Value {
        let contents = Contents(vec![(
            certificates().into(),
            Entry::File {
                source: concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into(),
                mode: 0o644,
                size: 1,
            },
        )]);
        let mut hashes = Hashes::default();
        let origin = mk_origin("main");
        render(variant, &contents, &mk_linked(), None, &origin, &mut hashes).unwrap()
    }

    fn names(bill: &Value) -> Vec<&str> {
        let components = bill["components"].as_array().unwrap();
        components
            .iter()
            .map(|component| component["name"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn a_bill_has_what_its_own_programs_link_and_the_other_files() {
        let stack = bill(Variant::Stack);
        let expected = [
            "libc",
            "rte",
            "scheduler",
            "serde",
            "stack",
            "rust-std",
            "glibc",
            "ca-certificates",
        ];
        assert_eq!(names(&stack), expected);
        let libc = &stack["components"][0];
        assert_eq!(libc["licenses"][0]["expression"], "MIT OR Apache-2.0");
        // what stands only once in the tree belongs to whoever comes later, too
        let tests = bill(Variant::Tests);
        assert!(names(&tests).contains(&"etcetera"));
    }

    #[test]
    fn every_field_that_the_schema_requires_is_there_and_every_reference_is_unique() {
        let bill = bill(Variant::Tests);
        assert_eq!(bill["bomFormat"], "CycloneDX");
        assert_eq!(bill["specVersion"], "1.5");
        assert_eq!(bill["metadata"]["timestamp"], "2026-01-02T03:04:05Z");
        let components = bill["components"].as_array().unwrap();
        let known: BTreeSet<&str> = components
            .iter()
            .inspect(|component| assert!(component["type"].is_string(), "{component}"))
            .map(|component| component["bom-ref"].as_str().unwrap())
            .collect();
        assert_eq!(known.len(), components.len());
        assert!(known.contains("pkg:cargo/etcetera@0.1.0%2Bup.1"));
        for edge in bill["dependencies"].as_array().unwrap() {
            let uses = edge["dependsOn"].as_array().unwrap().iter();
            for name in uses.chain([&edge["ref"]]) {
                assert!(known.contains(name.as_str().unwrap()), "{name}");
            }
        }
        assert!(!bill.to_string().contains("/src/"), "a path of the machine");
    }

    #[test]
    fn a_tree_in_another_form_is_an_error() {
        let error = parse("0operator\tMIT\n").unwrap_err().to_string();
        assert!(error.contains("operator"), "{error}");
        assert!(parse("3operator v1.0.0\tMIT\n").is_err());
    }
}
