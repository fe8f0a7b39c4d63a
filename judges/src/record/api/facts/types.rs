//! Facts that only the Go types have: which fields are pointers, which are always written, the numbers of protobuf fields, and the server's
//! internal form of pods.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::go::{Field, Meaning, Name, Packages, Type, is_scalar};

const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";
const DEFINITIONS: &str = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
/// Groups whose types messages show in the server's internal form: their published packages, and which structures are shown.
const SHOWN: [(&str, &[&str]); 5] = [
    (
        "core",
        &[
            "PersistentVolumeSource",
            "PodSpec",
            "PodTemplateSpec",
            "VolumeNodeAffinity",
        ],
    ),
    ("batch", &["PodFailurePolicy", "SuccessPolicy"]),
    ("networking", &["ParentReference"]),
    (
        "resource",
        &["ResourceClaimSpec", "ResourceClaimTemplateSpec"],
    ),
    ("storage", &["CSINodeDriver", "VolumeAttachmentSpec"]),
];
/// Where the packages of the server's internal types are.
const INTERNAL: &str = "k8s.io/kubernetes/pkg/apis/";

/// The types of one version of Kubernetes.
#[derive(Debug)]
pub(super) struct Types {
    packages: Packages,
}

/// Converts a schema name such as `io.k8s.api.core.v1.Pod` to a type of Go.
fn go_name(schema: &str) -> Option<Name> {
    let path = schema.strip_prefix("io.k8s.")?;
    let (package, name) = path.rsplit_once('.')?;
    Some((
        format!("k8s.io/{}", package.replace('.', "/")),
        name.to_owned(),
    ))
}

/// Returns whether JSON shows the fields of this field as fields of the structure around it.
fn is_inline(field: &Field) -> bool {
    field.embedded && field.json.is_some() && field.json_name().is_empty()
}

fn is_time(meaning: &Meaning) -> bool {
    matches!(meaning, Meaning::Structure((package, name)) if package == META && ["Time", "MicroTime"].contains(&name.as_str()))
}

/// Returns whether a field is the metadata of an object, embedded in it.
fn is_metadata(field: &Field) -> bool {
    field.embedded && field.written.ends_with("ObjectMeta")
}

/// Returns whether messages show a type in its internal form.
fn is_shown((package, _): &Name) -> bool {
    let group = package.strip_prefix(INTERNAL);
    group.is_some_and(|group| SHOWN.iter().any(|(shown, _)| *shown == group))
}

/// Returns whether a schema is that of a list of objects.
fn is_list(schema: &Value) -> bool {
    let metadata = &schema["properties"]["metadata"]["$ref"];
    metadata
        .as_str()
        .is_some_and(|name| name.ends_with(".ListMeta"))
}

impl Types {
    /// Finds the source of the types.
    pub(super) fn locate() -> anyhow::Result<Self> {
        Ok(Self {
            packages: Packages::locate()?,
        })
    }

