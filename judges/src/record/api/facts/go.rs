//! Types of Go packages, read from their source. The parser expects the format of `gofmt`: one field per line.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context as _, ensure};
use cluster_spec::kubernetes::KUBERNETES_VERSION;
use serde::Deserialize;

/// Modules that types are read from. That of Kubernetes itself has its version, the others have the version that is published with it.
const MODULES: [&str; 5] = [
    "k8s.io/api",
    "k8s.io/apiextensions-apiserver",
    "k8s.io/apimachinery",
    "k8s.io/kube-aggregator",
    "k8s.io/kubernetes",
];
/// Predeclared types of Go.
const SCALARS: [&str; 14] = [
    "bool", "byte", "float32", "float64", "int", "int16", "int32", "int64", "int8", "string",
    "uint", "uint16", "uint32", "uint64",
];

/// Returns whether a type is one that Go itself has.
pub(super) fn is_scalar(written: &str) -> bool {
    SCALARS.contains(&written)
}

/// A type by its package and name.
pub(super) type Name = (String, String);

/// A field of a structure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Name in Go; for an embedded field the name of its type.
    pub(super) name: String,
    /// Its type as written.
    pub(super) written: String,
    /// The `json` tag.
    pub(super) json: Option<String>,
    /// The `protobuf` tag.
    pub(super) protobuf: Option<String>,
    /// Whether it is embedded.
    pub(super) embedded: bool,
}

impl Field {
    /// Returns the name in JSON; empty if the field has none.
    pub(super) fn json_name(&self) -> &str {
        let tag = self.json.as_deref().unwrap_or_default();
        tag.split(',').next().unwrap_or_default()
    }

    /// Returns whether JSON leaves it out when it is empty.
    pub(super) fn omits_empty(&self) -> bool {
        let tag = self.json.as_deref().unwrap_or_default();
        tag.split(',')
            .skip(1)
            .any(|word| ["omitempty", "omitzero"].contains(&word))
    }
}

/// The kind of a type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A structure.
    Structure(Vec<Field>),
    /// Another type under a new name, as written.
    Other(String),
}

/// A type, with what is needed to resolve the names in it.
#[derive(Clone, Debug)]
pub(super) struct Type {
    package: String,
    imports: Rc<HashMap<String, String>>,
    /// Its kind.
    pub(super) kind: Kind,
}

/// The resolved meaning of a written type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    /// `bool`, `string`, `int32`, ...
    Scalar(&'static str),
    /// A structure.
    Structure(Name),
    /// A pointer to this written type.
    Pointer(String),
    /// A list of this written type.
    List(String),
    /// A map to this written type.
    Map(String),
    /// A type that is not known here.
    Unknown,
}

impl Type {
    /// Returns package and name of a type that this one mentions.
    fn qualify(&self, written: &str) -> Name {
        match written.split_once('.') {
            Some((package, name)) => {
                let package = self.imports.get(package).map_or(package, String::as_str);
                (package.to_owned(), name.to_owned())
            }
            None => (self.package.clone(), written.to_owned()),
        }
    }
}

/// The packages that were read so far.
#[derive(Debug)]
pub(super) struct Packages {
    modules: BTreeMap<String, PathBuf>,
    read: RefCell<HashMap<String, Rc<BTreeMap<String, Type>>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    path: String,
    dir: PathBuf,
}

