//! Waits: until an object is in effect, and until it is gone (deployer.md 3). Every look is told.

use apply::{Cause, Identity, ready};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde::de::DeserializeOwned;

use crate::log::{Log, Value};
use crate::options::Waiting;

/// The wait has ended without what was waited for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The time is over.
    #[error("{object} is not {state} after {limit:?}: {seen}")]
    Late {
        /// Kind, namespace and name.
        object: String,
        /// `ready` or `gone`.
        state: &'static str,
        /// The time limit.
        limit: std::time::Duration,
        /// What was seen last.
        seen: String,
    },
    /// The object cannot be read.
    #[error("failed to get {object}")]
    Get {
        /// Kind, namespace and name.
        object: String,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The object has another form.
    #[error("failed to read {object}")]
    Form {
        /// Kind, namespace and name.
        object: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Returns `namespace/name`; objects of the cluster have an empty namespace.
fn key(identity: &Identity) -> String {
    let namespace = identity.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", identity.name)
}

fn title(identity: &Identity) -> String {
    format!(
        "{} {}",
        identity.kind,
        key(identity).trim_start_matches('/')
    )
}

/// What is waited with.
pub struct Waiter<'a> {
    /// Client of the cluster.
    pub client: &'a Client,
    /// Pause and limit.
    pub waiting: Waiting,
    /// Where looks are told.
    pub log: &'a Log,
}

/// What one look has seen.
enum Look {
    Done,
    NotYet(String),
}

impl Waiter<'_> {
    /// Waits until an object is in effect, if its kind has such a state: definitions, DaemonSets, Deployments.
    pub async fn until_ready(&self, identity: &Identity) -> Result<(), Error> {
        if !has_ready_state(&identity.kind) {
            return Ok(());
        }
        self.log
            .doing(format_args!("waiting for {}", title(identity)));
        let message = match identity.kind.as_str() {
            "DaemonSet" => "failed to get the daemonset",
            "Deployment" => "failed to get the deployment",
            _ => "failed to get the CRD",
        };
        self.poll(identity, "ready", async || {
            let object = self.get(identity, message, &[]).await?;
            match identity.kind.as_str() {
                "DaemonSet" => self.daemon_set(identity, object),
                "Deployment" => self.deployment(identity, object),
                _ => self.definition(identity, object),
            }
        })
        .await
    }

    /// Waits until an object is gone.
    pub async fn until_gone(&self, identity: &Identity) -> Result<(), Error> {
        if identity.kind == "Namespace" {
            let pairs = [("namespace", identity.name.as_str().into())];
            self.log
                .line(0, "wait for the namespace to be gone", &pairs);
        }
        self.log
            .doing(format_args!("waiting for {} to be gone", title(identity)));
        let pairs = || {
            [
                ("kind", Value::from(identity.kind.as_str())),
                ("key", key(identity).into()),
            ]
        };
        self.poll(identity, "gone", async || {
            let kind = [("kind", identity.kind.as_str().into())];
            let object = self.get(identity, "failed to get object", &kind).await?;
            if object.is_some() {
                self.log.line(0, "object still present", &pairs());
                return Ok(Look::NotYet("it is still there".to_owned()));
            }
            self.log.line(0, "object is gone", &pairs());
            Ok(Look::Done)
        })
        .await
    }

    /// Returns the object, if it is there. A failure is told with this message, and these pairs before those that say what failed.
    async fn get(
        &self,
        identity: &Identity,
        message: &str,
        pairs: &[(&str, Value)],
    ) -> Result<Option<DynamicObject>, Error> {
        let api: Api<DynamicObject> = identity.api(self.client);
        api.get_opt(&identity.name).await.map_err(|source| {
            let source = Cause::from(source);
            let what = [
                ("key", key(identity).into()),
                ("error", source.to_string().into()),
            ];
            self.log.line(0, message, &[pairs, &what].concat());
            Error::Get {
                object: title(identity),
                source,
            }
        })
    }

    fn definition(
        &self,
        identity: &Identity,
        object: Option<DynamicObject>,
    ) -> Result<Look, Error> {
        let object: Option<CustomResourceDefinition> = typed(identity, object)?;
        if object.as_ref().is_some_and(ready::definition) {
            let pairs = [("key", key(identity).into())];
            self.log.line(0, "CRD available", &pairs);
            return Ok(Look::Done);
        }
        Ok(Look::NotYet("it is not Established".to_owned()))
    }

    fn daemon_set(
        &self,
        identity: &Identity,
        object: Option<DynamicObject>,
    ) -> Result<Look, Error> {
        let object: Option<DaemonSet> = typed(identity, object)?;
        let status = object.as_ref().and_then(|set| set.status.as_ref());
        let [desired, current, ready] = status.map_or([0; 3], |status| {
            [
                status.desired_number_scheduled,
                status.current_number_scheduled,
                status.number_ready,
            ]
        });
        let pairs = [
            ("key", key(identity).into()),
            ("desired", desired.into()),
            ("current", current.into()),
            ("ready", ready.into()),
        ];
        if desired > 0 && object.as_ref().is_some_and(ready::daemon_set) {
            self.log.line(0, "daemonset ready", &pairs);
            return Ok(Look::Done);
        }
        self.log.line(0, "daemonset not ready", &pairs);
        Ok(Look::NotYet(format!("{ready} of {desired} pods are ready")))
    }

    fn deployment(
        &self,
        identity: &Identity,
        object: Option<DynamicObject>,
    ) -> Result<Look, Error> {
        let object: Option<Deployment> = typed(identity, object)?;
        let wanted = object
            .as_ref()
            .and_then(|object| object.spec.as_ref()?.replicas)
            .unwrap_or(1);
        let generation = object
            .as_ref()
            .and_then(|object| object.metadata.generation);
        let status = object.and_then(|object| object.status).unwrap_or_default();
        let numbers = [
            status.replicas.unwrap_or(0),
            status.updated_replicas.unwrap_or(0),
            status.available_replicas.unwrap_or(0),
        ];
        let [replicas, updated, available] = numbers;
        let pairs = [
            ("key", key(identity).into()),
            ("replicas", replicas.into()),
            ("updated", updated.into()),
            ("available", available.into()),
        ];
        if numbers == [wanted; 3] && status.observed_generation >= generation {
            self.log.line(0, "deployment complete", &pairs);
            return Ok(Look::Done);
        }
        self.log.line(0, "deployment not complete", &pairs);
        Ok(Look::NotYet(format!(
            "{available} of {wanted} pods are available"
        )))
    }

    async fn poll(
        &self,
        identity: &Identity,
        state: &'static str,
        look: impl AsyncFn() -> Result<Look, Error>,
    ) -> Result<(), Error> {
        let mut seen = "nothing".to_owned();
        let looks = async {
            // a pause of no length is none that tokio's clock knows
            let pause = self
                .waiting
                .interval
                .max(std::time::Duration::from_millis(10));
            let mut tick = tokio::time::interval(pause);
            loop {
                tick.tick().await;
                match look().await? {
                    Look::Done => return Ok(()),
                    Look::NotYet(state) => seen = state,
                }
            }
        };
        match tokio::time::timeout(self.waiting.timeout, looks).await {
            Ok(result) => result,
            Err(_) => Err(Error::Late {
                object: title(identity),
                state,
                limit: self.waiting.timeout,
                seen: match culprit(self.client, identity).await {
                    Some(culprit) => format!("{seen}; {culprit}"),
                    None => seen,
                },
            }),
        }
    }
}