    /// Returns by schema: scalars that are pointers, fields that are written as `null` when unset, fields that are left out in spite of a
    /// default.
    pub(super) fn presence(
        &self,
        schemas: &BTreeMap<String, Value>,
    ) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        for (schema_name, schema) in schemas {
            let Some(name) = go_name(schema_name).filter(|_| !is_list(schema)) else {
                continue;
            };
            let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
            for (within, field) in self.packages.fields(&name, &is_inline)? {
                let json_name = field.json_name().to_owned();
                if field.json.is_none() || json_name == "-" {
                    continue;
                }
                let omits = field.omits_empty();
                let meaning = self.packages.meaning(&within, &field.written)?;
                let mut add = |what| found.entry(what).or_default().insert(json_name.clone());
                match &meaning {
                    Meaning::Pointer(inner) => {
                        let inner = self.packages.meaning(&within, inner)?;
                        if matches!(inner, Meaning::Scalar(_)) || is_time(&inner) {
                            add("pointers");
                        }
                        if !omits {
                            add("always");
                        }
                    }
                    Meaning::List(_) | Meaning::Map(_) if !omits => {
                        add("always");
                    }
                    // structures are never empty for the encoder
                    other
                        if is_time(other)
                            && !field
                                .json
                                .as_deref()
                                .unwrap_or_default()
                                .contains("omitzero") =>
                    {
                        add("always");
                    }
                    _ => {}
                }
                let default = schema["properties"][&json_name].get("default");
                let is_zero =
                    default.is_some_and(|value| *value == "" || *value == 0 || *value == false);
                let is_scalar = matches!(meaning, Meaning::Scalar(_) | Meaning::Pointer(_));
                if omits && is_zero && is_scalar {
                    add("omits");
                }
            }
            if !found.is_empty() {
                all.insert(schema_name.clone(), json!(found));
            }
        }
        Ok(all)
    }

    /// Returns by schema the types of fields that have names of their own in Go, as Go prints them.
    pub(super) fn named(
        &self,
        schemas: &BTreeMap<String, Value>,
    ) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        for (schema_name, schema) in schemas {
            let Some(name) = go_name(schema_name).filter(|_| !is_list(schema)) else {
                continue;
            };
            let mut found: BTreeMap<String, String> = BTreeMap::new();
            for (within, field) in self.packages.fields(&name, &is_inline)? {
                let json_name = field.json_name();
                if json_name.is_empty() || json_name == "-" {
                    continue;
                }
                let printed = self.printed(&within, &field.written);
                let meaning = self
                    .packages
                    .meaning(&within, field.written.trim_start_matches('*'))?;
                // the schema of a structure has its name
                if printed.contains('.') && !matches!(meaning, Meaning::Structure(_)) {
                    found.insert(json_name.to_owned(), printed);
                }
            }
            if !found.is_empty() {
                all.insert(schema_name.clone(), json!(found));
            }
        }
        Ok(all)
    }

    /// Returns by schema the structures between it and those of its fields that are in structures that it embeds.
    pub(super) fn embedded(
        &self,
        schemas: &BTreeMap<String, Value>,
    ) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        for (schema_name, schema) in schemas {
            let Some(name) = go_name(schema_name).filter(|_| !is_list(schema)) else {
                continue;
            };
            let mut found = BTreeMap::new();
            self.embedded_in(&name, &[], &mut found)?;
            // all objects have these, and no error is about them
            found.retain(|field, _| field != "apiVersion" && field != "kind");
            if !found.is_empty() {
                all.insert(schema_name.clone(), json!(found));
            }
        }
        Ok(all)
    }

    fn embedded_in(
        &self,
        name: &Name,
        around: &[&str],
        found: &mut BTreeMap<String, String>,
    ) -> anyhow::Result<()> {
        for (within, field) in self.packages.fields(name, &|_| false)? {
            if is_inline(&field) {
                let inner = self.packages.name(&within, &field.written);
                let mut around = around.to_vec();
                around.push(&field.name);
                self.embedded_in(&inner, &around, found)?;
            } else if !around.is_empty() && !["", "-"].contains(&field.json_name()) {
                found.insert(field.json_name().to_owned(), around.join("."));
            }
        }
        Ok(())
    }

    /// Returns a type as Go prints it in messages, which do not tell pointers.
    fn printed(&self, within: &Type, written: &str) -> String {
        if let Some(inner) = written.strip_prefix('*') {
            return self.printed(within, inner);
        }
        if let Some(inner) = written.strip_prefix("[]") {
            return format!("[]{}", self.printed(within, inner));
        }
        if let Some((key, inner)) = written
            .strip_prefix("map[")
            .and_then(|rest| rest.split_once(']'))
        {
            let (key, inner) = (self.printed(within, key), self.printed(within, inner));
            return format!("map[{key}]{inner}");
        }
        if written == "byte" {
            return "uint8".to_owned();
        }
        if is_scalar(written) {
            return written.to_owned();
        }
        let (package, name) = self.packages.name(within, written);
        let package = package.rsplit('/').next().unwrap_or_default();
        format!("{package}.{name}")
    }

    /// Returns packages by group and version, and messages with their fields by number.
    pub(super) fn protobuf(
        &self,
        schemas: &BTreeMap<String, Value>,
    ) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut packages = BTreeMap::new();
        let mut wanted: Vec<Name> = Vec::new();
        for (schema_name, schema) in schemas {
            let Some(name) = go_name(schema_name).filter(|_| !is_list(schema)) else {
                continue;
            };
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            for kind in kinds.into_iter().flatten() {
                let text = |field: &str| kind[field].as_str().unwrap_or_default();
                let version = match (text("group"), text("version")) {
                    ("", version) => version.to_owned(),
                    (group, version) => format!("{group}/{version}"),
                };
                // the options of many groups are one message
                if name.0 != META {
                    packages.insert(version, json!(short(&name.0)));
                }
                wanted.push(name.clone());
            }
        }
        let mut messages = BTreeMap::new();
        while let Some(name) = wanted.pop() {
            let key = format!("{}.{}", short(&name.0), name.1);
            if messages.contains_key(&key) {
                continue;
            }
            let mut numbers = BTreeMap::new();
            for (within, field) in self.packages.fields(&name, &|_| false)? {
                let Some(number) = field
                    .protobuf
                    .as_deref()
                    .and_then(|tag| tag.split(',').nth(1))
                else {
                    continue;
                };
                let mut kind = self.wire(&within, &field.written, &mut wanted)?;
                // a named list with this word is a list as any other
                let is_repeated = field
                    .protobuf
                    .as_deref()
                    .is_some_and(|tag| tag.contains(",rep,"));
                if is_repeated && let Some(item) = kind.strip_prefix('(') {
                    kind = format!("[{item}");
                }
                let mut flags = String::new();
                if field.json_name().is_empty() {
                    flags.push('i');
                }
                if field.written.starts_with('*') {
                    flags.push('p');
                }
                if field.omits_empty() {
                    flags.push('o');
                }
                numbers.insert(number.to_owned(), json!([field.json_name(), kind, flags]));
            }
            messages.insert(key, json!(numbers));
        }
        messages.retain(|_, numbers| numbers != &json!({}));
        Ok(BTreeMap::from([
            ("messages".to_owned(), json!(messages)),
            ("packages".to_owned(), json!(packages)),
        ]))
    }

    /// Returns the wire form of a type. Messages that it uses are added to `wanted`.
    fn wire(&self, within: &Type, written: &str, wanted: &mut Vec<Name>) -> anyhow::Result<String> {
        if let Some(inner) = written.strip_prefix('*') {
            return self.wire(within, inner, wanted);
        }
        if written == "[]byte" {
            return Ok("bytes".into());
        }
        if let Some(inner) = written.strip_prefix("[]") {
            return Ok(format!("[{}", self.wire(within, inner, wanted)?));
        }
        if written.starts_with("map[") {
            let (_, inner) = written.split_once(']').context("a map without values")?;
            return Ok(format!("{{{}", self.wire(within, inner, wanted)?));
        }
        let name = self.packages.name(within, written);
        let special = match (name.0.as_str(), name.1.as_str()) {
            ("k8s.io/apimachinery/pkg/api/resource", "Quantity") => "quantity",
            ("k8s.io/apimachinery/pkg/runtime", "RawExtension")
            | (META, "FieldsV1")
            | (DEFINITIONS, "JSON") => "raw",
            // their JSON forms are not in their tags
            (DEFINITIONS, "JSONSchemaPropsOrArray") => "|JSONSchemaPropsOrArray",
            (DEFINITIONS, "JSONSchemaPropsOrBool") => "|JSONSchemaPropsOrBool",
            (DEFINITIONS, "JSONSchemaPropsOrStringArray") => "|JSONSchemaPropsOrStringArray",
            (META, "Time") => "time",
            (META, "MicroTime") => "microtime",
            (META, "Duration") => "duration",
            ("k8s.io/apimachinery/pkg/util/intstr", "IntOrString") => "intorstring",
            _ => "",
        };
        if !special.is_empty() {
            return Ok(special.to_owned());
        }
        Ok(match self.packages.meaning(within, written)? {
            Meaning::Scalar("string") => "string".into(),
            Meaning::Scalar("bool") => "bool".into(),
            Meaning::Scalar("float32" | "float64") => "double".into(),
            Meaning::Scalar(_) => "int".into(),
            Meaning::Structure(name) => {
                let kind = format!("#{}.{}", short(&name.0), name.1);
                wanted.push(name);
                kind
            }
            // a named list is a message with one field
            Meaning::List(inner) => {
                let owner = self.packages.get(&name)?.unwrap_or_else(|| within.clone());
                format!("({}", self.wire(&owner, &inner, wanted)?)
            }
            Meaning::Map(inner) => {
                let owner = self.packages.get(&name)?.unwrap_or_else(|| within.clone());
                format!("{{{}", self.wire(&owner, &inner, wanted)?)
            }
            Meaning::Pointer(inner) => self.wire(within, &inner, wanted)?,
            Meaning::Unknown => format!("?{written}"),
        })
    }

    /// Returns the structures that messages show in the server's internal form: the fields of each in their order, by their internal name and
    /// their name in the API, with their kinds: `s` text, `i` number, `b` truth value, `*` none or, `[` list of, `{` map to, `#` structure, `@`
    /// metadata, whose fields stand among the others, `l` selector of labels, `~` as in the API.
    pub(super) fn internal(&self) -> anyhow::Result<BTreeMap<String, Value>> {
        let mut all = BTreeMap::new();
        let mut wanted: Vec<Name> = Vec::new();
        for (group, names) in SHOWN {
            let names = names.iter().map(|name| (*name).to_owned());
            wanted.extend(names.map(|name| (format!("{INTERNAL}{group}"), name)));
        }
        let mut known: BTreeMap<String, Name> = BTreeMap::new();
        while let Some(own) = wanted.pop() {
            let (package, name) = &own;
            if let Some(other) = known.insert(name.clone(), own.clone()) {
                ensure!(other == own, "two internal types have the name {name}");
                continue;
            }
            let group = package.strip_prefix(INTERNAL).unwrap_or_default();
            let published = |name: &str| {
                let package = format!("k8s.io/api/{group}/v1");
                self.packages
                    .fields(&(package, name.to_owned()), &is_inline)
            };
            let mut json_names: BTreeMap<String, String> = BTreeMap::new();
            // some fields of the specification of a pod are in its security context internally
            for (prefix, owner) in [("^", "PodSpec"), ("", name.as_str())] {
                for (_, field) in published(owner)? {
                    json_names.insert(field.name.clone(), format!("{prefix}{}", field.json_name()));
                }
            }
            let mut fields = Vec::new();
            let inlines = |field: &Field| field.embedded && !is_metadata(field);
            for (within, field) in self.packages.fields(&own, &inlines)? {
                if is_metadata(&field) {
                    fields.push(json!(["", "metadata", "@"]));
                    continue;
                }
                let Some(json_name) = json_names.get(&field.name) else {
                    continue;
                };
                let kind = self.kept(&within, &field.written, &mut wanted)?;
                fields.push(json!([field.name, json_name, kind]));
            }
            all.insert(name.clone(), json!(fields));
        }
        Ok(all)
    }

    fn kept(&self, within: &Type, written: &str, wanted: &mut Vec<Name>) -> anyhow::Result<String> {
        Ok(match self.packages.meaning(within, written)? {
            Meaning::Scalar("string") => "s".into(),
            Meaning::Scalar("bool") => "b".into(),
            Meaning::Scalar(_) => "i".into(),
            Meaning::Pointer(inner) => format!("*{}", self.kept(within, &inner, wanted)?),
            Meaning::List(inner) => {
                let owner = self.owner(within, written)?;
                format!("[{}", self.kept(&owner, &inner, wanted)?)
            }
            Meaning::Map(inner) => {
                let owner = self.owner(within, written)?;
                format!("{{{}", self.kept(&owner, &inner, wanted)?)
            }
            Meaning::Structure(name) if is_shown(&name) => {
                let kind = format!("#{}", name.1);
                wanted.push(name);
                kind
            }
            Meaning::Structure((package, name)) if package == META && name == "LabelSelector" => {
                "l".into()
            }
            Meaning::Structure(_) | Meaning::Unknown => "~".into(),
        })
    }

    /// Returns the type in which the inner part of a named list or map is written.
    fn owner(&self, within: &Type, written: &str) -> anyhow::Result<Type> {
        let named = self.packages.get(&self.packages.name(within, written))?;
        Ok(named.unwrap_or_else(|| within.clone()))
    }
}

/// Shortens a package to its name in the facts, such as `core/v1`.
fn short(package: &str) -> String {
    if let Some(rest) = package.strip_prefix("k8s.io/api/") {
        return rest.to_owned();
    }
    let parts: Vec<&str> = package.rsplit('/').take(2).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}
