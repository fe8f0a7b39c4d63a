//! What a scenario works with: the cluster, its own namespace, and the recorder of its steps and changes.
//!
//! The modules below extend [`Context`], each by one thing that stories are made of: [`arena`] (the nodes of a scenario) and [`padding`]
//! (what is left free on them), `nodes` (their labels, taints and NRTs), [`settle`] (waiting until the NRTs agree with the pods), [`checks`]
//! (pods, workloads, what schedulers did, what zones account for), `stack` (the stack's own resources), `faults` (faults while a scenario
//! works), `creation` (objects whose creation nobody answered), [`probe`], [`metrics`] and [`tls_probe`] (looking into pods).

pub mod arena;
pub mod checks;
pub(crate) mod creation;
mod faults;
pub mod metrics;
mod nodes;
pub mod padding;
pub mod probe;
pub mod settle;
pub(crate) mod stack;
pub mod tls_probe;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{Api, DeleteParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::facts::Facts;
use crate::images;
use crate::ledger::{ObjectRef, Undo};
use crate::observed::NodeTopology;
use crate::recorder::{Deadlines, PollResult, Recorder};
use crate::step::StepError;

pub use nodes::{label_node, topologies};

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
        )?;
        creation::create(&Api::<Namespace>::all(self.client()), &namespace).await?;
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
        object = images::pinned(&self.facts().published, object)
            .map_err(|error| StepError::fail(chain(&error)))?;
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
        )?;
        Ok(creation::create(&self.api::<K>(), &object).await?)
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
        let mut object = object.clone();
        object
            .labels_mut()
            .insert(RUN_LABEL.to_owned(), self.cluster.run.clone());
        self.recorder.plan_creation(&ObjectRef::of(&object))?;
        let api = Api::<K>::all(self.client());
        Ok(creation::create(&api, &object).await?)
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

    /// Undoes a recorded change before the end. It is undone once more at the end, which changes nothing then.
    pub async fn undo(&self, undo: &Undo) -> Result<(), StepError> {
        let undone = undo.run(&self.client()).await;
        undone.map_err(|error| StepError::fail(error.to_string()))
    }

    /// Returns the identity of the run.
    pub fn run(&self) -> &str {
        &self.cluster.run
    }
}

/// Formats an error with all its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        // some libraries already put the cause into their own text
        let cause = cause.to_string();
        if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests;
