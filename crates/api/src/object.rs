//! Makes a Rust type a Kubernetes object of a cluster-wide kind: the coordinates of its API, and a serialized form that includes its type.
//!
//! kube's derive macro does not fit these kinds: two of them allow objects without `spec`, and the third has no `spec` at all.

/// Implements [`kube::core::Resource`] for a type with a `metadata` field.
macro_rules! cluster_resource {
    ($type:ident, $group:expr, $version:literal, $kind:expr, $plural:expr) => {
        impl kube::core::Resource for $type {
            type DynamicType = ();
            type Scope = kube::core::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// Defines an object with `spec` and `status`.
macro_rules! custom_object {
    ($(#[$doc:meta])* $type:ident, $spec:ident, $status:ident, $group:expr, $version:literal, $kind:expr, $plural:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $type {
            /// Standard object metadata.
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// The desired state.
            #[serde(default)]
            pub spec: $spec,
            /// The observed state.
            #[serde(default)]
            pub status: Option<$status>,
        }

        impl $type {
            /// Creates an object of that name without status.
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta { name: Some(name.into()), ..Default::default() };
                Self { metadata, spec, status: None }
            }
        }

        crate::object::cluster_resource!($type, $group, $version, $kind, $plural);

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("apiVersion", &format!("{}/{}", $group, $version))?;
                map.serialize_entry("kind", $kind)?;
                map.serialize_entry("metadata", &self.metadata)?;
                map.serialize_entry("spec", &self.spec)?;
                if let Some(status) = &self.status {
                    map.serialize_entry("status", status)?;
                }
                map.end()
            }
        }
    };
}

pub(crate) use {cluster_resource, custom_object};
