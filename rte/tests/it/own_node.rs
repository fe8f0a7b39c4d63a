//! The admission policy lets an exporter write the topology of its own node and the status of its own pod only. The embedded
//! API server and a real one refuse the same.

use std::time::Duration;

use api::names;
use api::nrt::v1alpha2::NodeResourceTopology;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use manifests::platform::Platform;
use manifests::rte::{Options, Set, standalone};
use rstest::rstest;
use serde_json::{Value, json};
use testbed::api_server::ApiServer;
use testbed::lane::Lane;

use crate::api_server::PATIENCE;
use crate::scene::with_nrts;

const OWN: &str = "worker-0";
const OTHER: &str = "worker-1";
const OWN_POD: &str = "exporter-a";
const OTHER_POD: &str = "exporter-b";
const REFUSAL: &str = "an exporter writes the NodeResourceTopology of its own node only";
const REFUSAL_OF_PODS: &str = "an exporter writes the status of its own pod only";

async fn client(kubeconfig: Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn topology(name: &str) -> NodeResourceTopology {
    serde_json::from_value(json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
        "metadata": {"name": name}, "zones": [],
    }))
    .unwrap()
}

fn pod(name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {
        "nodeName": OWN, "serviceAccountName": names::RTE, "containers": [{"name": "c", "image": "i"}],
    }});
    serde_json::from_value(pod).unwrap()
}

/// What the operator installs for exporters in its namespace.
fn of_the_operator() -> (&'static str, Vec<Value>) {
    let options = Options::new(names::NAMESPACE, Platform::Kubernetes, "i");
    (names::NAMESPACE, Set::new(&options, &[]).objects())
}

/// What installs exporters without an operator.
fn of_the_manifest() -> (&'static str, Vec<Value>) {
    ("default", standalone::objects("i"))
}

/// An API server with the objects of the exporters, two nodes, and an exporter's pod on the first.
struct Scene {
    _server: ApiServer,
    admin: Api<NodeResourceTopology>,
    /// With the token of the pod.
    exporter: Api<NodeResourceTopology>,
    /// With a token of the same account that no pod has.
    unbound: Api<NodeResourceTopology>,
    /// The pods beside the exporter's, with the token of that.
    pods: Api<Pod>,
}

