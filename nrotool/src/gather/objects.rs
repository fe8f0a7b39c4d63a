//! Objects, in the layout of `oc adm inspect`: cluster-wide ones each in a file, those of a namespace as lists.

use api::nrt;
use api::openshift::{config, machine_config};
use api::{labels, names, operator};
use apply::Cause;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind, ObjectList};
use kube::{Client, ResourceExt as _};
use manifests::platform::Platform;
use serde_json::{Value, json};

use super::Gather;
use super::folder::name;
use super::limits::Error;

/// Number of objects in a page of a list.
const PAGE: u32 = 250;

/// A kind to collect: group, version, kind and plural.
type Kind = (&'static str, &'static str, &'static str, &'static str);

/// Cluster-wide kinds of every platform.
const CLUSTER_WIDE: [Kind; 4] = [
    ("", "v1", "Node", "nodes"),
    (
        operator::GROUP,
        "v1",
        operator::KIND,
        "numaresourcesoperators",
    ),
    (
        operator::GROUP,
        "v1",
        "NUMAResourcesScheduler",
        "numaresourcesschedulers",
    ),
    (nrt::GROUP, "v1alpha2", nrt::KIND, nrt::PLURAL),
];

/// Those of OpenShift, hosted clusters included.
const OPENSHIFT: [Kind; 3] = [
    (config::GROUP, "v1", "ClusterVersion", "clusterversions"),
    (config::GROUP, "v1", "Infrastructure", "infrastructures"),
    (config::GROUP, "v1", "FeatureGate", "featuregates"),
];

/// Those of an OpenShift that configures its machines itself. Machine configurations hold files of all kinds, so only those of the stack are
/// collected.
const MACHINES: [Kind; 2] = [
    (
        machine_config::GROUP,
        "v1",
        "MachineConfigPool",
        "machineconfigpools",
    ),
    (
        machine_config::GROUP,
        "v1",
        "KubeletConfig",
        "kubeletconfigs",
    ),
];

const DEFINITION: Kind = (
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
);

/// Kinds of a namespace of the stack. Secrets are none of them.
const NAMESPACED: [Kind; 12] = [
    ("", "v1", "Pod", "pods"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Event", "events"),
    ("", "v1", "Service", "services"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "ReplicaSet", "replicasets"),
    ("coordination.k8s.io", "v1", "Lease", "leases"),
    (
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicies",
    ),
    (
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
    ),
];

/// Collects what belongs to no namespace, and on a hosted cluster the ConfigMaps with the settings of its kubelets.
pub(super) async fn cluster_wide(gather: &Gather, platform: Platform) {
    let mut kinds = CLUSTER_WIDE.to_vec();
    if platform.is_openshift() {
        kinds.extend(OPENSHIFT);
    }
    if platform == Platform::OpenShift {
        kinds.extend(MACHINES);
    }
    for kind in kinds {
        each(gather, kind, None, "", |_| true).await;
    }
    let plurals = [
        format!("numaresourcesoperators.{}", operator::GROUP),
        format!("numaresourcesschedulers.{}", operator::GROUP),
        format!("{}.{}", nrt::PLURAL, nrt::GROUP),
    ];
    let is_ours = |object: &DynamicObject| plurals.contains(&object.name_any());
    each(gather, DEFINITION, None, "", is_ours).await;
    match platform {
        Platform::OpenShift => {
            let kind = (
                machine_config::GROUP,
                "v1",
                "MachineConfig",
                "machineconfigs",
            );
            let start = names::machine_config(names::OPERATOR_CR, "");
            let is_ours = |object: &DynamicObject| object.name_any().starts_with(&start);
            each(gather, kind, None, "", is_ours).await;
        }
        Platform::HyperShift => {
            let kind = ("", "v1", "ConfigMap", "configmaps");
            let namespace = Some(names::HYPERSHIFT_CONFIG_NAMESPACE);
            let selector = labels::HYPERSHIFT_KUBELET_CONFIG;
            each(gather, kind, namespace, selector, |_| true).await;
        }
        Platform::Kubernetes => {}
    }
}

/// Collects the objects of a namespace.
pub(super) async fn of_namespace(gather: &Gather, namespace: &str) {
    let folder = format!("namespaces/{}", name(namespace));
    let namespaces = resource(("", "v1", "Namespace", "namespaces"));
    let api: Api<DynamicObject> = Api::all_with(gather.client.clone(), &namespaces);
    let found = gather.limits.request(api.get(namespace)).await;
    if let Some(object) = gather
        .folder
        .or_error(&format!("namespace {namespace}"), found)
    {
        let path = format!("{folder}/{}.yaml", name(namespace));
        gather.folder.yaml(&path, &whole(object, &namespaces));
    }
    for kind in NAMESPACED {
        let what = format!("{} of namespace {namespace}", kind.3);
        let found = listed(gather, kind, Some(namespace), "").await;
        let Some(objects) = gather.folder.or_error(&what, found) else {
            continue;
        };
        let of = resource(kind);
        let items: Vec<Value> = objects.into_iter().map(|it| whole(it, &of)).collect();
        let list = json!({"apiVersion": of.api_version, "kind": format!("{}List", of.kind), "items": items});
        let path = format!("{folder}/{}/{}.yaml", group_folder(&of), of.plural);
        gather.folder.yaml(&path, &list);
    }
}

/// Writes each object of a kind into a file of its own.
async fn each(
    gather: &Gather,
    kind: Kind,
    namespace: Option<&str>,
    selector: &str,
    is_wanted: impl Fn(&DynamicObject) -> bool,
) {
    let of = resource(kind);
    let found = listed(gather, kind, namespace, selector).await;
    let Some(objects) = gather.folder.or_error(&of.plural, found) else {
        return;
    };
    let start = match namespace {
        Some(namespace) => format!("namespaces/{}", name(namespace)),
        None => "cluster-scoped-resources".to_owned(),
    };
    for object in objects.into_iter().filter(is_wanted) {
        let file = name(&object.name_any());
        let path = format!("{start}/{}/{}/{file}.yaml", group_folder(&of), of.plural);
        gather.folder.yaml(&path, &whole(object, &of));
    }
}

async fn listed(
    gather: &Gather,
    kind: Kind,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<DynamicObject>, Error<Cause>> {
    let of = resource(kind);
    let api = api(&gather.client, &of, namespace);
    let mut params = ListParams::default().limit(PAGE).labels(selector);
    let mut all = Vec::new();
    loop {
        let page = async { api.list(&params).await.map_err(Cause::from) };
        let page: ObjectList<DynamicObject> = gather.limits.request(page).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn api(client: &Client, of: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, of),
        None => Api::all_with(client.clone(), of),
    }
}

fn resource((group, version, kind, plural): Kind) -> ApiResource {
    let kind = GroupVersionKind::gvk(group, version, kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// Returns the name that a group has in paths.
fn group_folder(of: &ApiResource) -> &str {
    if of.group.is_empty() {
        "core"
    } else {
        &of.group
    }
}

/// Returns an object with its type, which items of a list lack.
fn whole(object: DynamicObject, of: &ApiResource) -> Value {
    // an object that came as JSON can be written as JSON
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = json!(of.api_version);
    value["kind"] = json!(of.kind);
    value
}
