//! This operator in place of the original, over what the original left running, and back. Runs on the embedded server, whose objects the
//! tests write themselves.

use std::collections::BTreeMap;

use api::openshift::machine_config::KubeletConfig;
use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use apply::{Applier, Outcome, controller_reference, set_owner};
use cluster_spec::flavour::Flavour;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Client, ResourceExt as _};
use manifests::operator::{Options, Set};
use manifests::platform::Platform;
use manifests::to_value;
use rstest::rstest;
use serde_json::{Value, json};
use testbed::api_server::ApiServer;
use testbed::lane::Lane;

use crate::cluster::{Cluster, NAMESPACE};
use crate::exporters::{CR, DS_A, DS_B};
use crate::installation::{
    Installation, Objects, SCHEDULER_CR, hosted_settings, key, simulate_controllers,
};

mod original;

const SCHEDULER: &str = "secondary-scheduler";
/// What the original has nothing of. It stays beside the original's objects until the resource is deleted, which owns it; the original's exporters
/// obey it as ours do.
const OWN_NODE: &str = "numaresources-rte-own-node";

/// Returns the API of an object whose kind has a regular plural.
fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

fn identity(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap();
    format!("{} {name}", object["kind"].as_str().unwrap())
}

/// As `kubectl apply --server-side --force-conflicts` does it: what others wrote and we do not mention stays.
#[tokio::test(flavor = "multi_thread")]
async fn operator_is_installed_over_the_original_one_and_leaves_nothing_of_it() {
    let server = ApiServer::start(Lane::from_environment().unwrap())
        .await
        .unwrap();
    let client = server.client().await.unwrap();
    let originals = original::operator();
    let applier = Applier::new(client.clone());
    let before = applier.apply_all(&originals).await.unwrap();
    let set = Set::new(&Options {
        platform: Platform::OpenShift,
        ..Options::default()
    });
    let mut ours = BTreeMap::new();
    for object in set.objects() {
        let api = api_of(&client, &object);
        let params = PatchParams::apply("kubectl").force();
        let name = object["metadata"]["name"].as_str().unwrap();
        let applied = api.patch(name, &params, &Patch::Apply(&object)).await;
        ours.insert(identity(&object), applied.unwrap());
    }
    for (object, before) in originals.iter().zip(&before) {
        let name = identity(object);
        let now = ours.get(&name);
        let now = now.unwrap_or_else(|| panic!("{name} of the original is left alone"));
        assert_eq!(now.uid(), before.object.uid(), "{name} is another object");
    }
    let deployment = &ours["Deployment numaresources-controller-manager"];
    let pods = &deployment.data["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        let all = list.as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&pods["containers"]), ["manager"]);
    assert_eq!(names(&pods["volumes"]), ["metrics-tls"]);
    let mounts = &pods["containers"][0]["volumeMounts"];
    assert_eq!(names(mounts), ["metrics-tls"]);
}

/// A running installation of the original.
struct Original {
    installation: Installation,
    flavour: Flavour,
    /// What its operator wrote, with owners.
    written: Vec<Value>,
    workload: Pod,
    topology: DynamicObject,
}

impl Original {
    async fn running(flavour: Flavour) -> Self {
        let installation = Installation::new(Some(flavour)).await;
        let client = installation.cluster.client.clone();
        if flavour == Flavour::Hypershift {
            // the schedulers of a hosted cluster run on its workers (operator.md 5.5)
            let nodes: Api<Node> = Api::all(client.clone());
            let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}});
            installation.cluster.merge(&nodes, "worker-0", role).await;
        }
        let applier = Applier::new(client.clone());
        applier
            .apply_all(&original::resources(flavour))
            .await
            .unwrap();
        let mut written = vec![to_value(&api::crd::node_resource_topology())];
        let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
        let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
        let operator = controller_reference(&operators.get(CR).await.unwrap()).unwrap();
        let scheduler = controller_reference(&schedulers.get(SCHEDULER_CR).await.unwrap());
        let scheduler = scheduler.unwrap();
        let owned = |objects: Vec<Value>, owner| {
            objects.into_iter().map(move |mut object| {
                set_owner(&mut object, owner);
                object
            })
        };
        written.extend(owned(original::exporters(flavour), &operator));
        written.extend(owned(original::scheduler(), &scheduler));
        written.push(kubelet_settings(&client, flavour).await);
        applier.apply_all(&written).await.unwrap();
        let this = Self {
            workload: workload(&client).await,
            topology: topology(&client).await,
            installation,
            flavour,
            written,
        };
        this.writes_status().await;
        tokio::spawn(simulate_controllers(client));
        this.everything_runs().await;
        this
    }

    /// Writes the status of both resources.
    async fn writes_status(&self) {
        let cluster = &self.installation.cluster;
        let operators: Api<NumaResourcesOperator> = Api::all(cluster.client.clone());
        let schedulers: Api<NumaResourcesScheduler> = Api::all(cluster.client.clone());
        let status = original::operator_status(self.flavour);
        cluster.report(&operators, CR, status).await;
        let status = original::scheduler_status();
        cluster.report(&schedulers, SCHEDULER_CR, status).await;
    }

    /// Waits until all workloads report ready pods of their templates.
    async fn everything_runs(&self) {
        let cluster = &self.installation.cluster;
        let sets: Api<DaemonSet> = cluster.namespaced();
        let deployments: Api<Deployment> = cluster.namespaced();
        cluster
            .eventually(|| async {
                for name in [DS_A, DS_B] {
                    if !apply::ready::daemon_set(&sets.get(name).await.unwrap()) {
                        return Err(format!("{name} is not ready"));
                    }
                }
                let deployment = deployments.get(SCHEDULER).await.unwrap();
                let ready = apply::ready::deployment(&deployment);
                ready
                    .then_some(())
                    .ok_or_else(|| "no scheduler runs".to_owned())
            })
            .await;
    }

    /// Waits until the operator under test has written its own workloads, and the status says the same as the original's did.
    async fn is_taken_over(&self) {
        let cluster = &self.installation.cluster;
        let client = &cluster.client;
        let operators: Api<NumaResourcesOperator> = Api::all(client.clone());
        let schedulers: Api<NumaResourcesScheduler> = Api::all(client.clone());
        let sets: Api<DaemonSet> = cluster.namespaced();
        let deployments: Api<Deployment> = cluster.namespaced();
        cluster
            .eventually(|| async {
                for name in [DS_A, DS_B] {
                    rolled_once(sets.get(name).await.unwrap().metadata.generation, name)?;
                }
                let deployment = deployments.get(SCHEDULER).await.unwrap();
                rolled_once(deployment.metadata.generation, SCHEDULER)?;
                let operator = operators.get(CR).await.unwrap();
                means(&operator.status, &original::operator_status(self.flavour))?;
                let scheduler = schedulers.get(SCHEDULER_CR).await.unwrap();
                means(&scheduler.status, &original::scheduler_status())
            })
            .await;
        self.everything_runs().await;
    }

    /// Returns uid and owners of everything but our admission policy.
    async fn identities(&self) -> BTreeMap<String, (Option<String>, Vec<(String, Option<bool>)>)> {
        let mut live = self.installation.live().await;
        live.retain(|(_, object)| object.name_any() != OWN_NODE);
        let identity = |object: &DynamicObject| {
            let owners = object.owner_references().iter();
            let owners = owners.map(|owner| (owner.uid.clone(), owner.controller));
            (key(object), (object.uid(), owners.collect()))
        };
        live.iter().map(|(_, object)| identity(object)).collect()
    }

    /// Returns everything but the two resources and our admission policy.
    async fn operands(&self) -> Objects {
        let mut objects = self.installation.objects().await;
        objects.retain(|key, _| !key.starts_with("NUMAResources") && !key.ends_with(OWN_NODE));
        for object in objects.values_mut() {
            // the API server counts the changes of a DaemonSet's template there
            if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                annotations.remove("deprecated.daemonset.template.generation");
            }
        }
        objects
    }
}

