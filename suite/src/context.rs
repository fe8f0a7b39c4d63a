//! What a scenario works with: the cluster, its own namespace, and the recorder of its steps and changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount, Taint};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use api::nrt::v1alpha2::NodeResourceTopology;

use crate::facts::Facts;
use crate::ledger::{ObjectRef, Undo};
use crate::observed::NodeTopology;
use crate::recorder::{Deadlines, PollResult, Recorder};
use crate::scenario::StepError;

/// Label on every object that a run creates; the value is the run's identity.
pub const RUN_LABEL: &str = "numaresources-tests/run";
/// Number of concurrent requests of [`Context::create_all`].
const CONCURRENT_CREATIONS: usize = 8;

/// The cluster that a run works on.
pub struct Cluster {
    /// Client with all rights.
    pub client: Client,
    /// Identity of the run.
    pub run: String,
    /// The facts of the cluster.
    pub facts: Facts,
    /// Time limits.
    pub deadlines: Deadlines,
    /// Time between the two polls of a settled cluster, which must agree.
    pub between_polls: Duration,
}

/// What a scenario works with.
pub struct Context {
    /// The cluster.
    pub cluster: Rc<Cluster>,
    /// Records steps and changes.
    pub recorder: Recorder,
    /// Namespace of the scenario.
    pub namespace: String,
    /// The NRTs when the cluster was last settled.
    settled: RefCell<Option<Vec<NodeTopology>>>,
}

impl Context {
    /// Creates a scenario's context. Nothing is created in the cluster.
    pub fn new(cluster: Rc<Cluster>, recorder: Recorder, namespace: String) -> Self {
        Self {
            cluster,
            recorder,
            namespace,
            settled: RefCell::default(),
        }
    }

    /// Returns the NRTs when the cluster was last settled.
    pub fn last_settled(&self) -> Option<Vec<NodeTopology>> {
        self.settled.borrow().clone()
    }

    pub(crate) fn remember_settled(&self, nodes: &[NodeTopology]) {
        self.settled.replace(Some(nodes.to_vec()));
    }

    /// Returns a client of the cluster.
    pub fn client(&self) -> Client {
        self.cluster.client.clone()
    }

    /// Returns the facts of the cluster.
    pub fn facts(&self) -> &Facts {
        &self.cluster.facts
    }

    /// Returns the time limits.
    pub fn deadlines(&self) -> Deadlines {
        self.cluster.deadlines
    }

    /// Returns the name of the scheduler that test pods name.
    pub fn scheduler(&self) -> &str {
        &self.cluster.facts.scheduler
    }