impl Packages {
    /// Finds the modules in Go's module cache and downloads missing ones.
    pub(super) fn locate() -> anyhow::Result<Self> {
        let published = KUBERNETES_VERSION.replacen("v1.", "v0.", 1);
        let wanted = MODULES.map(|module| match module {
            "k8s.io/kubernetes" => format!("{module}@{KUBERNETES_VERSION}"),
            module => format!("{module}@{published}"),
        });
        let output = Command::new("go")
            .args(["mod", "download", "-json"])
            .args(wanted)
            .env("GOWORK", "off")
            .output()
            .context("cannot run go, which knows where the types of Kubernetes are")?;
        ensure!(
            output.status.success(),
            "go mod download failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let modules = serde_json::Deserializer::from_slice(&output.stdout)
            .into_iter::<Download>()
            .map(|download| download.map(|download| (download.path, download.dir)))
            .collect::<Result<_, _>>()
            .context("cannot parse go mod download")?;
        Ok(Self {
            modules,
            read: RefCell::default(),
        })
    }

    /// Returns all types of a package; none for a package outside of the modules.
    pub(super) fn package(&self, name: &str) -> anyhow::Result<Rc<BTreeMap<String, Type>>> {
        if let Some(types) = self.read.borrow().get(name) {
            return Ok(Rc::clone(types));
        }
        let directory = self.modules.iter().find_map(|(module, directory)| {
            let rest = name.strip_prefix(module)?;
            (rest.is_empty() || rest.starts_with('/'))
                .then(|| directory.join(rest.trim_start_matches('/')))
        });
        let types = match directory {
            Some(directory) if directory.is_dir() => read_package(name, &directory)?,
            _ => BTreeMap::new(),
        };
        let types = Rc::new(types);
        self.read
            .borrow_mut()
            .insert(name.to_owned(), Rc::clone(&types));
        Ok(types)
    }

    /// Returns a type by name.
    pub(super) fn get(&self, (package, name): &Name) -> anyhow::Result<Option<Type>> {
        Ok(self.package(package)?.get(name).cloned())
    }

    /// Resolves a type that is written within another one.
    pub(super) fn meaning(&self, within: &Type, written: &str) -> anyhow::Result<Meaning> {
        if let Some(inner) = written.strip_prefix('*') {
            return Ok(Meaning::Pointer(inner.to_owned()));
        }
        if let Some(inner) = written.strip_prefix("[]") {
            return Ok(Meaning::List(inner.to_owned()));
        }
        if written.starts_with("map[") {
            let (_, inner) = written.split_once(']').context("a map without values")?;
            return Ok(Meaning::Map(inner.to_owned()));
        }
        if let Some(scalar) = SCALARS.iter().find(|scalar| **scalar == written) {
            return Ok(Meaning::Scalar(scalar));
        }
        let name = within.qualify(written);
        match self.get(&name)? {
            None => Ok(Meaning::Unknown),
            Some(Type {
                kind: Kind::Structure(_),
                ..
            }) => Ok(Meaning::Structure(name)),
            Some(other) => {
                let Kind::Other(inner) = &other.kind else {
                    return Ok(Meaning::Unknown);
                };
                self.meaning(&other, inner)
            }
        }
    }

    /// Returns package and name of what is written in a type, without resolving it.
    #[expect(
        clippy::unused_self,
        reason = "names mean something among packages only"
    )]
    pub(super) fn name(&self, within: &Type, written: &str) -> Name {
        within.qualify(written)
    }

    /// Returns the fields of a structure, with embedded structures replaced by their fields, each with the type in which it is written.
    /// `inlines` selects the embedded fields to replace.
    pub(super) fn fields(
        &self,
        name: &Name,
        inlines: &dyn Fn(&Field) -> bool,
    ) -> anyhow::Result<Vec<(Type, Field)>> {
        let mut all = Vec::new();
        let Some(within) = self.get(name)? else {
            return Ok(all);
        };
        let Kind::Structure(fields) = within.kind.clone() else {
            return Ok(all);
        };
        for field in fields {
            if inlines(&field) {
                let inner = within.qualify(field.written.trim_start_matches('*'));
                all.extend(self.fields(&inner, inlines)?);
            } else {
                all.push((within.clone(), field));
            }
        }
        Ok(all)
    }
}

fn read_package(name: &str, directory: &Path) -> anyhow::Result<BTreeMap<String, Type>> {
    let mut types = BTreeMap::new();
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let is_source = file.ends_with(".go")
            && !file.ends_with("_test.go")
            && !file.ends_with(".pb.go")
            && !file.starts_with("zz_generated");
        if is_source {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            types.extend(read_file(name, &text));
        }
    }
    Ok(types)
}

