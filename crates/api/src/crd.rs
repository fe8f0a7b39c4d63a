//! The `CustomResourceDefinition` objects. Each serves two versions with conversion strategy None (operator.md 1; rte.md 1).

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceSubresourceStatus, CustomResourceSubresources,
    CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::{annotations, names, nrt, operator, scheduler, schema};

/// Returns all three definitions.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        node_resource_topology(),
        numa_resources_operator(),
        numa_resources_scheduler(),
    ]
}

/// Returns the definition of `NUMAResourcesOperator`.
pub fn numa_resources_operator() -> CustomResourceDefinition {
    use operator::{v1, v1alpha1};
    let description = "Installs and maintains the topology exporters of a cluster.";
    let stored = object_schema::<v1::NumaResourcesOperatorSpec, v1::NumaResourcesOperatorStatus>(
        description,
        Some(names::OPERATOR_CR),
    );
    let alpha = object_schema::<
        v1alpha1::NumaResourcesOperatorSpec,
        v1alpha1::NumaResourcesOperatorStatus,
    >(description, None);
    with_status(
        operator::KIND,
        "numaresourcesoperator",
        "numaresop",
        stored,
        alpha,
    )
}

/// Returns the definition of `NUMAResourcesScheduler`.
pub fn numa_resources_scheduler() -> CustomResourceDefinition {
    use scheduler::{v1, v1alpha1};
    let description = "Installs and maintains the NUMA-aware secondary scheduler of a cluster.";
    let stored = object_schema::<v1::NumaResourcesSchedulerSpec, v1::NumaResourcesSchedulerStatus>(
        description,
        Some(names::SCHEDULER_CR),
    );
    let alpha = object_schema::<
        v1alpha1::NumaResourcesSchedulerSpec,
        v1alpha1::NumaResourcesSchedulerStatus,
    >(description, None);
    with_status(
        scheduler::KIND,
        "numaresourcesscheduler",
        "numaressched",
        stored,
        alpha,
    )
}

/// Returns the definition of `NodeResourceTopology`. Its group is protected, so an annotation names the approval of the API.
pub fn node_resource_topology() -> CustomResourceDefinition {
    let description = "Resources of the NUMA zones of a node: capacity, allocatable and available.";
    let alpha1 = topology_schema::<nrt::v1alpha1::NodeResourceTopology>(
        description,
        nrt::v1alpha1::NodeResourceTopology::REQUIRED,
    );
    let alpha2 = topology_schema::<nrt::v1alpha2::NodeResourceTopology>(
        description,
        nrt::v1alpha2::NodeResourceTopology::REQUIRED,
    );
    let mut definition = cluster_wide(
        nrt::GROUP,
        nrt::KIND,
        "noderesourcetopology",
        nrt::PLURAL,
        "node-res-topo",
    );
    definition.metadata.annotations = Some(BTreeMap::from([
        (
            annotations::API_APPROVED.to_owned(),
            "https://github.com/kubernetes/enhancements/pull/1870".to_owned(),
        ),
        // part of the published definition; tools compare it
        (
            "controller-gen.kubebuilder.io/version".to_owned(),
            "v0.11.2".to_owned(),
        ),
    ]));
    definition.spec.versions = vec![
        version("v1alpha1", alpha1),
        CustomResourceDefinitionVersion {
            storage: true,
            ..version("v1alpha2", alpha2)
        },
    ];
    definition
}

/// Returns a definition with v1 (stored) and v1alpha1 (deprecated), both with the status subresource.
fn with_status(
    kind: &str,
    singular: &str,
    short: &str,
    stored: JSONSchemaProps,
    alpha: JSONSchemaProps,
) -> CustomResourceDefinition {
    let status = CustomResourceSubresourceStatus(Value::Object(Map::new()));
    let subresources = Some(CustomResourceSubresources {
        status: Some(status),
        scale: None,
    });
    let mut definition = cluster_wide(
        operator::GROUP,
        kind,
        singular,
        &format!("{singular}s"),
        short,
    );
    definition.spec.versions = vec![
        CustomResourceDefinitionVersion {
            storage: true,
            subresources: subresources.clone(),
            ..version("v1", stored)
        },
        CustomResourceDefinitionVersion {
            deprecated: Some(true),
            subresources,
            ..version("v1alpha1", alpha)
        },
    ];
    definition
}

/// Returns a served version that is not stored and has no subresources.
fn version(name: &str, schema: JSONSchemaProps) -> CustomResourceDefinitionVersion {
    CustomResourceDefinitionVersion {
        name: name.into(),
        served: true,
        schema: Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema),
        }),
        ..CustomResourceDefinitionVersion::default()
    }
}

/// Returns a definition of a cluster-wide kind, without versions.
fn cluster_wide(
    group: &str,
    kind: &str,
    singular: &str,
    plural: &str,
    short: &str,
) -> CustomResourceDefinition {
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{plural}.{group}")),
            ..ObjectMeta::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: group.into(),
            names: CustomResourceDefinitionNames {
                kind: kind.into(),
                list_kind: Some(format!("{kind}List")),
                plural: plural.into(),
                singular: Some(singular.into()),
                short_names: Some(vec![short.into()]),
                ..CustomResourceDefinitionNames::default()
            },
            scope: "Cluster".into(),
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    }
}

/// Returns a schema with `spec` and `status`, both optional. With a singleton name, no other object name is accepted.
fn object_schema<Spec: JsonSchema, Status: JsonSchema>(
    description: &str,
    singleton: Option<&str>,
) -> JSONSchemaProps {
    let properties = Map::from_iter([
        ("spec".to_owned(), schema::of::<Spec>()),
        ("status".to_owned(), schema::of::<Status>()),
    ]);
    let rule = singleton.map(|name| {
        (
            format!("has(self.metadata.name) && self.metadata.name == '{name}'"),
            format!("This is a singleton resource and the object name must be '{name}'."),
        )
    });
    let rules: Vec<(&str, &str)> = rule
        .iter()
        .map(|(rule, message)| (rule.as_str(), message.as_str()))
        .collect();
    schema::root(description, properties, &[], &rules)
}

/// Returns a schema whose properties are siblings of the metadata.
fn topology_schema<T: JsonSchema>(description: &str, required: &[&str]) -> JSONSchemaProps {
    let mut properties = Map::new();
    if let Some(Value::Object(own)) = schema::of::<T>().get_mut("properties").map(Value::take) {
        for (name, mut property) in own {
            // an absent list stays absent: the API has no defaults
            if let Some(map) = property.as_object_mut() {
                map.remove("default");
            }
            properties.insert(name, property);
        }
    }
    schema::root(description, properties, required, &[])
}
