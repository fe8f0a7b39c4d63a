//! Carries out what somebody changes, as the plan has it.

use std::time::Duration;

use api::labels::HOSTNAME;
use api::names;
use api::operator::v1::NumaResourcesOperator;
use api::scheduler::v1::NumaResourcesScheduler;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::plan::{Action, Edited, Job, Quality, Tampered, Turn};
use crate::recorder::Recorder;
use crate::recording::Entry;

/// The priority class of urgent pods.
const URGENT: &str = "chaos-urgent";
/// The label that changes on nodes.
const LABEL: &str = "chaos/label";
/// Time between two attempts of a change: the API server may be away.
const RETRY: Duration = Duration::from_millis(250);
/// Longest time of a change. An outage lasts three seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A change that did not succeed for half a minute.
#[derive(Debug, thiserror::Error)]
#[error("{what} did not succeed")]
pub struct Error {
    what: String,
    #[source]
    source: Box<kube::Error>,
}

/// Who changes things, in a namespace of its own.
#[derive(Clone)]
pub struct Churn {
    client: Client,
    namespace: String,
    recorder: Recorder,
}

impl std::fmt::Debug for Churn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Churn")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Churn {
    /// Returns who changes things, and creates the priority class that the plan uses.
    ///
    /// # Errors
    /// Returns an error if the class cannot be created.
    pub async fn new(client: Client, namespace: &str, recorder: Recorder) -> Result<Self, Error> {
        let classes: Api<PriorityClass> = Api::all(client.clone());
        let class: PriorityClass = object(&json!({"metadata": {"name": URGENT}, "value": 1_000}));
        insist("the priority class", async || {
            is_there(classes.create(&PostParams::default(), &class).await)
        })
        .await?;
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            recorder,
        })
    }

    /// Carries out all turns, each at its time.
    ///
    /// # Errors
    /// Returns an error if a change does not succeed for half a minute.
    pub async fn play(&self, turns: &[Turn]) -> Result<(), Error> {
        let start = Instant::now();
        let all = turns.iter().map(async |turn| {
            sleep_until(start + Duration::from_millis(turn.after_milliseconds)).await;
            // before the request, because what follows from it may be heard of before the answer
            self.recorder.add(Entry::Done {
                action: turn.what.clone(),
            });
            self.carry_out(&turn.what).await
        });
        futures::future::try_join_all(all).await.map(drop)
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn operands<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), names::NAMESPACE)
    }

    async fn carry_out(&self, what: &Action) -> Result<(), Error> {
        let text = || format!("{what:?}");
        let params = PatchParams::default();
        match what {
            Action::Create { job } => {
                let pod: Pod = object(&pod(job));
                let pods = self.namespaced::<Pod>();
                insist(&text(), async || {
                    is_there(pods.create(&PostParams::default(), &pod).await)
                })
                .await
            }
            Action::Delete { number } => {
                let name = crate::plan::job_name(*number);
                delete(&text(), &self.namespaced::<Pod>(), &name).await
            }
            Action::Scale { number, replicas } => self.scale(&text(), *number, *replicas).await,
            Action::Cordon { node, cordoned } => {
                let patch = Patch::Merge(json!({"spec": {"unschedulable": cordoned}}));
                let nodes: Api<Node> = Api::all(self.client.clone());
                insist(&text(), async || {
                    nodes.patch(node, &params, &patch).await.map(drop)
                })
                .await
            }
            Action::Label { node, value } => {
                let labels = json!({"metadata": {"labels": {LABEL: value.to_string()}}});
                let patch = Patch::Merge(labels);
                let nodes: Api<Node> = Api::all(self.client.clone());
                insist(&text(), async || {
                    nodes.patch(node, &params, &patch).await.map(drop)
                })
                .await
            }
            Action::LogLevel { of, level } => {
                self.edit(&text(), *of, &json!({"spec": {"logLevel": level}}))
                    .await
            }
            Action::Tamper { with } => self.tamper(&text(), *with).await,
        }
    }

    /// Edits a custom resource of the stack by a merge patch.
    async fn edit(&self, what: &str, of: Edited, patch: &Value) -> Result<(), Error> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        match of {
            Edited::Operator => {
                let all: Api<NumaResourcesOperator> = Api::all(self.client.clone());
                insist(what, async || {
                    all.patch(names::OPERATOR_CR, &params, &patch)
                        .await
                        .map(drop)
                })
                .await
            }
            Edited::Scheduler => {
                let all: Api<NumaResourcesScheduler> = Api::all(self.client.clone());
                insist(what, async || {
                    all.patch(names::SCHEDULER_CR, &params, &patch)
                        .await
                        .map(drop)
                })
                .await
            }
        }
    }

    async fn tamper(&self, what: &str, with: Tampered) -> Result<(), Error> {
        match with {
            Tampered::DaemonSet => {
                let sets = self.operands::<DaemonSet>();
                let mut names = Vec::new();
                for set in list(what, &sets).await? {
                    names.push(set.name_any());
                }
                for name in names {
                    delete(what, &sets, &name).await?;
                }
                Ok(())
            }
            Tampered::Deployment => {
                delete(what, &self.operands::<Deployment>(), names::SCHEDULER).await
            }
            Tampered::SchedulerConfig => {
                let maps = self.operands::<ConfigMap>();
                delete(what, &maps, names::SCHEDULER_CONFIG_MAP).await
            }
            Tampered::ExporterBinding => {
                delete(what, &self.operands::<RoleBinding>(), names::RTE).await
            }
            Tampered::Replicas => {
                let deployments = self.operands::<Deployment>();
                let patch = json!({"spec": {"replicas": 0}});
                change(what, &deployments, names::SCHEDULER, patch).await
            }
            Tampered::ConfigData => {
                let maps = self.operands::<ConfigMap>();
                let patch = json!({"data": null});
                change(what, &maps, names::SCHEDULER_CONFIG_MAP, patch).await
            }
            Tampered::Rules => {
                let patch = json!({"rules": []});
                change(what, &self.operands::<Role>(), names::RTE, patch).await
            }
        }
    }

    async fn scale(&self, what: &str, number: u64, replicas: u64) -> Result<(), Error> {
        let deployments = self.namespaced::<Deployment>();
        let name = format!("service-{number}");
        if replicas == 0 {
            return delete(what, &deployments, &name).await;
        }
        let wanted: Deployment = object(&deployment(&name, replicas));
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        insist(what, async || {
            match deployments.create(&PostParams::default(), &wanted).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                other => return other.map(drop),
            }
            let params = PatchParams::default();
            deployments.patch(&name, &params, &patch).await.map(drop)
        })
        .await
    }

    /// Undoes what the plan has changed on nodes and custom resources, so that everything can settle as it was.
    ///
    /// # Errors
    /// Returns an error if a change does not succeed for half a minute.
    pub async fn restore(&self, levels: &[(Edited, Value)]) -> Result<(), Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"spec": {"unschedulable": null}, "metadata": {"labels": {LABEL: null}}});
        let patch = Patch::Merge(patch);
        for node in crate::plan::WORKERS {
            insist("uncordon", async || {
                let params = PatchParams::default();
                nodes.patch(node, &params, &patch).await.map(drop)
            })
            .await?;
        }
        for (of, level) in levels {
            let patch = json!({"spec": {"logLevel": level}});
            self.edit("the log level", *of, &patch).await?;
        }
        Ok(())
    }

    /// Deletes all Deployments and pods of the plan.
    ///
    /// # Errors
    /// Returns an error if a request does not succeed for half a minute.
    pub async fn clear(&self) -> Result<(), Error> {
        let at_once = DeleteParams::default().grace_period(0);
        let deployments = self.namespaced::<Deployment>();
        for deployment in list("the Deployments", &deployments).await? {
            delete("a Deployment", &deployments, &deployment.name_any()).await?;
        }
        let pods = self.namespaced::<Pod>();
        insist("the pods are deleted", async || {
            let all = ListParams::default();
            pods.delete_collection(&at_once, &all).await.map(drop)
        })
        .await
    }
}