    /// Runs one step.
    pub fn step<'a, T: 'a>(
        &'a self,
        title: impl Into<String>,
        work: impl Future<Output = Result<T, StepError>> + 'a,
    ) -> LocalBoxFuture<'a, Result<T, StepError>> {
        self.recorder.step(title, work)
    }

    /// Polls until a condition holds, see [`Recorder::until`].
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        poll: impl AsyncFnMut() -> Result<PollResult<T>, StepError>,
    ) -> Result<T, StepError> {
        self.recorder.until(what, limit, poll).await
    }

    /// Returns a client for a kind in the scenario's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Creates the scenario's namespace, open to privileged pods (scenarios-serial.md 4.1).
    pub async fn create_namespace(&self) -> Result<(), StepError> {
        let mut labels: BTreeMap<String, String> = ["audit", "enforce", "warn"]
            .map(|mode| {
                (
                    format!("pod-security.kubernetes.io/{mode}"),
                    "privileged".to_owned(),
                )
            })
            .into();
        labels.insert(
            "security.openshift.io/scc.podSecurityLabelSync".to_owned(),
            "false".to_owned(),
        );
        labels.insert(RUN_LABEL.to_owned(), self.cluster.run.clone());
        let namespace = Namespace {
            metadata: kube::api::ObjectMeta {
                name: Some(self.namespace.clone()),
                labels: Some(labels),
                ..kube::api::ObjectMeta::default()
            },
            ..Namespace::default()
        };
        self.recorder.plan(
            &format!("create Namespace {}", self.namespace),
            Undo::DeleteNamespace {
                name: self.namespace.clone(),
            },
        );
        Api::<Namespace>::all(self.client())
            .create(&PostParams::default(), &namespace)
            .await?;
        // pods are refused until the controller has created this
        let accounts = self.api::<ServiceAccount>();
        self.until(
            "the default service account is there",
            self.deadlines().running,
            async || {
                Ok(match accounts.get_opt("default").await? {
                    Some(_) => PollResult::Ready(()),
                    None => PollResult::NotYet(format!(
                        "ServiceAccount {}/default is missing",
                        self.namespace
                    )),
                })
            },
        )
        .await
    }

    /// Creates an object in the scenario's namespace. The deletion of the namespace deletes it.
    pub async fn create<K>(&self, mut object: K) -> Result<K, StepError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        object.meta_mut().namespace = Some(self.namespace.clone());
        object
            .labels_mut()
            .insert(RUN_LABEL.to_owned(), self.cluster.run.clone());
        let reference = ObjectRef::of(&object);
        self.recorder.plan(
            &format!("create {reference}"),
            Undo::WithNamespace {
                object: reference.clone(),
            },
        );
        Ok(self
            .api::<K>()
            .create(&PostParams::default(), &object)
            .await?)
    }

    /// Creates objects in order as [`Context::create`] does, without waiting for each answer before the next request.
    pub async fn create_all<K>(&self, objects: impl IntoIterator<Item = K>) -> Result<(), StepError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let requests = objects.into_iter().map(|object| self.create(object));
        stream::iter(requests)
            .buffered(CONCURRENT_CREATIONS)
            .try_for_each(async |_| Ok(()))
            .await
    }

    /// Creates a cluster-scoped object; it is deleted at the end.
    pub async fn create_global<K>(&self, object: &K) -> Result<K, StepError>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let reference = ObjectRef::of(object);
        self.recorder.plan(
            &format!("create {reference}"),
            Undo::Delete { object: reference },
        );
        let api = Api::<K>::all(self.client());
        Ok(api.create(&PostParams::default(), object).await?)
    }

    /// Deletes an object of the scenario's namespace and waits until it is gone.
    pub async fn delete<K>(&self, name: &str) -> Result<(), StepError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let api = self.api::<K>();
        match api.delete(name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            other => other.map(drop)?,
        }
        let what = format!("{} {name} is gone", K::kind(&()));
        self.until(&what, self.deadlines().gone, async || {
            Ok(match api.get_opt(name).await? {
                None => PollResult::Ready(()),
                Some(_) => PollResult::NotYet("it is still there".to_owned()),
            })
        })
        .await
    }

    /// Returns the identity of the run.
    pub fn run(&self) -> &str {
        &self.cluster.run
    }

    /// Sets a label of a node; the old state is restored at the end.
    pub async fn label_node(&self, node: &str, key: &str, value: &str) -> Result<(), StepError> {
        label_node(&self.recorder, &self.client(), node, key, value).await
    }

    /// Removes a label from a node that [`Context::label_node`] set.
    pub async fn unlabel_node(&self, node: &str, key: &str) -> Result<(), StepError> {
        self.patch_node(node, &json!({"metadata": {"labels": {key: null}}}))
            .await
    }

    /// Cordons a node; it is uncordoned at the end.
    pub async fn cordon_node(&self, node: &str) -> Result<(), StepError> {
        self.recorder.plan(
            &format!("cordon Node {node}"),
            Undo::Patch {
                object: ObjectRef::node(node),
                patch: unschedulable(None),
            },
        );
        self.patch_node(node, &unschedulable(Some(true))).await
    }

    /// Uncordons a node before the end.
    pub async fn uncordon_node(&self, node: &str) -> Result<(), StepError> {
        self.patch_node(node, &unschedulable(None)).await
    }

    async fn patch_node(&self, node: &str, patch: &Value) -> Result<(), StepError> {
        Api::<Node>::all(self.client())
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Puts a taint on a node; it is removed at the end.
    pub async fn taint_node(&self, node: &str, key: &str, effect: &str) -> Result<(), StepError> {
        self.taint_node_with(node, key, None, effect).await
    }

    /// Puts a taint with a value on a node and replaces one of the same key and effect; it is removed at the end.
    pub async fn taint_node_with(
        &self,
        node: &str,
        key: &str,
        value: Option<&str>,
        effect: &str,
    ) -> Result<(), StepError> {
        let nodes: Api<Node> = Api::all(self.client());
        self.recorder.plan(
            &format!("taint Node {node} {key}:{effect}"),
            Undo::RemoveTaint {
                node: node.to_owned(),
                key: key.to_owned(),
                effect: effect.to_owned(),
            },
        );
        loop {
            let object = nodes.get(node).await?;
            let mut taints = object
                .spec
                .clone()
                .unwrap_or_default()
                .taints
                .unwrap_or_default();
            taints.retain(|taint| taint.key != key || taint.effect != effect);
            taints.push(Taint {
                key: key.to_owned(),
                value: value.map(str::to_owned),
                effect: effect.to_owned(),
                ..Taint::default()
            });
            // with the resource version, so that a concurrent change is not lost
            let patch = json!({"metadata": {"resourceVersion": object.resource_version()}, "spec": {"taints": taints}});
            match nodes
                .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
                .await
            {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => {
                    other?;
                    return Ok(());
                }
            }
        }
    }

    /// Returns all NRTs, in the order of the API server.
    pub async fn topologies(&self) -> Result<Vec<NodeTopology>, StepError> {
        topologies(&self.client()).await
    }

    /// Returns the NRT of a node.
    pub async fn topology(&self, node: &str) -> Result<NodeTopology, StepError> {
        let object = Api::<NodeResourceTopology>::all(self.client())
            .get(node)
            .await?;
        NodeTopology::read(&object).map_err(|error| StepError::fail(chain(&error)))
    }
}

fn unschedulable(value: Option<bool>) -> Value {
    json!({"spec": {"unschedulable": value}})
}

/// Sets a label of a node; the old state is restored at the end of the recorder's unit.
pub async fn label_node(
    recorder: &Recorder,
    client: &Client,
    node: &str,
    key: &str,
    value: &str,
) -> Result<(), StepError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let old = nodes.get(node).await?.labels().get(key).cloned();
    if old.as_deref() == Some(value) {
        return Ok(());
    }
    recorder.plan(
        &format!("label Node {node} {key}={value}"),
        Undo::Patch {
            object: ObjectRef::node(node),
            patch: json!({"metadata": {"labels": {key: old}}}),
        },
    );
    let patch = json!({"metadata": {"labels": {key: value}}});
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Returns all NRTs, in the order of the API server.
pub async fn topologies(client: &Client) -> Result<Vec<NodeTopology>, StepError> {
    let list = Api::<NodeResourceTopology>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    list.items
        .iter()
        .map(NodeTopology::read)
        .collect::<Result<_, _>>()
        .map_err(|error| StepError::fail(chain(&error)))
}

/// Formats an error with all its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // some libraries already put the cause into their own text
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
