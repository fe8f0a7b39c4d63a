//! Turns a cluster into an OpenShift cluster for the stack: installs the kinds that the stack reads and writes there, and the objects that
//! every such cluster has.
//!
//! [`run`] runs the controllers of such a cluster: [`machine_config_operator`] and [`service_ca`]. The schemas are minimal ones of our own:
//! the fields that matter are validated, and all others are preserved.

pub mod machine_config_operator;
pub mod machines;
mod node_pools;
mod objects;
pub mod payload;
pub mod service_ca;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::labels;
use api::openshift::{SECURITY_GROUP, config, machine_config};
use cluster_spec::flavour::Flavour;
use cluster_spec::plan::NodePlan;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use self::machines::Machines;

/// Field manager of the installed objects.
const MANAGER: &str = "numaresources-testbed";
/// Time limit for the API server to serve a new kind.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// Interval of the attempts to write an object of a new kind.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Version that the cluster reports by default.
pub const VERSION: &str = "4.20.0";

/// Why a cluster could not be turned into an OpenShift cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object could not be written.
    #[error("cannot write {kind} {name}")]
    Write {
        /// Kind of the object.
        kind: String,
        /// Name of the object.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// A kind is defined but not served in time.
    #[error("{0} is not served in time")]
    NotServed(String),
}

/// Turns a cluster into an OpenShift cluster of a version. With the flavour `Openshift`, each role is the name of a pool that has the nodes
/// of that role.
pub async fn install(
    client: &Client,
    flavour: Flavour,
    version: &str,
    roles: &[&str],
) -> Result<(), Error> {
    let objects = objects::all(flavour, version, roles, false);
    install_objects(client, flavour, &objects).await
}

async fn install_objects(
    client: &Client,
    flavour: Flavour,
    objects: &[Value],
) -> Result<(), Error> {
    let definitions = definitions(flavour);
    for definition in &definitions {
        write(client, "customresourcedefinitions", definition).await?;
    }
    for definition in &definitions {
        served(client, text(&definition["metadata"]["name"])).await?;
    }
    for object in objects {
        let plural = plural_of(text(&object["kind"]));
        write(client, &plural, object).await?;
    }
    Ok(())
}

/// Turns a cluster with these nodes into an OpenShift cluster of the default version.
pub async fn install_for(
    client: &Client,
    flavour: Flavour,
    nodes: &[NodePlan],
) -> Result<(), Error> {
    let takes_pods = objects::control_plane_takes_pods(nodes);
    let mut objects = objects::all(flavour, VERSION, &roles(nodes), takes_pods);
    objects.extend(node_pools::config_maps(nodes));
    install_objects(client, flavour, &objects).await
}

/// Runs the controllers of the cluster until the returned future is dropped.
pub async fn run(client: Client, flavour: Flavour, machines: Arc<dyn Machines>) {
    let certificates = service_ca::run(client.clone());
    match flavour {
        Flavour::Openshift => {
            tokio::join!(certificates, machine_config_operator::run(client, machines));
        }
        // In a hosted cluster nothing configures the nodes from inside.
        Flavour::Hypershift => certificates.await,
    }
}

/// Returns the roles of the worker nodes, each of which is a pool. A node in another pool is no longer in the pool of all workers.
pub fn roles(nodes: &[NodePlan]) -> Vec<&str> {
    let all = nodes.iter().flat_map(|node| node.labels.keys());
    let mut roles: Vec<&str> = all
        .filter(|label| label.as_str() != labels::CONTROL_PLANE)
        .filter_map(|label| label.strip_prefix(labels::NODE_ROLE_PREFIX))
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}

/// Returns the custom resource definitions; a hosted cluster has no machines.
pub fn definitions(flavour: Flavour) -> Vec<Value> {
    let anything = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let object = |spec: Value, status: Value| json!({"spec": spec, "status": status});
    let mut all = vec![
        definition(
            config::GROUP,
            "ClusterVersion",
            true,
            &object(anything(), anything()),
        ),
        definition(
            config::GROUP,
            "Infrastructure",
            true,
            &object(anything(), anything()),
        ),
        definition(
            config::GROUP,
            "ClusterOperator",
            true,
            &object(anything(), anything()),
        ),
        definition(
            config::GROUP,
            "APIServer",
            true,
            &object(api_server_spec(), anything()),
        ),
        definition(
            config::GROUP,
            "Scheduler",
            true,
            &object(scheduler_spec(), anything()),
        ),
        subscription(&object(anything(), anything())),
        definition(
            SECURITY_GROUP,
            "SecurityContextConstraints",
            false,
            &constraints(),
        ),
    ];
    if flavour == Flavour::Openshift {
        let group = machine_config::GROUP;
        all.push(definition(
            group,
            "MachineConfigPool",
            true,
            &object(pool_spec(), pool_status()),
        ));
        all.push(definition(
            group,
            "MachineConfig",
            false,
            &json!({"spec": anything()}),
        ));
        all.push(definition(
            group,
            "KubeletConfig",
            true,
            &object(kubelet_config_spec(), anything()),
        ));
    }
    all
}