fn read_file(package: &str, text: &str) -> BTreeMap<String, Type> {
    let mut imports = HashMap::new();
    let mut types: Vec<(String, Kind)> = Vec::new();
    let mut open: Option<(String, Vec<Field>)> = None;
    let mut commented = false;
    for line in text.lines() {
        if commented {
            commented = !line.contains("*/");
            continue;
        }
        let bare = line.trim();
        if bare.starts_with("/*") {
            commented = !bare.contains("*/");
            continue;
        }
        if let Some((name, mut fields)) = open.take() {
            if line == "}" {
                types.push((name, Kind::Structure(fields)));
            } else {
                fields.extend(field(bare));
                open = Some((name, fields));
            }
            continue;
        }
        if let Some(import) = import(bare) {
            imports.insert(import.0, import.1);
        } else if let Some(rest) = line.strip_prefix("type ") {
            let words: Vec<&str> = rest
                .split_whitespace()
                .take_while(|word| *word != "//")
                .collect();
            match words.as_slice() {
                [name, "struct", "{"] => open = Some(((*name).to_owned(), Vec::new())),
                [name, "struct{}"] => {
                    types.push(((*name).to_owned(), Kind::Structure(Vec::new())));
                }
                [name, "=", other] | [name, other] => {
                    types.push(((*name).to_owned(), Kind::Other((*other).to_owned())));
                }
                _ => {}
            }
        }
    }
    let imports = Rc::new(imports);
    let with_place = |kind| Type {
        package: package.to_owned(),
        imports: Rc::clone(&imports),
        kind,
    };
    types
        .into_iter()
        .map(|(name, kind)| (name, with_place(kind)))
        .collect()
}

/// Parses `name "path"` or `"path"`, in a block or alone.
fn import(line: &str) -> Option<(String, String)> {
    let line = line.strip_prefix("import ").unwrap_or(line);
    let (name, path) = line.strip_suffix('"')?.split_once('"')?;
    let name = name.trim();
    let is_import = !path.contains([' ', '"']) && !name.contains(['=', '(', ' ', ':', '`']);
    let last = path.rsplit('/').next().unwrap_or(path);
    let name = if name.is_empty() { last } else { name };
    is_import.then(|| (name.to_owned(), path.to_owned()))
}

fn field(line: &str) -> Option<Field> {
    if line.is_empty() || line.starts_with("//") {
        return None;
    }
    let (declared, tags) = match line.split_once('`') {
        Some((declared, rest)) => (declared, rest.split('`').next().unwrap_or_default()),
        None => (line.split("//").next().unwrap_or_default(), ""),
    };
    let tag = |name: &str| {
        let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
        let (value, _) = tags[start..].split_once('"')?;
        Some(value.to_owned())
    };
    let words: Vec<&str> = declared.split_whitespace().collect();
    let (name, written, embedded) = match words.as_slice() {
        [name, written] => (*name, *written, false),
        [written] => {
            let name = written.trim_start_matches('*').rsplit('.').next();
            (name.unwrap_or_default(), *written, true)
        }
        _ => return None,
    };
    Some(Field {
        name: name.to_owned(),
        written: written.to_owned(),
        json: tag("json"),
        protobuf: tag("protobuf"),
        embedded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Thing is one.
type Thing struct {
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// Size of it.
	Size *int32 `json:"size,omitempty" protobuf:"varint,2,opt,name=size"` // trailing
	UIDs []types.UID
	/*
	   prose that is no field
	*/
}

type Phase string
"#;

    #[test]
    fn structures_have_their_fields_with_tags() {
        let types = read_file("p", SOURCE);
        let Kind::Structure(fields) = &types["Thing"].kind else {
            panic!("no structure");
        };
        let shown: Vec<(&str, &str, &str, bool)> = fields
            .iter()
            .map(|field| {
                (
                    &*field.name,
                    &*field.written,
                    field.json_name(),
                    field.embedded,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("ObjectMeta", "metav1.ObjectMeta", "metadata", true),
                ("Size", "*int32", "size", false),
                ("UIDs", "[]types.UID", "", false),
            ]
        );
        assert_eq!(types["Phase"].kind, Kind::Other("string".into()));
        assert_eq!(
            types["Thing"].qualify("metav1.ObjectMeta"),
            (
                "k8s.io/apimachinery/pkg/apis/meta/v1".into(),
                "ObjectMeta".into()
            )
        );
    }
}
