//! The resources of the server: the built-in table, as a real server's discovery lists it, and the resources of
//! `CustomResourceDefinition`s.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::definitions::lifecycle;
use super::rules::Rules;
use super::schema::{self, Node};
use super::store::State;
use super::views::PrinterColumn;

/// Storage name of the definitions of custom resources.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// A subresource.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    /// `status`, `scale`, ...
    pub(crate) name: String,
    /// Kind that is read and written through it.
    pub(crate) kind: String,
    /// Group of that kind.
    pub(crate) group: String,
    /// Version of that kind.
    pub(crate) version: String,
    /// Verbs.
    pub(crate) verbs: Vec<String>,
}

/// What only custom resources have.
#[derive(Debug)]
pub(crate) struct Custom {
    /// Whether the status is written only through its subresource.
    pub(crate) status: bool,
    /// Paths of the desired and the actual number of replicas and of the selector, for the `scale` subresource.
    pub(crate) scale: Option<[String; 3]>,
    /// Fields that selectors may use.
    pub(crate) selectable: Vec<String>,
    /// Columns of tables, apart from the name.
    pub(crate) columns: Vec<PrinterColumn>,
    /// Its rules in CEL.
    pub(crate) rules: Rules,
    /// Version in which objects are stored.
    pub(crate) storage_version: String,
    /// Schema of that version.
    pub(crate) storage_schema: Arc<Value>,
    /// All versions and their schemas.
    pub(crate) versions: Arc<Vec<(String, Value)>>,
    /// Whether the definition is being deleted, so that nothing new may be created.
    pub(crate) terminating: bool,
    /// Warning of a deprecated version.
    pub(crate) deprecation: Option<String>,
}

/// A resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Plural name.
    pub(crate) plural: String,
    /// Singular name.
    pub(crate) singular: String,
    /// Kind of the objects.
    pub(crate) kind: String,
    /// Kind of lists.
    pub(crate) list_kind: String,
    /// Whether the objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Short names.
    pub(crate) short_names: Vec<String>,
    /// Categories such as `all`.
    pub(crate) categories: Vec<String>,
    /// Verbs.
    pub(crate) verbs: Vec<String>,
    /// Subresources.
    pub(crate) subresources: Vec<Subresource>,
    /// Name under which the objects are stored.
    pub(crate) storage: String,
    /// What only custom resources have.
    pub(crate) custom: Option<Custom>,
    schema: Value,
}

impl Resource {
    /// Returns group and version: `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// Returns the schema of the objects.
    pub(crate) fn schema(&self) -> Node<'_> {
        Node::new(&self.schema)
    }

    /// Returns the schema as text, by which a changed schema is recognized.
    pub(crate) fn schema_text(&self) -> String {
        self.schema.to_string()
    }

    /// Returns the deprecation warning for all requests to the resource.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        match &self.custom {
            Some(custom) => custom.deprecation.as_deref(),
            None => match self.storage.as_str() {
                "endpoints" => Some(
                    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
                ),
                "componentstatuses" => Some("v1 ComponentStatus is deprecated in v1.19+"),
                _ => None,
            },
        }
    }

    /// Returns a subresource by name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// Returns the kind with which a subresource is written, where it is not the kind of this resource.
    pub(crate) fn subresource_kind(&self, subresource: &str) -> Option<&'static Resource> {
        let subresource = self.subresource(subresource)?;
        let key = (subresource.group.clone(), subresource.kind.clone());
        SUBRESOURCE_KINDS.get(&key).map(AsRef::as_ref)
    }

    /// Returns whether the status is written only through its subresource.
    pub(crate) fn has_status(&self) -> bool {
        self.custom.as_ref().map_or_else(
            || self.subresource("status").is_some(),
            |custom| custom.status,
        )
    }
}

/// Returns group and version: `v1`, `apps/v1`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Returns the name under which a resource is stored: `pods`, `deployments.apps`.
pub(crate) fn storage_name(group: &str, plural: &str) -> String {
    // both groups of events show the same objects
    if group.is_empty() || (group == "events.k8s.io" && plural == "events") {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// Resources by group, version and plural.
#[derive(Debug, Default)]
pub(crate) struct Table {
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    /// The resources in the order of discovery.
    pub(crate) ordered: Vec<Arc<Resource>>,
}

impl Table {
    /// Returns a resource by its path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Returns a resource by the kind of its objects.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.ordered
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// Returns whether a group is built in, and does not come from a definition of custom resources.
    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        let mut all = self.ordered.iter();
        all.any(|resource| resource.group == group && resource.custom.is_none())
    }

    fn add(&mut self, resource: Resource) {
        let resource = Arc::new(resource);
        let path = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.by_path.insert(path, Arc::clone(&resource));
        self.ordered.push(resource);
    }
}

static FACTS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../corpus/facts/discovery.json")).unwrap_or_default()
});