/// Returns why a pod of a workload does not run, for people; `None` if nothing is to be said.
async fn culprit(client: &Client, identity: &Identity) -> Option<String> {
    let workload: Api<DynamicObject> = identity.api(client);
    let workload = workload.get(&identity.name).await.ok()?;
    let labels = workload.data.pointer("/spec/selector/matchLabels")?;
    let selector: Vec<String> = labels
        .as_object()?
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), identity.namespace.as_deref()?);
    let params = ListParams::default().labels(&selector.join(","));
    let pods = pods.list(&params).await.ok()?;
    pods.items.iter().find_map(trouble)
}

/// Returns why a pod waits: no node takes it, or one of its containers does not start or does not stay.
fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let unschedulable = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unschedulable {
        let message = condition.message.as_deref().unwrap_or_default();
        return Some(format!("no node takes pod {name}: {message}"));
    }
    let containers = status.container_statuses.iter().flatten();
    containers
        .filter_map(|container| Some((container, container.state.as_ref()?.waiting.as_ref()?)))
        .find_map(|(container, waiting)| {
            let reason = waiting.reason.as_deref()?;
            let last = container.last_state.as_ref();
            let ended = last.and_then(|last| last.terminated.as_ref());
            let said = ended.and_then(|ended| ended.message.as_deref());
            let message = said.or(waiting.message.as_deref()).unwrap_or_default();
            let of = &container.name;
            Some(format!(
                "pod {name}, container {of}: {reason}: {}",
                message.trim()
            ))
        })
}

/// Returns whether objects of a kind get ready some time after they are created.
pub fn has_ready_state(kind: &str) -> bool {
    matches!(
        kind,
        "DaemonSet" | "Deployment" | "CustomResourceDefinition"
    )
}

fn typed<K: DeserializeOwned>(
    identity: &Identity,
    object: Option<DynamicObject>,
) -> Result<Option<K>, Error> {
    let form = |source| Error::Form {
        object: title(identity),
        source,
    };
    let Some(object) = object else {
        return Ok(None);
    };
    let value = serde_json::to_value(object).map_err(form)?;
    serde_json::from_value(value).map(Some).map_err(form)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap()
    }

    #[test]
    fn what_keeps_a_pod_from_running_is_told_with_its_own_words() {
        let crashes = pod(
            &json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "no file\n"}}}]}),
        );
        assert_eq!(
            trouble(&crashes).unwrap(),
            "pod p, container c: CrashLoopBackOff: no file"
        );
        let waits = pod(
            &json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]}),
        );
        assert_eq!(trouble(&waits).unwrap(), "no node takes pod p: 0/3 nodes");
        assert_eq!(trouble(&pod(&json!({"phase": "Running"}))), None);
    }
}
