//! Resources of a pod that change while it runs: asking the managers, and giving the containers what is allocated (kubelet-node.md 12.4).

use std::collections::BTreeMap;

use api::quantity;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_model::node::Resize;
use serde::Serialize;

use super::Worker;
use crate::controllers::objects;
use crate::node::events::Kind;
use crate::node::status::facts::Facts;

/// Policy of a container for a resource whose change needs a restart.
const RESTART: &str = "RestartContainer";

/// A change of resources that is under way.
#[derive(Debug, Default)]
pub(super) struct Resizing {
    /// The change that the node does not allocate.
    pending: Option<Pending>,
    /// The allocated change that containers do not have yet.
    progress: Option<Progress>,
}

#[derive(Debug)]
struct Pending {
    reason: &'static str,
    message: String,
    /// Generation of the pod that asks for it.
    generation: Option<i64>,
    since: Timestamp,
}

#[derive(Debug)]
struct Progress {
    generation: Option<i64>,
    since: Timestamp,
}

impl Resizing {
    /// Returns the conditions that tell of it, in the kubelet's order.
    pub(super) fn conditions(&self) -> Vec<PodCondition> {
        let condition = |name: &str, generation: Option<i64>, since: Timestamp| PodCondition {
            type_: name.to_owned(),
            status: "True".to_owned(),
            observed_generation: generation,
            last_transition_time: Some(Time(since)),
            ..PodCondition::default()
        };
        let pending = self.pending.as_ref().map(|pending| PodCondition {
            reason: Some(pending.reason.to_owned()),
            message: Some(pending.message.clone()),
            ..condition("PodResizePending", pending.generation, pending.since)
        });
        let progress = self.progress.as_ref();
        let progress = progress
            .map(|progress| condition("PodResizeInProgress", progress.generation, progress.since));
        pending.into_iter().chain(progress).collect()
    }
}

impl Worker {
    /// Asks for the resources of the specification where they differ from the allocated ones, and gives the containers what is allocated.
    pub(super) async fn resize(&mut self) {
        if self.resizing.pending.is_some() || !self.wanted().is_empty() {
            self.decide_resize();
        }
        if self.resizing.progress.is_none() {
            return;
        }
        // Whoever watches the pod sees that the change is allocated before it is made.
        self.publish().await;
        for index in 0..self.slots.len() {
            self.give_allocated(index);
        }
        let is_done = self
            .slots
            .iter()
            .all(|slot| !slot.must_restart && is_same(&slot.facts.actual, &allocated(&slot.facts)));
        if is_done && let Some(done) = self.resizing.progress.take() {
            self.record_resize(
                Kind::Normal,
                "ResizeCompleted",
                "completed",
                "",
                done.generation,
            );
        }
    }

    /// Returns the containers that ask for other resources than they are allocated: their places and what they ask for.
    fn wanted(&self) -> Vec<(usize, ResourceRequirements)> {
        let spec = self.pod.spec.as_ref();
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.facts.role.is_resizable())
            .filter_map(|(index, slot)| {
                let desired = container(spec?, &slot.facts.container.name)?;
                let desired = desired.resources.clone().unwrap_or_default();
                let differs = !is_same(&desired, &allocated(&slot.facts));
                differs.then_some((index, desired))
            })
            .collect()
    }

    fn decide_resize(&mut self) {
        let generation = self.pod.metadata.generation;
        match self.kubelet.managers.resize(&self.pod) {
            None => {}
            Some(Resize::Infeasible(why)) => self.set_pending("Infeasible", why),
            Some(Resize::Deferred(why)) => self.set_pending("Deferred", why),
            Some(Resize::Allocated) => {
                self.resizing.pending = None;
                let wanted = self.wanted();
                if wanted.is_empty() {
                    return;
                }
                for (index, resources) in wanted {
                    self.slots[index].facts.container.resources = Some(resources);
                }
                self.resizing.progress = Some(Progress {
                    generation,
                    since: Timestamp::now(),
                });
                self.record_resize(Kind::Normal, "ResizeStarted", "started", "", generation);
                // What the pod gives back may be what another one waits for.
                self.kubelet.retry_resizes();
            }
        }
    }

    fn set_pending(&mut self, reason: &'static str, message: String) {
        let generation = self.pod.metadata.generation;
        let known = self.resizing.pending.as_ref();
        let known = known.filter(|known| known.reason == reason);
        if known.is_some_and(|known| known.message == message && known.generation == generation) {
            return;
        }
        let since = known.map_or_else(Timestamp::now, |known| known.since);
        let event = match reason {
            "Infeasible" => "ResizeInfeasible",
            _ => "ResizeDeferred",
        };
        self.record_resize(Kind::Warning, event, reason, &message, generation);
        self.resizing.pending = Some(Pending {
            reason,
            message,
            generation,
            since,
        });
    }

    /// Gives a container its allocated resources, by a restart where its policy asks for one.
    fn give_allocated(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let allocated = allocated(&slot.facts);
        if slot.must_restart || is_same(&slot.facts.actual, &allocated) {
            return;
        }
        if slot.facts.is_running() && must_restart(&slot.facts, &allocated) {
            slot.must_restart = true;
            self.kill(index, "Container {} resize requires restart");
        } else {
            slot.facts.actual = allocated;
        }
    }

    fn record_resize(
        &self,
        kind: Kind,
        event: &str,
        what: &str,
        error: &str,
        generation: Option<i64>,
    ) {
        let message = summary(self.spec(), what, error, generation);
        self.kubelet.events.pod(&self.pod, kind, event, message);
    }

    /// Returns the pod with the resources that its containers are allocated.
    pub(super) fn allocated_pod(&self) -> Pod {
        let mut pod = self.pod.clone();
        let Some(spec) = pod.spec.as_mut() else {
            return pod;
        };
        let resizable = self.slots.iter().map(|slot| &slot.facts);
        for facts in resizable.filter(|facts| facts.role.is_resizable()) {
            let mut containers = spec
                .init_containers
                .iter_mut()
                .flatten()
                .chain(&mut spec.containers);
            let name = &facts.container.name;
            if let Some(container) = containers.find(|container| container.name == *name) {
                container.resources.clone_from(&facts.container.resources);
            }
        }
        pod
    }
}

