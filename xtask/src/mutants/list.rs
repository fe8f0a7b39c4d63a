//! The committed list of deliberate faults, and what has to be true of it.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::Digest;

/// Where the lists are, one file for each product.
const LISTS: &str = "xtask/mutants";
/// The products, whose names are those of the lists and begin the names of their mutants.
const PRODUCTS: [&str; 3] = ["exporter", "operator", "scheduler"];
/// The least number of mutants that proves something about the suite.
const LEAST: usize = 80;
/// Sources of the products and of the packages that they are linked with. What the suite has in common with them is built without any edit,
/// so a fault in such a package is one of the products alone.
const SOURCES: [&str; 12] = [
    "crates/api/src",
    "crates/apply/src",
    "crates/daemon/src",
    "crates/goflags/src",
    "crates/manifests/src",
    "crates/nrt/src",
    "crates/podresources/src",
    "crates/topology/src",
    "operator/src",
    "rte/src",
    "scheduler-config/src",
    "scheduler/src",
];

/// Where the idea of a fault comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// A flaw of the original that `docs/reference` tells of.
    Reference,
    /// A bug of this project that is mended.
    Mended,
    /// What a reviewer would fear.
    Feared,
}

impl Source {
    /// Returns the word for tables.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Mended => "mended",
            Self::Feared => "feared",
        }
    }
}

/// A deliberate fault: one edit of one file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    /// `product/what-is-wrong`.
    pub(crate) name: String,
    /// Where the idea comes from.
    pub(crate) source: Source,
    /// What a user would suffer, one sentence.
    pub(crate) why: String,
    /// The file, from the root.
    pub(crate) file: String,
    /// Text that is exactly once in the file.
    pub(crate) find: String,
    /// What it becomes.
    pub(crate) replace: String,
    /// Scenarios outside tier 0 that are meant to notice it. They run before all the others, and these only if they notice nothing.
    #[serde(default)]
    pub(crate) noticed_by: Vec<String>,
    /// Why no scenario can notice it.
    #[serde(default)]
    pub(crate) explained: Option<String>,
}

impl Mutant {
    /// Returns what identifies the edit, whatever its name is and whatever is said about it.
    pub(crate) fn digest(&self) -> String {
        let mut digest = Digest::default();
        for part in [&self.file, &self.find, &self.replace] {
            digest.add(part.as_bytes());
        }
        digest.text()
    }

    /// Returns the file's text with the fault.
    ///
    /// # Errors
    /// Returns what is wrong unless the text to find is there exactly once.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!(
                "{}: the text to find is {count} times in {}, not once: bring the edit up to date with the file",
                self.name, self.file
            )),
        }
    }
}

/// Reads the lists of all products.
///
/// # Errors
/// Returns an error if a list cannot be read or parsed.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let mut all = Vec::new();
    for product in PRODUCTS {
        let name = format!("{LISTS}/{product}.yaml");
        let text =
            std::fs::read_to_string(root.join(&name)).with_context(|| format!("reading {name}"))?;
        let mutants: Vec<Mutant> =
            serde_yaml::from_str(&text).with_context(|| format!("parsing {name}"))?;
        all.extend(mutants);
    }
    Ok(all)
}

/// Returns all that is wrong with the list, one sentence each.
pub(crate) fn check(root: &Path, mutants: &[Mutant]) -> Vec<String> {
    let mut wrong = Vec::new();
    if mutants.len() < LEAST {
        wrong.push(format!(
            "{LISTS} has {} mutants: at least {LEAST} are needed",
            mutants.len()
        ));
    }
    let mut names = BTreeSet::new();
    let mut digests = BTreeSet::new();
    for mutant in mutants {
        let name = &mutant.name;
        if !names.insert(name) {
            wrong.push(format!("{name}: another mutant has this name"));
        }
        if !digests.insert(mutant.digest()) {
            wrong.push(format!("{name}: another mutant is the same edit"));
        }
        wrong.extend(check_one(root, mutant));
    }
    wrong
}