fn definition(group: &str, kind: &str, has_status: bool, properties: &Value) -> Value {
    let plural = plural_of(kind);
    let mut all = json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    });
    if let (Some(all), Some(own)) = (all.as_object_mut(), properties.as_object()) {
        all.extend(own.clone());
    }
    let subresources = if has_status {
        json!({"status": {}})
    } else {
        json!({})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_ascii_lowercase(),
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": subresources,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": all,
                }},
            }],
        },
    })
}

/// Returns the definition of the Lifecycle Manager's subscriptions, which programs look for when they change an operator's environment
/// (scenarios-serial.md 2.2). Nothing follows them here.
fn subscription(properties: &Value) -> Value {
    let mut definition = definition(objects::OLM_GROUP, "Subscription", true, properties);
    definition["spec"]["scope"] = "Namespaced".into();
    definition["spec"]["versions"][0]["name"] = objects::OLM_VERSION.into();
    definition
}

/// Returns the plural of a kind as it appears in URLs.
fn plural_of(kind: &str) -> String {
    let name = kind.to_ascii_lowercase();
    if name.ends_with("constraints") {
        name
    } else {
        format!("{name}s")
    }
}

fn label_selector() -> Value {
    let requirement = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"type": "string"},
            "operator": {"type": "string"},
            "values": {"type": "array", "items": {"type": "string"}},
        },
    });
    json!({
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {"type": "array", "items": requirement},
        },
    })
}

fn api_server_spec() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"tlsSecurityProfile": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "type": {"type": "string", "enum": ["", "Old", "Intermediate", "Modern", "Custom"]},
                "custom": {"type": "object", "properties": {
                    "ciphers": {"type": "array", "items": {"type": "string"}},
                    "minTLSVersion": {"type": "string", "enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
                }},
            },
        }},
    })
}

fn scheduler_spec() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"mastersSchedulable": {"type": "boolean"}},
    })
}

fn pool_spec() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "machineConfigSelector": label_selector(),
            "nodeSelector": label_selector(),
            "paused": {"type": "boolean"},
            "maxUnavailable": {"x-kubernetes-int-or-string": true},
        },
    })
}

fn pool_status() -> Value {
    let count = || json!({"type": "integer", "format": "int32"});
    let condition = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string"},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    });
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "configuration": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "machineCount": count(),
            "updatedMachineCount": count(),
            "readyMachineCount": count(),
            "unavailableMachineCount": count(),
            "degradedMachineCount": count(),
            "conditions": {"type": "array", "items": condition},
        },
    })
}

fn kubelet_config_spec() -> Value {
    json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "machineConfigPoolSelector": label_selector(),
            "kubeletConfig": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
    })
}

fn constraints() -> Value {
    let strings = || json!({"type": "array", "items": {"type": "string"}});
    json!({
        "allowHostDirVolumePlugin": {"type": "boolean"},
        "readOnlyRootFilesystem": {"type": "boolean"},
        "users": strings(),
        "volumes": strings(),
    })
}

async fn served(client: &Client, name: &str) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = await_condition(api, name, conditions::is_crd_established());
    match tokio::time::timeout(SERVED_WITHIN, established).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Error::NotServed(name.to_owned())),
    }
}

/// Creates or updates an object including its status.
async fn write(client: &Client, plural: &str, object: &Value) -> Result<(), Error> {
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let name = text(&object["metadata"]["name"]);
    let failed = |source: kube::Error| Error::Write {
        kind: kind.to_owned(),
        name: name.to_owned(),
        source: Box::new(source),
    };
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    let begun = Instant::now();
    loop {
        match api.patch(name, &params, &Patch::Apply(object)).await {
            // A real API server may serve a new kind slightly later than the condition says.
            Err(kube::Error::Api(status))
                if status.code == 404 && begun.elapsed() < SERVED_WITHIN =>
            {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            written => {
                written.map_err(failed)?;
                break;
            }
        }
    }
    if let Some(status) = object.get("status") {
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &patch)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

/// Returns the text of a value that this file wrote itself.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