/// A rollout restarts the operands; two in a row would restart them twice.
fn rolled_once(generation: Option<i64>, name: &str) -> Result<(), String> {
    assert!(generation <= Some(2), "{name} was rolled {generation:?}");
    (generation == Some(2))
        .then_some(())
        .ok_or_else(|| format!("{name} is the original's"))
}

/// Compares a status with that of the original, apart from the times.
fn means<S: serde::Serialize>(found: &S, expected: &Value) -> Result<(), String> {
    let [found, expected] = [to_value(found), expected.clone()].map(|mut status| {
        let conditions = status["conditions"].as_array_mut();
        for condition in conditions.into_iter().flatten() {
            condition["lastTransitionTime"] = Value::Null;
        }
        status
    });
    if found == expected {
        return Ok(());
    }
    Err(format!("{found:#} instead of {expected:#}"))
}

/// Creates the settings of the first pool's kubelets, and returns the ConfigMap that the original made of them (operator.md 7).
async fn kubelet_settings(client: &Client, flavour: Flavour) -> Value {
    let mut map = original::config_map();
    let post = PostParams::default();
    let settings = json!({"topologyManagerPolicy": "single-numa-node"});
    match flavour {
        Flavour::Openshift => {
            let label = "pools.operator.machineconfiguration.openshift.io/numa-a";
            let selector = json!({"matchLabels": {label: ""}});
            let config = json!({
                "metadata": {"name": "aligned"},
                "spec": {"machineConfigPoolSelector": selector, "kubeletConfig": settings},
            });
            let configs: Api<KubeletConfig> = Api::all(client.clone());
            let config = serde_json::from_value(config).unwrap();
            let config = configs.create(&post, &config).await.unwrap();
            set_owner(&mut map, &controller_reference(&config).unwrap());
        }
        Flavour::Hypershift => {
            let sources: Api<ConfigMap> =
                Api::namespaced(client.clone(), "openshift-config-managed");
            let source = serde_json::from_value(hosted_settings()).unwrap();
            sources.create(&post, &source).await.unwrap();
        }
    }
    map
}

