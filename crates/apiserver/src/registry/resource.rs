//! A resource in one version: what discovery says of it, and what only custom resources have.

use std::sync::Arc;

use serde_json::Value;

use super::columns::PrinterColumn;
use crate::schema::Node;
use crate::schema::rules::Rules;

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
    pub(super) schema: Value,
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
