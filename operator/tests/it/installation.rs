//! A whole installation: both resources, all objects that the operator creates, and the simulated controllers of a cluster. Runs on the
//! embedded server, whose internals the tests inspect.

use std::collections::{BTreeMap, BTreeSet};

use api::names;
use api::openshift::machine_config::{KubeletConfig, MachineConfig, MachineConfigPool};
use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    TypeMeta,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use testbed::lane::Lane;

use crate::cluster::{Cluster, NAMESPACE};
use crate::exporters::{CR, cr};

pub(crate) const SCHEDULER_CR: &str = "numaresourcesscheduler";
/// Kinds that the operator writes: group, version, kind, plural. Plain Kubernetes has only the first `OF_KUBERNETES`.
const KINDS: [(&str, &str, &str, &str); 18] = [
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Service", "services"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("apps", "v1", "Deployment", "deployments"),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ),
    (
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        "networkpolicies",
    ),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "RoleBinding",
        "rolebindings",
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
        "clusterroles",
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
    ),
    (
        "nodetopology.openshift.io",
        "v1",
        "NUMAResourcesOperator",
        "numaresourcesoperators",
    ),
    (
        "nodetopology.openshift.io",
        "v1",
        "NUMAResourcesScheduler",
        "numaresourcesschedulers",
    ),
    (
        "machineconfiguration.openshift.io",
        "v1",
        "MachineConfig",
        "machineconfigs",
    ),
    (
        "machineconfiguration.openshift.io",
        "v1",
        "KubeletConfig",
        "kubeletconfigs",
    ),
    (
        "security.openshift.io",
        "v1",
        "SecurityContextConstraints",
        "securitycontextconstraints",
    ),
];
const OF_KUBERNETES: usize = 15;
pub(crate) type Objects = BTreeMap<String, Value>;

/// A cluster whose operator has not started yet.
pub(crate) struct Installation {
    pub(crate) cluster: Cluster,
    flavour: Option<Flavour>,
    /// Objects that exist without an operator.
    given: BTreeSet<String>,
}

impl Installation {
    pub(crate) async fn new(flavour: Option<Flavour>) -> Self {
        let cluster = Cluster::without_operator(Lane::Embedded, flavour).await;
        let mut this = Self {
            cluster,
            flavour,
            given: BTreeSet::new(),
        };
        this.given = this.objects().await.into_keys().collect();
        this
    }

    /// Creates both resources for a whole installation.
    pub(crate) async fn create_resources(&self) {
        let client = &self.cluster.client;
        let post = PostParams::default();
        let mut first = json!({"poolName": "numa-a"});
        if self.flavour == Some(Flavour::Openshift) {
            first["annotations"] = json!({"config.node.openshift-kni.io/selinux-policy": "custom"});
            let label = "pools.operator.machineconfiguration.openshift.io/numa-a";
            let config: KubeletConfig = serde_json::from_value(json!({
                "metadata": {"name": "aligned"},
                "spec": {
                    "machineConfigPoolSelector": {"matchLabels": {label: ""}},
                    "kubeletConfig": {"topologyManagerPolicy": "single-numa-node"},
                },
            }))
            .unwrap();
            let configs: Api<KubeletConfig> = Api::all(client.clone());
            configs.create(&post, &config).await.unwrap();
        }
        let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
        let scheduler = json!({"metadata": {"name": SCHEDULER_CR}, "spec": {"imageSpec": names::pinned_stack_image()}});
        let scheduler = serde_json::from_value(scheduler).unwrap();
        schedulers.create(&post, &scheduler).await.unwrap();
        let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
        let groups = json!({"nodeGroups": [first, {"poolName": "numa-b"}]});
        operators.create(&post, &cr(&groups)).await.unwrap();
    }

    /// Returns everything that the operator created and the two resources, without what differs between clusters.
    pub(crate) async fn objects(&self) -> Objects {
        let live = self.live().await;
        let objects = live
            .iter()
            .map(|(_, object)| (key(object), comparable(object)));
        objects.collect()
    }

