//! The circle check: modules with the same parent import each other in one direction only.
//!
//! A module and everything below it count as one. What a parent uses of its children, and children of their parent, is left out: a parent
//! declares its children and often holds what they share. Tests are left out, too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Meta, UseTree};

/// A module, by the names on the way to it from the root of its package.
type Module = Vec<String>;

/// Imports between modules with the same parent: from → to → a file in which it stands.
type Imports = BTreeMap<Module, BTreeMap<Module, PathBuf>>;

/// Returns the circles below a package's `src`, one sentence each.
///
/// # Errors
/// Returns an error if a file cannot be read or is no Rust.
pub(super) fn find(package: &str, src: &Path) -> anyhow::Result<Vec<String>> {
    let mut imports = Imports::new();
    let mut all = Vec::new();
    let mut tests = BTreeSet::new();
    for file in files(src)? {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("reading {}", file.display()))?;
        let parsed =
            syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))?;
        let relative = file.strip_prefix(src).unwrap_or(&file);
        let mut references = References {
            module: module_of(relative),
            found: BTreeSet::new(),
            tests: Vec::new(),
        };
        references.visit_file(&parsed);
        tests.extend(references.tests.drain(..));
        all.push((relative.to_owned(), references));
    }
    for (relative, References { module, found, .. }) in all {
        if (1..=module.len()).any(|length| tests.contains(&module[..length])) {
            continue;
        }
        for to in found {
            if let Some((from, to)) = siblings(&module, &to) {
                let places = imports.entry(from).or_default();
                places.entry(to).or_insert_with(|| relative.clone());
            }
        }
    }
    Ok(circles(&imports)
        .into_iter()
        .map(|circle| describe(package, &circle, &imports))
        .collect())
}

fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the module that a file below `src` holds.
fn module_of(file: &Path) -> Module {
    let mut names: Module = file
        .with_extension("")
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if names.len() == 1 && matches!(names[0].as_str(), "lib" | "main") {
        names.clear();
    }
    names
}

/// Returns the two modules below the last common parent on the way to `from` and to `to`, if there are two.
fn siblings(from: &Module, to: &Module) -> Option<(Module, Module)> {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let below = |module: &Module| module.get(..=common).map(<[String]>::to_vec);
    Some((below(from)?, below(to)?))
}

/// Collects the modules that a file names from the root of the package or from its parents.
struct References {
    module: Module,
    found: BTreeSet<Module>,
    /// Modules in files of their own that exist only in tests.
    tests: Vec<Module>,
}

impl References {
    fn note(&mut self, path: &[String]) {
        let mut names = path.iter();
        let mut target = match names.next().map(String::as_str) {
            Some("crate") => Module::new(),
            Some("super") => parent(&self.module),
            _ => return,
        };
        for name in names {
            if name == "super" {
                target = parent(&target);
            } else {
                target.push(name.clone());
            }
        }
        self.found.insert(target);
    }

    fn note_tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.note_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_tree(tree, before);
                }
            }
            UseTree::Name(name) => self.note_leaf(before, &name.ident.to_string()),
            UseTree::Rename(name) => self.note_leaf(before, &name.ident.to_string()),
            UseTree::Glob(_) => self.note(before),
        }
    }

    fn note_leaf(&mut self, before: &[String], name: &str) {
        let mut path = before.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        self.note(&path);
    }
}

fn parent(module: &Module) -> Module {
    let mut parent = module.clone();
    parent.pop();
    parent
}

impl<'ast> Visit<'ast> for References {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test(&item.attrs) {
            self.note_tree(&item.tree, &mut Vec::new());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_test(&item.attrs) {
            let mut module = self.module.clone();
            module.push(item.ident.to_string());
            self.tests.push(module);
            return;
        }
        // what stands in braces is a module of its own: `super` is this file there
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.note(&names);
        visit::visit_path(self, path);
    }
}

/// Returns whether an item exists only in tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

/// Returns the groups of modules that reach each other, the smallest description of every circle.
fn circles(imports: &Imports) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .keys()
        .map(|module| (module, reach(module, imports)))
        .collect();
    let reaches =
        |from: &Module, to: &Module| reached.get(from).is_some_and(|all| all.contains(to));
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in imports.keys() {
        if !reaches(module, module) || seen.contains(module) {
            continue;
        }
        let circle: Vec<Module> = imports
            .keys()
            .filter(|other| reaches(module, other) && reaches(other, module))
            .cloned()
            .collect();
        seen.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

fn reach<'a>(from: &Module, imports: &'a Imports) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = imports
        .get(from)
        .into_iter()
        .flat_map(BTreeMap::keys)
        .collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(imports.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

fn describe(package: &str, circle: &[Module], imports: &Imports) -> String {
    let edges: Vec<String> = circle
        .iter()
        .flat_map(|from| {
            let to = imports.get(from).into_iter().flatten();
            to.filter(|(to, _)| circle.contains(to))
                .map(move |(to, file)| {
                    format!(
                        "{} -> {} ({})",
                        from.join("::"),
                        to.join("::"),
                        file.display()
                    )
                })
        })
        .collect();
    format!(
        "modules of `{package}` import each other in a circle: {}",
        edges.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        dir
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        find("p", package(files).path()).expect("Rust")
    }

    #[test]
    fn two_modules_that_import_each_other_are_named_with_their_files() {
        let found = found(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;"),
            ("b/c.rs", "fn f() { crate::a::g(); }"),
        ]);
        assert_eq!(
            found,
            ["modules of `p` import each other in a circle: a -> b (a.rs), b -> a (b/c.rs)"]
        );
    }

    #[test]
    fn children_of_one_parent_are_checked_and_parents_are_not() {
        assert!(
            found(&[
                ("a.rs", "use self::b::B;"),
                ("a/b.rs", "use super::A;"),
                ("a/c.rs", "use super::b::B;"),
            ])
            .is_empty()
        );
        let circle = found(&[
            ("a/b.rs", "use super::c::{self, C};"),
            ("a/c.rs", "use crate::a::b;"),
        ]);
        assert_eq!(circle.len(), 1, "{circle:?}");
    }

    #[test]
    fn what_only_tests_import_makes_no_circle() {
        assert!(
            found(&[
                ("a.rs", "use crate::b::B;"),
                ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }"),
                ("c.rs", "#[cfg(test)] mod tests; use crate::a::A;"),
                ("c/tests.rs", "use crate::d::D;"),
                ("d.rs", "use crate::c::C;"),
            ])
            .is_empty()
        );
    }

    #[test]
    fn a_circle_of_three_is_one() {
        let found = found(&[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