/// Returns the discovery of the built-in groups.
pub(crate) fn facts() -> &'static Value {
    &FACTS
}

/// The kinds with which subresources are written, where they differ from the resource's kind. Their objects are never stored.
static SUBRESOURCE_KINDS: LazyLock<HashMap<(String, String), Arc<Resource>>> =
    LazyLock::new(|| {
        let kinds = schema_by_kind();
        [
            ("autoscaling", "Scale"),
            ("policy", "Eviction"),
            ("authentication.k8s.io", "TokenRequest"),
            ("", "Binding"),
        ]
        .into_iter()
        .map(|(group, kind)| {
            let entry = json!({"responseKind": {"kind": kind}, "scope": "Namespaced"});
            let form = from_discovery(group, "v1", &entry, &kinds);
            ((group.to_owned(), kind.to_owned()), Arc::new(form))
        })
        .collect()
    });

static BUILT_IN: LazyLock<Arc<Table>> = LazyLock::new(|| Arc::new(of_facts()));

/// Returns the built-in resources.
pub(crate) fn built_in() -> &'static Table {
    &BUILT_IN
}

/// Returns whether a built-in resource has objects of this kind.
pub(crate) fn has_kind(api_version: &str, kind: &str) -> bool {
    BUILT_IN.of_kind(api_version, kind).is_some()
}

fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn of_facts() -> Table {
    let kinds = schema_by_kind();
    let mut table = Table::default();
    for part in ["api", "apis"] {
        for group in FACTS[part].as_array().into_iter().flatten() {
            let name = text(&group["metadata"]["name"]);
            for version in group["versions"].as_array().into_iter().flatten() {
                let version_name = text(&version["version"]);
                for entry in version["resources"].as_array().into_iter().flatten() {
                    table.add(from_discovery(&name, &version_name, entry, &kinds));
                }
            }
        }
    }
    table
}

fn schema_by_kind() -> HashMap<(String, String, String), String> {
    let mut kinds = HashMap::new();
    for (name, schema) in schema::built_in() {
        for kind in schema["x-kubernetes-group-version-kind"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let key = (
                text(&kind["group"]),
                text(&kind["version"]),
                text(&kind["kind"]),
            );
            kinds.insert(key, name.clone());
        }
    }
    kinds
}

fn from_discovery(
    group: &str,
    version: &str,
    entry: &Value,
    kinds: &HashMap<(String, String, String), String>,
) -> Resource {
    let plural = text(&entry["resource"]);
    let kind = text(&entry["responseKind"]["kind"]);
    let subresources = entry["subresources"].as_array().into_iter().flatten();
    let schema = kinds
        .get(&(group.to_owned(), version.to_owned(), kind.clone()))
        .map_or(json!(true), |name| json!({"$ref": name}));
    Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        singular: text(&entry["singularResource"]),
        list_kind: format!("{kind}List"),
        namespaced: entry["scope"] == "Namespaced",
        short_names: strings(&entry["shortNames"]),
        categories: strings(&entry["categories"]),
        verbs: strings(&entry["verbs"]),
        subresources: subresources
            .map(|sub| Subresource {
                name: text(&sub["subresource"]),
                kind: text(&sub["responseKind"]["kind"]),
                group: text(&sub["responseKind"]["group"]),
                version: text(&sub["responseKind"]["version"]),
                verbs: strings(&sub["verbs"]),
            })
            .collect(),
        storage: storage_name(group, &plural),
        custom: None,
        schema,
        plural,
        kind,
    }
}

/// The table of a server's resources. It is cached until a definition changes.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    cached: Mutex<Option<(u64, Arc<Table>)>>,
}

impl Registry {
    /// Returns the present table.
    pub(crate) fn table(&self, state: &State) -> Arc<Table> {
        let version = state.version_of(DEFINITIONS);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, table)) = cached.as_ref()
            && *at == version
        {
            return Arc::clone(table);
        }
        let mut table = Table {
            by_path: BUILT_IN.by_path.clone(),
            ordered: BUILT_IN.ordered.clone(),
        };
        for (_, definition) in state.list(DEFINITIONS, "") {
            for resource in custom(definition) {
                table.add(resource);
            }
        }
        let table = Arc::new(table);
        *cached = Some((version, Arc::clone(&table)));
        table
    }
}

