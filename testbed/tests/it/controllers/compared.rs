//! Compares the embedded controllers with the real kube-controller-manager: the same objects on a cluster of each kind end in the same
//! state. Needs root for the cluster of real parts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use cluster_spec::plan::{ClusterSpec, NodePlan};
use fixtures::machines::Machine;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams,
    PostParams, PropagationPolicy,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config, ResourceExt as _};
use local_cluster::LocalCluster;
use programs::kubernetes::{self, SearchPath};
use serde_json::{Value, json};
use testbed::embedded::EmbeddedSpec;
use testbed::eventually;
use testbed::lane::{self, Spec};

use self::names::{Names, without_times};
use crate::cluster::harness::{HELPER, state_root};

mod names;
mod workloads;

const NAMESPACE: &str = "compared";
/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_mins(2);
/// Interval of the polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Number of equal polls in a row after which the state counts as stable.
const STABLE_POLLS: u32 = 10;

/// The stable state after each step.
type States = Vec<(&'static str, Vec<String>)>;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: root and the Kubernetes programs"]
async fn the_same_objects_leave_the_same_as_with_the_real_controllers() {
    let state_root = state_root();
    let nodes = || NodePlan::all(1, &Machine::default_profile());
    let bin_dir = Path::new(HELPER).parent().unwrap();
    let assets = kubernetes::locate(&SearchPath::from_environment(None), &|_| {}).unwrap();
    let local = ClusterSpec::with_workers(
        "real",
        state_root.path(),
        assets,
        bin_dir,
        1,
        &Machine::default_profile(),
    );
    let local = LocalCluster::up(local, &|_| {}).await.unwrap();
    let real = Box::pin(run_scenario(&local.kubeconfig())).await;
    local.down().unwrap();
    let embedded = EmbeddedSpec::new("ours", state_root.path(), bin_dir, nodes());
    let embedded = lane::Cluster::up(Spec::Embedded(embedded), &|_| {})
        .await
        .unwrap();
    let ours = Box::pin(run_scenario(&embedded.kubeconfig())).await;
    embedded.down().unwrap();
    let mut differences = Vec::new();
    for ((step, real), (_, ours)) in real.iter().zip(&ours) {
        assert!(!real.is_empty(), "{step}: nothing was seen");
        let [real, ours] = [real, ours].map(|lines| lines.iter().collect::<BTreeSet<_>>());
        differences.extend(
            real.difference(&ours)
                .map(|line| format!("{step}: only real: {line}")),
        );
        differences.extend(
            ours.difference(&real)
                .map(|line| format!("{step}: only ours: {line}")),
        );
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A cluster and the steps that are played on it.
struct Scenario {
    client: Client,
    states: States,
}

async fn run_scenario(kubeconfig: &Path) -> States {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap();
    // Refusals are part of the comparison, so the client must not retry.
    config.default_retry = false;
    let mut scenario = Scenario {
        client: Client::try_from(config).unwrap(),
        states: Vec::new(),
    };
    scenario
        .make("v1", "Namespace", json!({"metadata": {"name": NAMESPACE}}))
        .await;
    scenario.record_state("a namespace").await;
    scenario.deployments().await;
    scenario.daemon_sets().await;
    scenario.jobs().await;
    scenario.workloads().await;
    scenario.owners().await;
    scenario.namespaces().await;
    scenario.states
}

fn template(app: &str, command: &[&str], restart: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "restartPolicy": restart, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": api::names::STACK_IMAGE, "command": command}],
        },
    })
}

fn forever(app: &str) -> Value {
    template(app, &["/bin/sleep", "infinity"], "Always")
}