/// What an event says of a resize after its first words.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Named<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Named<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

impl<'a> Named<'a> {
    fn new(container: &'a Container) -> Self {
        Self {
            name: &container.name,
            resources: container.resources.clone().unwrap_or_default(),
        }
    }
}

/// Returns the message of an event about a resize.
fn summary(spec: Option<&PodSpec>, what: &str, error: &str, generation: Option<i64>) -> String {
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    let apps = spec.map(|spec| &spec.containers);
    let summary = Summary {
        init_containers: init.into_iter().flatten().map(Named::new).collect(),
        containers: apps.into_iter().flatten().map(Named::new).collect(),
        generation: generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(json) => format!("Pod resize {what}: {json}"),
        Err(_) => format!("Pod resize {what}"),
    }
}

fn container<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a Container> {
    let mut all = objects::containers(spec);
    all.find(|container| container.name == name)
}

/// Returns what a container is allocated.
fn allocated(facts: &Facts) -> ResourceRequirements {
    facts.container.resources.clone().unwrap_or_default()
}

type Amounts = BTreeMap<String, Option<i64>>;

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let list = list.into_iter().flatten();
    list.map(|(name, amount)| (name.clone(), quantity::in_unit_of(name, amount).ok()))
        .collect()
}

/// Returns requests and limits as numbers, because one amount can be written in many ways.
fn numbers(resources: &ResourceRequirements) -> [Amounts; 2] {
    [&resources.requests, &resources.limits].map(|list| amounts(list.as_ref()))
}

fn is_same(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    numbers(one) == numbers(other)
}

/// Returns whether a running container has to be restarted to get other resources.
fn must_restart(facts: &Facts, wanted: &ResourceRequirements) -> bool {
    let (now, then) = (numbers(&facts.actual), numbers(wanted));
    let policies = facts.container.resize_policy.iter().flatten();
    policies
        .filter(|policy| policy.restart_policy == RESTART)
        .any(|policy| {
            let name = &policy.resource_name;
            now.iter()
                .zip(&then)
                .any(|(now, then)| now.get(name) != then.get(name))
        })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::node::status::facts::Role;

    fn facts(resources: &Value, policy: &Value) -> Facts {
        let container =
            json!({"name": "c", "image": "i", "resources": resources, "resizePolicy": policy});
        Facts::new(
            &serde_json::from_value(container).unwrap(),
            Role::App,
            false,
        )
    }

    #[rstest]
    #[case::cpu(json!({"requests": {"cpu": "2", "memory": "1Gi"}}), false)]
    #[case::memory(json!({"requests": {"cpu": "1", "memory": "2Gi"}}), true)]
    #[case::a_limit(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}), true)]
    #[case::the_same_in_other_words(json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}}), false)]
    fn a_container_restarts_for_what_its_policy_names(
        #[case] wanted: Value,
        #[case] expected: bool,
    ) {
        let policy = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"},
            {"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        let facts = facts(&json!({"requests": {"cpu": "1", "memory": "1Gi"}}), &policy);
        let wanted = serde_json::from_value(wanted).unwrap();
        assert_eq!(must_restart(&facts, &wanted), expected);
    }

    #[test]
    fn an_event_shows_the_resources_that_a_pod_asks_for() {
        let spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(
            summary(Some(&spec), "started", "", Some(2)),
            r#"Pod resize started: {"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}],"generation":2}"#
        );
        assert_eq!(
            summary(Some(&spec), "Deferred", "no room", Some(3)),
            r#"Pod resize Deferred: {"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}],"generation":3,"error":"no room"}"#
        );
    }
}
