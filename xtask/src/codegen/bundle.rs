//! `config/bundle/`: the operator as the Operator Lifecycle Manager installs it (operator.md 9).

use api::{names, operator, scheduler};
use data_encoding::BASE64;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use manifests::operator::{Options, Set};
use manifests::platform::Platform;
use serde_json::{Map, Value, json};

use super::{File, install, samples};

mod image;
mod owned;
#[cfg(test)]
mod rules;

const PACKAGE: &str = "numaresources-operator";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version at the head of the original's channel, which this one takes the place of: whoever subscribed to the original gets this one.
const REPLACED: &str = "5.0.999-snapshot";
/// The first version of the original from which one can come here at once, as its own last version says of itself.
const FIRST_SKIPPED: &str = "4.22.0";
const ICON: &str = include_str!("bundle/icon.svg");
/// Directory of the manifests in a bundle's image, relative to `config/`.
const MANIFESTS: &str = "bundle/manifests";

/// Renders the files.
pub(super) fn files() -> anyhow::Result<Vec<File>> {
    let definitions = definitions();
    let set = Set::new(&Options {
        platform: Platform::OpenShift,
        ..install::options()
    });
    let mut service = set.service.clone();
    // the namespace is chosen with the subscription
    service.metadata.namespace = None;
    let mut files = vec![
        File::document(
            format!("{MANIFESTS}/{PACKAGE}.clusterserviceversion.yaml"),
            &cluster_service_version(&set, &definitions)?,
        )?,
        File::document(
            format!("{MANIFESTS}/{}_v1_service.yaml", service.name_any()),
            &service,
        )?,
    ];
    files.extend(image::files()?);
    for definition in definitions {
        let path = format!(
            "{MANIFESTS}/{}_{}.yaml",
            definition.spec.group, definition.spec.names.plural
        );
        files.push(File::document(path, &definition)?);
    }
    Ok(files)
}

/// Returns the kinds that the operator owns. It installs the definition of NRTs itself.
fn definitions() -> Vec<CustomResourceDefinition> {
    vec![
        api::crd::numa_resources_operator(),
        api::crd::numa_resources_scheduler(),
    ]
}

fn cluster_service_version(
    set: &Set,
    definitions: &[CustomResourceDefinition],
) -> anyhow::Result<Value> {
    let account = names::OPERATOR_SERVICE_ACCOUNT;
    let local = set
        .roles
        .iter()
        .flat_map(|role| role.rules.iter().flatten());
    let local: Vec<_> = local.collect();
    let deployment = &set.deployment;
    let mut owned = Vec::new();
    for definition in definitions {
        owned.extend(owned::kinds(definition)?);
    }
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{PACKAGE}.v{VERSION}"),
            "namespace": "placeholder",
            "annotations": csv_annotations()?,
        },
        "spec": {
            "displayName": "NUMA Resources Operator",
            "description": "Installs and keeps what places pods by NUMA zones: an exporter on each node that publishes what its zones have \
                            left, and a secondary scheduler that decides by it.",
            "version": VERSION,
            "replaces": format!("{PACKAGE}.v{REPLACED}"),
            "icon": [{"base64data": BASE64.encode(ICON.as_bytes()), "mediatype": "image/svg+xml"}],
            "relatedImages": [{"name": "stack", "image": names::STACK_IMAGE}],
            "maturity": "stable",
            "minKubeVersion": "1.23.0",
            "keywords": ["numa", "scheduling", "topology"],
            "provider": {"name": "NUMA resources"},
            "maintainers": [{"name": "NUMA resources", "email": "numaresources@example.com"}],
            "links": [{"name": "Node Topology API", "url": "https://github.com/k8stopologyawareschedwg/noderesourcetopology-api"}],
            "installModes": install_modes(),
            "customresourcedefinitions": {"owned": owned},
            "install": {"strategy": "deployment", "spec": {
                "clusterPermissions": [{"serviceAccountName": account, "rules": set.cluster_role.rules}],
                "permissions": [{"serviceAccountName": account, "rules": local}],
                "deployments": [{
                    "name": deployment.name_any(),
                    "label": deployment.metadata.labels,
                    "spec": deployment.spec,
                }],
            }},
        },
    }))
}

fn install_modes() -> Value {
    let modes = [
        ("OwnNamespace", true),
        ("SingleNamespace", true),
        ("MultiNamespace", false),
        ("AllNamespaces", true),
    ];
    json!(modes.map(|(mode, supported)| json!({"type": mode, "supported": supported})))
}

fn csv_annotations() -> anyhow::Result<Value> {
    let mut annotations = Map::new();
    annotations.insert(
        "alm-examples".into(),
        serde_json::to_string_pretty(&examples())?.into(),
    );
    for (key, value) in [
        ("capabilities", "Basic Install"),
        ("categories", "OpenShift Optional"),
        ("containerImage", names::STACK_IMAGE),
        (
            "description",
            "Places pods by NUMA zones: exporters and a secondary scheduler.",
        ),
        ("operatorframework.io/cluster-monitoring", "true"),
        ("operatorframework.io/suggested-namespace", names::NAMESPACE),
    ] {
        annotations.insert(key.into(), value.into());
    }
    annotations.insert(
        "olm.skipRange".into(),
        format!(">={FIRST_SKIPPED} <={REPLACED}").into(),
    );
    let features = [
        ("cnf", true),
        ("cni", false),
        ("csi", false),
        ("disconnected", true),
        // ring has no FIPS validation
        ("fips-compliant", false),
        ("proxy-aware", false),
        ("tls-profiles", true),
        ("token-auth-aws", false),
        ("token-auth-azure", false),
        ("token-auth-gcp", false),
    ];
    for (feature, has) in features {
        annotations.insert(
            format!("features.operators.openshift.io/{feature}"),
            has.to_string().into(),
        );
    }
    Ok(Value::Object(annotations))
}

/// Returns one resource of each kind and version.
fn examples() -> Vec<Value> {
    let alpha = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "nodetopology.openshift.io/v1alpha1", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        })
    };
    let pools =
        json!({"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}});
    let mut examples = samples::objects();
    examples.push(alpha(
        operator::KIND,
        names::OPERATOR_CR,
        json!({"nodeGroups": [{"machineConfigPoolSelector": pools}]}),
    ));
    examples.push(alpha(
        scheduler::KIND,
        names::SCHEDULER_CR,
        json!({"imageSpec": names::pinned_stack_image()}),
    ));
    examples
}