/// Starts a pod that the original's scheduler has placed.
async fn workload(client: &Client) -> Pod {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({"metadata": {"name": "workload"}, "spec": {
        "schedulerName": "topo-aware-scheduler", "nodeName": "worker-0",
        "containers": [{"name": "c", "image": "registry.example/work:1"}],
    }});
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap()
}

/// Publishes what an exporter of the original found.
async fn topology(client: &Client) -> DynamicObject {
    let object = json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": "worker-0"}, "zones": [{"name": "node-0", "type": "Node"}],
    });
    apply::wait::definition(
        client,
        "noderesourcetopologies.topology.node.k8s.io",
        std::time::Duration::from_secs(30),
    )
    .await
    .unwrap();
    let applied = Applier::new(client.clone()).apply(&object).await.unwrap();
    applied.object
}

#[rstest]
#[case::machines(Flavour::Openshift)]
#[case::hosted(Flavour::Hypershift)]
#[tokio::test(flavor = "multi_thread")]
async fn operands_are_taken_over_and_given_back_without_a_trace(#[case] flavour: Flavour) {
    let mut original = Box::pin(Original::running(flavour)).await;
    let client = original.installation.cluster.client.clone();
    let identities = original.identities().await;
    let operands = original.operands().await;

    original.installation.cluster.start_operator(&[]);
    original.is_taken_over().await;
    assert_eq!(original.installation.cluster.stop(), Some(0));
    // the same objects with the same owners: none is created beside the original's, none is orphaned
    assert_eq!(original.identities().await, identities);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let workload = pods.get("workload").await.unwrap();
    assert_eq!(
        workload.resource_version(),
        original.workload.resource_version()
    );
    let topologies = api_of(&client, &to_value(&original.topology));
    let topology = topologies.get("worker-0").await.unwrap();
    assert_eq!(
        topology.resource_version(),
        original.topology.resource_version()
    );

    // the original writes its objects over ours as it always does (operator.md 3.2)
    let applier = Applier::new(client);
    for applied in applier.apply_all(&original.written).await.unwrap() {
        let name = applied.object.name_any();
        assert_ne!(applied.outcome, Outcome::Created, "{name}");
    }
    assert_eq!(original.identities().await, identities);
    let given_back = original.operands().await;
    for (name, expected) in &operands {
        assert_eq!(given_back.get(name), Some(expected), "{name}");
    }
}