fn check_one(root: &Path, mutant: &Mutant) -> Vec<String> {
    let name = &mutant.name;
    let mut wrong = Vec::new();
    if !is_named_well(name) {
        wrong.push(format!(
            "{name}: a name is one of {}, a slash, and words with hyphens",
            PRODUCTS.join(", ")
        ));
    }
    if mutant.why.trim().is_empty() || mutant.why.contains('\n') {
        wrong.push(format!(
            "{name}: `why` has to be one line that says what a user would suffer"
        ));
    }
    if mutant.find == mutant.replace {
        wrong.push(format!("{name}: the edit changes nothing"));
    }
    if !is_source(&mutant.file) {
        wrong.push(format!(
            "{name}: {} is no source of a product or of a package that one is linked with",
            mutant.file
        ));
        return wrong;
    }
    match std::fs::read_to_string(root.join(&mutant.file)) {
        Err(error) => wrong.push(format!("{name}: {} cannot be read: {error}", mutant.file)),
        Ok(text) => wrong.extend(mutant.apply(&text).err()),
    }
    wrong
}

fn is_named_well(name: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.split_once('/')
        .is_some_and(|(product, rest)| PRODUCTS.contains(&product) && rest.split('-').all(is_word))
}

fn is_source(file: &str) -> bool {
    let path = Path::new(file);
    let is_plain = path
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    is_plain && SOURCES.iter().any(|source| path.starts_with(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn mutant(name: &str, find: &str) -> Mutant {
        Mutant {
            name: name.to_owned(),
            source: Source::Feared,
            why: "Pods wait forever.".to_owned(),
            file: "scheduler/src/lib.rs".to_owned(),
            find: find.to_owned(),
            replace: "other".to_owned(),
            noticed_by: Vec::new(),
            explained: None,
        }
    }

    #[test]
    fn the_committed_list_fits_the_sources() {
        let mutants = read(&root()).expect("the lists are read");
        let wrong = check(&root(), &mutants);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_source_and_product_has_mutants() {
        let mutants = read(&root()).expect("the lists are read");
        for source in [Source::Reference, Source::Mended, Source::Feared] {
            assert!(
                mutants.iter().any(|mutant| mutant.source == source),
                "{source:?}"
            );
        }
        for product in PRODUCTS {
            assert!(
                mutants
                    .iter()
                    .any(|mutant| mutant.name.starts_with(product)),
                "{product}"
            );
        }
    }

    #[test]
    fn a_text_that_is_missing_or_twice_there_is_refused() {
        let once = mutant("scheduler/a", "one");
        assert_eq!(once.apply("zero one two"), Ok("zero other two".to_owned()));
        for (text, count) in [("zero", 0), ("one one", 2)] {
            let error = once.apply(text).unwrap_err();
            assert!(error.contains(&format!("is {count} times in")), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_named() {
        let wrong = check(
            &root(),
            &[mutant("scheduler/a", "//!"), mutant("scheduler/a", "//!")],
        );
        let has = |end: &str| wrong.iter().any(|line| line.ends_with(end));
        assert!(has("another mutant has this name"), "{wrong:?}");
        assert!(has("another mutant is the same edit"), "{wrong:?}");
        assert!(has("at least 80 are needed"), "{wrong:?}");
    }

    #[test]
    fn a_name_begins_with_its_product() {
        assert!(is_named_well("exporter/zone-twice"));
        for name in [
            "suite/a",
            "exporter",
            "exporter/",
            "exporter/A",
            "exporter/a--b",
        ] {
            assert!(!is_named_well(name), "{name}");
        }
    }

    #[test]
    fn only_what_a_product_is_linked_with_is_edited() {
        assert!(is_source("crates/topology/src/mask.rs"));
        for file in [
            "suite/src/lib.rs",
            "crates/sim/src/lib.rs",
            "rte/src/../../suite/src/lib.rs",
            "/etc/passwd",
        ] {
            assert!(!is_source(file), "{file}");
        }
    }

    #[test]
    fn a_digest_is_that_of_the_edit_alone() {
        let first = mutant("scheduler/a", "one");
        let mut renamed = mutant("scheduler/b", "one");
        renamed.explained = Some("nobody sees it".to_owned());
        assert_eq!(first.digest(), renamed.digest());
        assert_ne!(first.digest(), mutant("scheduler/a", "two").digest());
    }
}