impl Scene {
    async fn new(lane: Lane, (namespace, objects): (&str, Vec<Value>)) -> Self {
        let server = ApiServer::start(lane).await.unwrap();
        let admin = server.client().await.unwrap();
        let applier = with_nrts(&admin).await;
        let of_namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        applier.apply(&of_namespace).await.unwrap();
        for object in &objects {
            applier.apply(object).await.unwrap();
        }
        // exporters may not delete by their role: without this right nothing would show that the policy forbids it, too
        for object in [
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "deletes"},
                "rules": [{"apiGroups": ["topology.node.k8s.io"], "resources": ["noderesourcetopologies"], "verbs": ["delete"]}],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "deletes"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "deletes"},
                "subjects": [{"kind": "ServiceAccount", "name": names::RTE, "namespace": namespace}],
            }),
        ] {
            applier.apply(&object).await.unwrap();
        }
        let nodes: Api<Node> = Api::all(admin.clone());
        for name in [OWN, OTHER] {
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let pods: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        let post = PostParams::default();
        pods.create(&post, &pod(OTHER_POD)).await.unwrap();
        let own = pods.create(&post, &pod(OWN_POD)).await.unwrap();
        let exporter = server.pod_kubeconfig(namespace, names::RTE, &own).await;
        let exporter = client(exporter.unwrap()).await;
        let unbound = server.account_kubeconfig(namespace, names::RTE).await;
        let this = Self {
            admin: Api::all(admin),
            exporter: Api::all(exporter.clone()),
            pods: Api::namespaced(exporter, namespace),
            unbound: Api::all(client(unbound.unwrap()).await),
            _server: server,
        };
        this.policy_is_in_effect().await;
        this
    }

    /// Waits for the API server, which reads its policies from time to time.
    async fn policy_is_in_effect(&self) {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let refused = async {
            let mut pause = tokio::time::interval(Duration::from_millis(100));
            loop {
                pause.tick().await;
                match self.exporter.create(&dry_run, &topology(OTHER)).await {
                    Err(kube::Error::Api(status)) if status.message.contains(REFUSAL) => break,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, refused)
            .await
            .expect("the policy takes effect");
    }
}

/// Checks that a request was refused by the policy, and not for want of a right.
fn is_refused<T>(result: kube::Result<T>, refusal: &str, what: &str) {
    let Err(kube::Error::Api(status)) = result else {
        panic!("{what} is not refused");
    };
    assert_eq!(status.code, 403, "{what}: {status:?}");
    assert!(status.message.contains(refusal), "{what}: {status:?}");
    assert!(
        status.message.contains(names::RTE_OWN_NODE_POLICY),
        "{what}: {status:?}"
    );
}

fn is_refused_by_the_policy<T>(result: kube::Result<T>, what: &str) {
    is_refused(result, REFUSAL, what);
}

#[rstest]
#[case::of_the_operator(of_the_operator())]
#[case::without_an_operator(of_the_manifest())]
#[tokio::test(flavor = "multi_thread")]
async fn exporter_writes_of_its_own_node_and_pod_and_of_no_other(
    #[case] installation: (&'static str, Vec<Value>),
) {
    writes_of_its_own_only(Scene::new(Lane::Embedded, installation).await).await;
}

#[rstest]
#[case::of_the_operator(of_the_operator())]
#[case::without_an_operator(of_the_manifest())]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "real: the Kubernetes programs"]
async fn real_server_lets_an_exporter_write_of_its_own_node_and_pod_and_of_no_other(
    #[case] installation: (&'static str, Vec<Value>),
) {
    writes_of_its_own_only(Scene::new(Lane::Local, installation).await).await;
}

async fn writes_of_its_own_only(scene: Scene) {
    let (post, delete) = (PostParams::default(), DeleteParams::default());
    let merge = Patch::Merge(json!({"topologyPolicies": ["None"]}));
    let patch = PatchParams::default();
    let Scene {
        admin,
        exporter,
        unbound,
        pods,
        ..
    } = &scene;

    // everybody else writes as the roles say
    let other = admin.create(&post, &topology(OTHER)).await.unwrap();

    let own = exporter.create(&post, &topology(OWN)).await.unwrap();
    exporter.replace(OWN, &post, &own).await.unwrap();
    exporter.patch(OWN, &patch, &merge).await.unwrap();

    is_refused_by_the_policy(
        exporter.replace(OTHER, &post, &other).await,
        "a replacement",
    );
    is_refused_by_the_policy(exporter.patch(OTHER, &patch, &merge).await, "a patch");
    is_refused_by_the_policy(exporter.delete(OTHER, &delete).await, "a deletion");
    is_refused_by_the_policy(
        exporter.create(&post, &topology("worker-2")).await,
        "a creation",
    );
    let mut generated = topology("");
    generated.metadata.name = None;
    generated.metadata.generate_name = Some(OWN.to_owned());
    is_refused_by_the_policy(exporter.create(&post, &generated).await, "a generated name");
    let of_nobody = unbound.patch(OWN, &patch, &merge).await;
    is_refused_by_the_policy(of_nobody, "a token without a node");

    // the readiness conditions of its own pod
    let status = json!({"conditions": [{"type": "PodresourcesFetched", "status": "True"}]});
    for name in [OWN_POD, OTHER_POD] {
        let mut pod = pods.get(name).await.unwrap();
        pod.status = serde_json::from_value(status.clone()).unwrap();
        let written = pods.replace_status(name, &post, &pod).await;
        if name == OWN_POD {
            written.unwrap();
        } else {
            is_refused(written, REFUSAL_OF_PODS, "a status");
        }
    }

    exporter.delete(OWN, &delete).await.unwrap();
    admin.delete(OTHER, &delete).await.unwrap();
}