/// Repeats a request until it succeeds.
async fn insist<T>(what: &str, call: impl AsyncFn() -> kube::Result<T>) -> Result<T, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(source) if Instant::now() >= deadline => {
                return Err(Error {
                    what: what.to_owned(),
                    source: Box::new(source),
                });
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// Takes an object that is already there for a creation whose answer was lost.
fn is_there<T>(answer: kube::Result<T>) -> kube::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}

async fn list<K>(what: &str, api: &Api<K>) -> Result<Vec<K>, Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let all = insist(what, async || api.list(&ListParams::default()).await).await?;
    Ok(all.items)
}

async fn delete<K>(what: &str, api: &Api<K>, name: &str) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    insist(what, async || {
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    })
    .await
}

/// Changes an object by a merge patch. One that is not there is left so: it was deleted just before.
async fn change<K>(what: &str, api: &Api<K>, name: &str, patch: Value) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    insist(what, async || {
        match api.patch(name, &params, &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    })
    .await
}

/// Makes a typed object. What is made here is written in this file, and has the right form.
fn object<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).expect("the literals of this file are objects")
}

fn container(name: &str, command: &[String], resources: &Value) -> Value {
    json!({"name": name, "image": names::STACK_IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": command, "resources": resources})
}

fn pod(job: &Job) -> Value {
    let amounts = json!({"cpu": job.cpus.to_string(), "memory": format!("{}Gi", job.cpus)});
    let (resources, scheduler) = match job.quality {
        Quality::Guaranteed => (json!({"limits": amounts}), names::SCHEDULER_PROFILE),
        Quality::Burstable => (json!({"requests": amounts}), names::SCHEDULER_PROFILE),
        Quality::BestEffort => (json!({}), "default-scheduler"),
    };
    let lifetime = Duration::from_millis(job.lifetime_milliseconds);
    let command = [
        "/bin/sleep".to_owned(),
        format!("{}s", lifetime.as_secs_f64()),
    ];
    let containers: Vec<Value> = (0..job.containers)
        .map(|number| container(&format!("c{number}"), &command, &resources))
        .collect();
    json!({
        "metadata": {"name": job.name()},
        "spec": {
            "schedulerName": scheduler,
            "priorityClassName": job.urgent.then_some(URGENT),
            "nodeSelector": job.node.as_ref().map(|node| json!({HOSTNAME: node})),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": false,
            "containers": containers,
        },
    })
}

fn deployment(name: &str, replicas: u64) -> Value {
    let labels = json!({"app": name});
    let command = ["/bin/sleep".to_owned(), "infinity".to_owned()];
    let resources = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "schedulerName": names::SCHEDULER_PROFILE,
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "containers": [container("c", &command, &resources)],
            },
        }},
    })
}
