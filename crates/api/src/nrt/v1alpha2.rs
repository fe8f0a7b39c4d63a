//! Version v1alpha2: served and stored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{AttributeInfo, Zone, topology_object};

/// Zones of one node; the object's name is the node's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResourceTopology {
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Deprecated policy and scope in one word; attributes override it.
    #[serde(default)]
    pub topology_policies: Vec<String>,
    /// Facts about the node: settings of the topology manager, fingerprint of the pods.
    #[serde(default)]
    pub attributes: Vec<AttributeInfo>,
    /// The zones, in no particular order; consumers keep the order that is given.
    #[serde(default)]
    pub zones: Vec<Zone>,
}

impl NodeResourceTopology {
    /// Keys that the schema requires beside the metadata.
    pub(crate) const REQUIRED: &'static [&'static str] = &["zones"];

    /// Creates an object of that name without zones.
    pub fn new(name: &str) -> Self {
        Self {
            metadata: ObjectMeta {
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            ..Self::default()
        }
    }
}

topology_object!("v1alpha2", topology_policies as "topologyPolicies", attributes as "attributes", zones as "zones");