impl Scenario {
    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if kind == "Namespace" {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
        }
    }

    async fn make(&self, api_version: &str, kind: &str, mut object: Value) -> DynamicObject {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let object = serde_json::from_value(object).unwrap();
        let api = self.api(api_version, kind);
        // The service account of the namespace may not exist yet.
        let made = eventually(PATIENCE, async || {
            let made = api.create(&PostParams::default(), &object).await;
            made.map_err(|error| format!("{kind}: {error}"))
        });
        made.await.unwrap()
    }

    async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: Value) {
        let api = self.api(api_version, kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn delete(&self, api_version: &str, kind: &str, name: &str, policy: PropagationPolicy) {
        let params = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        self.api(api_version, kind)
            .delete(name, &params)
            .await
            .unwrap();
    }

    /// Records the state once it is stable.
    async fn record_state(&mut self, step: &'static str) {
        let deadline = Instant::now() + PATIENCE;
        let mut last = Vec::new();
        let mut same = 0;
        while same < STABLE_POLLS {
            assert!(Instant::now() < deadline, "{step}: not stable: {last:#?}");
            tokio::time::sleep(POLL_INTERVAL).await;
            let now = self.everything().await;
            // a kubelet of a busy machine may need longer than that to start a pod
            let starting = self.pod_is_starting().await;
            same = if now == last && !starting {
                same + 1
            } else {
                0
            };
            last = now;
        }
        self.states.push((step, last));
    }

    /// Returns whether a pod has a node and does not run there yet.
    async fn pod_is_starting(&self) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pods = pods.list(&ListParams::default()).await.unwrap();
        pods.items.into_iter().any(|pod| {
            let bound = pod.spec.is_some_and(|spec| {
                // a pod whose claim nothing binds never starts
                let mut volumes = spec.volumes.into_iter().flatten();
                let waits = volumes.any(|volume| volume.persistent_volume_claim.is_some());
                spec.node_name.is_some() && !waits
            });
            let phase = pod.status.and_then(|status| status.phase);
            bound && phase.as_deref() == Some("Pending")
        })
    }

    /// Returns the content of the namespace as lines, without values that differ from run to run.
    async fn everything(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (api_version, kind) in [
            ("v1", "ServiceAccount"),
            ("v1", "ConfigMap"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "ControllerRevision"),
            ("batch/v1", "CronJob"),
            ("batch/v1", "Job"),
            ("v1", "PersistentVolumeClaim"),
            ("policy/v1", "PodDisruptionBudget"),
            ("v1", "Service"),
            ("discovery.k8s.io/v1", "EndpointSlice"),
            ("v1", "Pod"),
            ("v1", "Event"),
        ] {
            let list = self
                .api(api_version, kind)
                .list(&ListParams::default())
                .await;
            all.extend(list.unwrap().items.into_iter().map(|object| (kind, object)));
        }
        let mut names = Names::default();
        for (kind, object) in &all {
            names.learn(kind, object);
        }
        let mut lines: Vec<String> = all
            .iter()
            .filter_map(|(kind, object)| names.line(kind, object))
            .collect();
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = namespaces.get_opt(NAMESPACE).await.unwrap();
        let status = json!(namespace.and_then(|found| found.status));
        lines.push(format!("Namespace {}", without_times(&status)));
        lines.sort();
        lines
    }

    async fn deployments(&mut self) {
        let deployment = json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": forever("web")}});
        self.make("apps/v1", "Deployment", deployment).await;
        self.make(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"metadata": {"name": "web"}, "spec": {
            "minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}),
        )
        .await;
        self.make(
            "v1",
            "Service",
            json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}}),
        )
        .await;
        self.record_state("a deployment").await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let one = pods
            .list(&ListParams::default().labels("app=web"))
            .await
            .unwrap();
        let name = one.items[0].name_any();
        let refused = pods
            .evict(&name, &EvictParams::default())
            .await
            .unwrap_err();
        self.states.push((
            "an eviction beyond the budget",
            vec![format!("{refused:?}")],
        ));
        let env = json!({"spec": {"template": {"spec": {"containers": [{
            "name": "c", "image": api::names::STACK_IMAGE, "command": ["/bin/sleep", "infinity"],
            "env": [{"name": "A", "value": "1"}]}]}}}});
        self.patch("apps/v1", "Deployment", "web", env).await;
        self.record_state("a rollout").await;
        self.patch(
            "apps/v1",
            "Deployment",
            "web",
            json!({"spec": {"replicas": 3}}),
        )
        .await;
        self.record_state("more replicas").await;
        self.patch(
            "apps/v1",
            "Deployment",
            "web",
            json!({"spec": {"replicas": 0}}),
        )
        .await;
        self.record_state("no replicas").await;
        self.delete(
            "apps/v1",
            "Deployment",
            "web",
            PropagationPolicy::Foreground,
        )
        .await;
        self.delete("v1", "Service", "web", PropagationPolicy::Background)
            .await;
        self.record_state("no deployment").await;
    }

    async fn daemon_sets(&mut self) {
        let set = json!({"metadata": {"name": "each"}, "spec": {
            "selector": {"matchLabels": {"app": "each"}}, "template": forever("each")}});
        self.make("apps/v1", "DaemonSet", set).await;
        self.record_state("a daemon set").await;
        let label = json!({"spec": {"template": {"metadata": {"labels": {"new": "1"}}}}});
        self.patch("apps/v1", "DaemonSet", "each", label).await;
        self.record_state("a daemon set anew").await;
        self.delete(
            "apps/v1",
            "DaemonSet",
            "each",
            PropagationPolicy::Background,
        )
        .await;
        self.record_state("no daemon set").await;
    }

    async fn jobs(&mut self) {
        let job = |name: &str, argument: &str, count: i32| {
            json!({"metadata": {"name": name}, "spec": {
                "completions": count, "parallelism": count.min(2), "backoffLimit": 0,
                "template": template(name, &["/bin/sleep", argument], "Never")}})
        };
        self.make("batch/v1", "Job", job("good", "0", 3)).await;
        self.record_state("a job").await;
        self.make("batch/v1", "Job", job("bad", "nonsense", 1))
            .await;
        self.record_state("a job that fails").await;
        for name in ["good", "bad"] {
            self.delete("batch/v1", "Job", name, PropagationPolicy::Background)
                .await;
        }
        self.record_state("no jobs").await;
    }

    async fn owners(&mut self) {
        let map = |name: &str, owner: Option<&DynamicObject>| {
            let owners = owner.map(|owner| {
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(),
                    "blockOwnerDeletion": true}])
            });
            json!({"metadata": {"name": name, "ownerReferences": owners}})
        };
        for (owner, policy) in [
            ("owner-b", PropagationPolicy::Background),
            ("owner-f", PropagationPolicy::Foreground),
            ("owner-o", PropagationPolicy::Orphan),
        ] {
            let held = self.make("v1", "ConfigMap", map(owner, None)).await;
            let owned = format!("{owner}-owned");
            let owned = self.make("v1", "ConfigMap", map(&owned, Some(&held))).await;
            let below = format!("{owner}-below");
            self.make("v1", "ConfigMap", map(&below, Some(&owned)))
                .await;
            self.delete("v1", "ConfigMap", owner, policy).await;
        }
        let mut gone = map("of-nobody", None);
        gone["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody",
            "uid": "00000000-0000-0000-0000-000000000000"}]);
        self.make("v1", "ConfigMap", gone).await;
        self.record_state("owners that are deleted").await;
    }

    async fn namespaces(&mut self) {
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        self.make("v1", "ConfigMap", held).await;
        self.delete("v1", "Namespace", NAMESPACE, PropagationPolicy::Background)
            .await;
        self.until("the namespace says what holds it", |namespace| {
            let status = namespace.and_then(|found| found.status.clone());
            let conditions = status.and_then(|status| status.conditions);
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|held| {
                let message = held.message.unwrap_or_default();
                // Only the objects with a finalizer are left.
                held.type_ == "NamespaceContentRemaining"
                    && message.ends_with("configmaps. has 1 resource instances")
            })
        })
        .await;
        self.record_state("a namespace that is held").await;
        self.patch(
            "v1",
            "ConfigMap",
            "held",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
        self.until("the namespace is gone", |namespace| namespace.is_none())
            .await;
        self.record_state("no namespace").await;
    }

    /// Waits until the namespace satisfies a condition.
    async fn until(&self, what: &str, wanted: impl Fn(Option<&Namespace>) -> bool) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let seen = eventually(PATIENCE, async || {
            let found = namespaces.get_opt(NAMESPACE).await.unwrap();
            if wanted(found.as_ref()) {
                return Ok(());
            }
            Err(format!("never: {what}: {found:#?}"))
        });
        seen.await.unwrap();
    }
}