    /// Returns the same objects unchanged, each with its API.
    pub(crate) async fn live(&self) -> Vec<(Api<DynamicObject>, DynamicObject)> {
        let of_machines = |group: &str| group == "machineconfiguration.openshift.io";
        let kinds = match self.flavour {
            None => &KINDS[..OF_KUBERNETES],
            Some(_) => &KINDS,
        };
        let hosted = self.flavour == Some(Flavour::Hypershift);
        let kinds = kinds
            .iter()
            .filter(|(group, ..)| !(hosted && of_machines(group)));
        let client = &self.cluster.client;
        let mut live = Vec::new();
        for (group, version, kind, plural) in kinds {
            let kind = GroupVersionKind::gvk(group, version, kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            let everywhere: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for mut object in everywhere.list(&ListParams::default()).await.unwrap() {
                object.types = Some(TypeMeta {
                    api_version: resource.api_version.clone(),
                    kind: resource.kind.clone(),
                });
                if self.given.contains(&key(&object)) {
                    continue;
                }
                let api = match object.namespace() {
                    Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                    None => everywhere.clone(),
                };
                live.push((api, object));
            }
        }
        live
    }

    /// Removes the owner references from all objects, and edits the definition, which has none.
    pub(crate) async fn disown(&self) {
        let disowned = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
        for (api, object) in self.live().await {
            if !object.owner_references().is_empty() {
                let params = PatchParams::default();
                api.patch(&object.name_any(), &params, &disowned)
                    .await
                    .unwrap();
            }
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(self.cluster.client.clone());
        let edited = json!({"spec": {"names": {"shortNames": ["edited"]}}});
        let name = "noderesourcetopologies.topology.node.k8s.io";
        self.cluster.merge(&definitions, name, edited).await;
    }

    /// Waits until no object has that name.
    pub(crate) async fn has_no(&self, name: &str) {
        self.cluster
            .eventually(|| async {
                let live = self.live().await;
                let found = live.iter().find(|(_, object)| object.name_any() == name);
                found.map_or(Ok(()), |(_, object)| Err(format!("{object:?}")))
            })
            .await;
    }

    /// Waits until both resources are Available.
    pub(crate) async fn is_available(&self) {
        let client = &self.cluster.client;
        let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
        let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
        let available = |conditions: Option<Vec<Condition>>| {
            let all = conditions.unwrap_or_default();
            all.iter()
                .any(|condition| condition.type_ == "Available" && condition.status == "True")
        };
        self.cluster
            .eventually(|| async {
                let operator = operators.get(CR).await.unwrap().status;
                let scheduler = schedulers.get(SCHEDULER_CR).await.unwrap().status;
                let operator = operator.map(|status| status.conditions);
                let scheduler = scheduler.map(|status| status.conditions);
                if available(operator.clone()) && available(scheduler.clone()) {
                    Ok(())
                } else {
                    Err(format!("{operator:?} {scheduler:?}"))
                }
            })
            .await;
    }

    /// Waits until the objects equal those of an undisturbed installation.
    pub(crate) async fn becomes(&self, expected: &Objects) {
        self.cluster
            .eventually(|| async {
                let found = self.objects().await;
                let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
                let mut differing = keys
                    .into_iter()
                    .filter(|key| expected.get(*key) != found.get(*key));
                match differing.next() {
                    None => Ok(()),
                    Some(key) => Err(format!(
                        "{key} is {:?} instead of {:?}",
                        found.get(key),
                        expected.get(key)
                    )),
                }
            })
            .await;
    }
}

/// Returns the settings of the first pool's kubelets, as a hosted cluster keeps them.
pub(crate) fn hosted_settings() -> Value {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig", "metadata": {"name": "aligned"},
        "spec": {"kubeletConfig": {"topologyManagerPolicy": "single-numa-node"}},
    });
    let labels = json!({
        "hypershift.openshift.io/kubeletconfig-config": "true", "hypershift.openshift.io/nodePool": "numa-a",
    });
    json!({
        "metadata": {"name": "aligned-numa-a", "labels": labels}, "data": {"config": config.to_string()},
    })
}

/// Returns kind, namespace and name of an object.
pub(crate) fn key(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map(|types| types.kind.as_str());
    let namespace = object.namespace().unwrap_or_default();
    format!(
        "{} {namespace}/{}",
        kind.unwrap_or_default(),
        object.name_any()
    )
}

/// Returns an object without the fields that the API server, time and uids make different in each cluster.
fn comparable(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    let metadata = json!({
        "labels": object.metadata.labels,
        "annotations": object.metadata.annotations,
        "finalizers": object.metadata.finalizers,
        "owners": object.owner_references().iter().map(|owner| (&owner.kind, &owner.name, owner.controller)).collect::<Vec<_>>(),
    });
    value["metadata"] = metadata;
    if let Some(spec) = value["spec"].as_object_mut() {
        spec.retain(|key, _| !key.starts_with("clusterIP"));
    }
    let ours = value["apiVersion"] == "nodetopology.openshift.io/v1";
    if let (false, Some(all)) = (ours, value.as_object_mut()) {
        // other controllers write this status
        all.remove("status");
    }
    let conditions = value.pointer_mut("/status/conditions");
    for condition in conditions
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        condition["lastTransitionTime"] = Value::Null;
    }
    value
}

/// Simulates the other controllers of a cluster for as long as it is polled: workloads become ready, machines take their configuration.
pub(crate) async fn simulate_controllers(client: Client) {
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(50));
    loop {
        tick.tick().await;
        // a call fails when its object has just been deleted; the next round repeats it
        let _ = report_once(&client).await;
    }
}

async fn report_once(client: &Client) -> kube::Result<()> {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
    for set in sets.list(&ListParams::default()).await? {
        let status = set.status.clone().unwrap_or_default();
        if status.observed_generation != set.metadata.generation {
            let ready = json!({
                "observedGeneration": set.metadata.generation, "desiredNumberScheduled": 1, "currentNumberScheduled": 1,
                "numberMisscheduled": 0, "numberReady": 1, "updatedNumberScheduled": 1,
            });
            report(&sets, &set.name_any(), ready).await?;
        }
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    for deployment in deployments.list(&ListParams::default()).await? {
        let status = deployment.status.clone().unwrap_or_default();
        if status.observed_generation != deployment.metadata.generation {
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
            let ready = json!({
                "observedGeneration": deployment.metadata.generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
                "conditions": [{"type": "Available", "status": "True", "reason": "r", "message": "m"}],
            });
            report(&deployments, &deployment.name_any(), ready).await?;
        }
    }
    let machine_configs: Api<MachineConfig> = Api::all(client.clone());
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    for config in machine_configs
        .list_metadata(&ListParams::default())
        .await?
    {
        let name = config.name_any();
        if let Some(pool) = name.strip_prefix("51-numaresourcesoperator-") {
            let has = json!({"configuration": {"name": "rendered", "source": [{"name": name}]},
                "conditions": [{"type": "Updated", "status": "True"}]});
            report(&pools, pool, has).await?;
        }
    }
    Ok(())
}

async fn report<K>(api: &Api<K>, name: &str, status: Value) -> kube::Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}