/// Returns the resources of a definition, one for each served version.
fn custom(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    if !lifecycle::is_true(definition, "Established") {
        return Vec::new();
    }
    let mut versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let storage = versions.iter().find(|version| version["storage"] == true);
    let storage_version = storage
        .map(|version| text(&version["name"]))
        .unwrap_or_default();
    let storage_schema = storage.map_or(Value::Null, |version| {
        with_meta(&version["schema"]["openAPIV3Schema"])
    });
    let storage_schema = Arc::new(storage_schema);
    let schemas = versions.iter().map(|version| {
        (
            text(&version["name"]),
            with_meta(&version["schema"]["openAPIV3Schema"]),
        )
    });
    let schemas = Arc::new(schemas.collect::<Vec<_>>());
    versions.sort_by_cached_key(|version| Priority::of(&text(&version["name"])));
    let group = text(&spec["group"]);
    versions
        .into_iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let raw = version["schema"]["openAPIV3Schema"].clone();
            let plural = text(&names["plural"]);
            let subresources = custom_subresources(version, &group, &text(&names["kind"]));
            let warning = || {
                let kind = text(&names["kind"]);
                let name = text(&version["name"]);
                let newer = spec["versions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .find(|other| other["served"] == true && other["deprecated"] != true);
                match newer.and_then(|newer| newer["name"].as_str()) {
                    Some(newer) => {
                        format!("{group}/{name} {kind} is deprecated; use {group}/{newer} {kind}")
                    }
                    None => format!("{group}/{name} {kind} is deprecated"),
                }
            };
            let deprecation = (version["deprecated"] == true).then(|| {
                version["deprecationWarning"]
                    .as_str()
                    .map_or_else(warning, str::to_owned)
            });
            Resource {
                group: group.clone(),
                version: text(&version["name"]),
                singular: text(&names["singular"]),
                kind: text(&names["kind"]),
                list_kind: text(&names["listKind"]),
                namespaced: spec["scope"] == "Namespaced",
                short_names: strings(&names["shortNames"]),
                categories: strings(&names["categories"]),
                verbs: [
                    "delete",
                    "deletecollection",
                    "get",
                    "list",
                    "patch",
                    "create",
                    "update",
                    "watch",
                ]
                .map(str::to_owned)
                .to_vec(),
                subresources,
                storage: storage_name(&group, &plural),
                schema: with_meta(&raw),
                custom: Some(Custom {
                    status: version["subresources"]["status"].is_object(),
                    scale: scale_paths(&version["subresources"]["scale"]),
                    selectable: version["selectableFields"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(|field| field["jsonPath"].as_str())
                        .map(|path| path.trim_start_matches('.').to_owned())
                        .collect(),
                    rules: Rules::compile(&raw),
                    storage_version: storage_version.clone(),
                    storage_schema: Arc::clone(&storage_schema),
                    versions: Arc::clone(&schemas),
                    terminating: lifecycle::is_true(definition, "Terminating"),
                    columns: PrinterColumn::of_version(version),
                    deprecation,
                }),
                plural,
            }
        })
        .collect()
}

/// Rank of a version: stable ones first, then betas and alphas, newer before older, then all other names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Versioned(u8, Reverse<u64>, Reverse<u64>),
    Other(String),
}

impl Priority {
    fn of(name: &str) -> Self {
        let parsed = || {
            let rest = name.strip_prefix('v')?;
            let number = |text: &str| -> Option<u64> { text.parse().ok().filter(|n| *n > 0) };
            for (stage, word) in [(1, "beta"), (2, "alpha")] {
                if let Some((major, minor)) = rest.split_once(word) {
                    let minor = if minor.is_empty() { 0 } else { number(minor)? };
                    return Some(Self::Versioned(
                        stage,
                        Reverse(number(major)?),
                        Reverse(minor),
                    ));
                }
            }
            Some(Self::Versioned(0, Reverse(number(rest)?), Reverse(0)))
        };
        parsed().unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

fn scale_paths(scale: &Value) -> Option<[String; 3]> {
    scale.is_object().then(|| {
        [
            "specReplicasPath",
            "statusReplicasPath",
            "labelSelectorPath",
        ]
        .map(|field| text(&scale[field]))
    })
}

fn custom_subresources(version: &Value, group: &str, kind: &str) -> Vec<Subresource> {
    let mut list = Vec::new();
    let verbs = ["get", "patch", "update"].map(str::to_owned).to_vec();
    if version["subresources"]["scale"].is_object() {
        list.push(Subresource {
            name: "scale".into(),
            kind: "Scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            verbs: verbs.clone(),
        });
    }
    if version["subresources"]["status"].is_object() {
        list.insert(
            0,
            Subresource {
                name: "status".into(),
                kind: kind.to_owned(),
                group: group.to_owned(),
                version: text(&version["name"]),
                verbs,
            },
        );
    }
    list
}

/// Returns a custom resource's schema with the fields that every object has.
fn with_meta(raw: &Value) -> Value {
    let mut schema = raw.clone();
    if !schema.is_object() {
        schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    let fields = schema.as_object_mut().map(|map| {
        map.entry("properties")
            .or_insert_with(|| Value::Object(Map::new()))
    });
    if let Some(Value::Object(fields)) = fields {
        fields.insert("metadata".into(), json!({"$ref": OBJECT_META}));
        fields.insert("apiVersion".into(), json!({"type": "string"}));
        fields.insert("kind".into(), json!({"type": "string"}));
    }
    schema
}
