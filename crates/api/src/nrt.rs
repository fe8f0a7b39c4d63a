//! `NodeResourceTopology` in group `topology.node.k8s.io`: the zones of a node, with their resources and what is left of them (rte.md 1).
//!
//! The objects have no `spec` and no `status`: `zones` and its siblings are at the top level. Both versions share the parts;
//! [`v1alpha2`] is the stored version and the only one with object attributes.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod v1alpha1;
pub mod v1alpha2;

/// API group.
pub const GROUP: &str = "topology.node.k8s.io";
/// Kind of the object.
pub const KIND: &str = "NodeResourceTopology";
/// Name of the resource in URLs.
pub const PLURAL: &str = "noderesourcetopologies";
/// Type of a zone that is a NUMA node. Consumers compare the exact string.
pub const ZONE_TYPE_NODE: &str = "Node";

/// A part of a node with its own resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// `node-<id>` for a NUMA node.
    pub name: String,
    /// `Node` for a NUMA node.
    #[serde(rename = "type")]
    pub zone_type: String,
    /// Name of the enclosing zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Distance to every zone, itself included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<CostInfo>,
    /// Free-form facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeInfo>,
    /// Resources of the zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceInfo>,
}

/// Distance from the enclosing zone to another zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CostInfo {
    /// Name of the destination zone.
    pub name: String,
    /// Distance as reported by the firmware; 10 is local.
    pub value: i64,
}

/// A named value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttributeInfo {
    /// Name, such as `topologyManagerPolicy`.
    pub name: String,
    /// Value.
    pub value: String,
}

/// One resource of a zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceInfo {
    /// Resource name as in a pod's requests.
    pub name: String,
    /// Total of the zone.
    #[schemars(schema_with = "crate::schema::quantity")]
    pub capacity: Quantity,
    /// What pods may use: capacity less reservations.
    #[schemars(schema_with = "crate::schema::quantity")]
    pub allocatable: Quantity,
    /// Allocatable less what running pods hold.
    #[schemars(schema_with = "crate::schema::quantity")]
    pub available: Quantity,
}

/// Returns the value of the first attribute of that name, if any.
pub fn attribute<'a>(attributes: &'a [AttributeInfo], name: &str) -> Option<&'a str> {
    attributes
        .iter()
        .find(|attribute| attribute.name == name)
        .map(|attribute| attribute.value.as_str())
}

/// Implements what a Kubernetes object without `spec` needs: the coordinates of its API, and a serialized form that includes its type.
macro_rules! topology_object {
    ($version:literal, $($field:ident as $name:literal),+) => {
        crate::object::cluster_resource!(NodeResourceTopology, super::GROUP, $version, super::KIND, super::PLURAL);

        impl serde::Serialize for NodeResourceTopology {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", concat!("topology.node.k8s.io/", $version))?;
                map.serialize_entry("kind", super::KIND)?;
                map.serialize_entry("metadata", &self.metadata)?;
                $(
                    // the schema requires `zones`, so it is written even when empty; other empty fields are left out
                    if $name == "zones" || Self::REQUIRED.contains(&$name) || !self.$field.is_empty() {
                        map.serialize_entry($name, &self.$field)?;
                    }
                )+
                map.end()
            }
        }
    };
}
use topology_object;