/// The digest is in no list of this operator. What the original let in stays; what it did not is refused as ever.
#[tokio::test(flavor = "multi_thread")]
async fn running_scheduler_of_an_unknown_release_stays_and_others_are_refused() {
    let mut original = Box::pin(Original::running(Flavour::Openshift)).await;
    original.installation.cluster.start_operator(&[]);
    original.is_taken_over().await;
    // a restarted operator knows no more than the first
    assert_eq!(original.installation.cluster.stop(), Some(0));
    original.installation.cluster.start_operator(&[]);
    let cluster = &original.installation.cluster;
    let schedulers: Api<NumaResourcesScheduler> = Api::all(cluster.client.clone());
    let names = async |image: &str| {
        let patch = json!({"spec": {"imageSpec": image, "logLevel": "Debug"}});
        cluster.merge(&schedulers, SCHEDULER_CR, patch).await;
    };
    let becomes = async |reason: &str| {
        cluster
            .eventually(|| async {
                let live = schedulers.get(SCHEDULER_CR).await.unwrap();
                let all = live.status.unwrap_or_default().conditions;
                let mut found = all.iter().filter(|one| one.status == "True");
                let found = found.any(|one| {
                    one.reason == reason && one.observed_generation == live.metadata.generation
                });
                found.then_some(()).ok_or_else(|| format!("{all:?}"))
            })
            .await;
    };
    names(&original::scheduler_image()).await;
    becomes("Available").await;
    names(&format!("registry.example/other@{DIGEST_OF_NOBODY}")).await;
    becomes("InvalidSchedulerImage").await;
    // once another scheduler runs, the original's is as unknown as any
    names(&api::names::pinned_stack_image()).await;
    becomes("Available").await;
    names(&original::scheduler_image()).await;
    becomes("InvalidSchedulerImage").await;
}

const DIGEST_OF_NOBODY: &str =
    "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// Old releases of the original named the binding after the scheduler's account (operator.md 5.1).
#[rstest]
#[case::with_the_scheduler(&[])]
#[case::without_it(&["-enable-scheduler=false"])]
#[tokio::test(flavor = "multi_thread")]
async fn binding_of_old_releases_goes_whatever_is_enabled(#[case] arguments: &[&str]) {
    let lane = Lane::from_environment().unwrap();
    let mut cluster = Cluster::without_operator(lane, None).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.client.clone());
    let legacy = json!({
        "metadata": {"name": SCHEDULER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kube-scheduler"},
        "subjects": [{"kind": "ServiceAccount", "name": SCHEDULER, "namespace": NAMESPACE}],
    });
    let legacy = serde_json::from_value(legacy).unwrap();
    bindings
        .create(&PostParams::default(), &legacy)
        .await
        .unwrap();
    cluster.start_operator(arguments);
    cluster
        .eventually(|| async {
            let found = bindings.get_opt(SCHEDULER).await.unwrap();
            found.map_or(Ok(()), |found| Err(format!("{found:?}")))
        })
        .await;
}
