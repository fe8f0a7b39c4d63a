//! Pods, deployments and daemon sets of the scenarios (scenarios-serial.md 7.7).

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec,
};
use k8s_openapi::api::core::v1::{
    Container, NodeAffinity, Pod, PodSpec, PodTemplateSpec, ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::images;
use crate::resources::Resources;

/// Environment variable that names another image with `/pause` and `/bin/sleep` for pods that only have to run.
pub const PAUSE_IMAGE_VARIABLE: &str = "E2E_NROP_URL_PAUSE_IMAGE";

/// How a container requests its resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceRequest {
    /// Nothing: best effort.
    Nothing,
    /// Only limits, which the API server copies to the requests: Guaranteed.
    Limits(Resources),
    /// Only requests: Burstable.
    Requests(Resources),
}

impl ResourceRequest {
    /// Returns the list, as limits or requests.
    pub fn list(&self) -> Resources {
        match self {
            Self::Nothing => Resources::new(),
            Self::Limits(list) | Self::Requests(list) => list.clone(),
        }
    }

    fn requirements(&self) -> ResourceRequirements {
        let mut requirements = ResourceRequirements::default();
        match self {
            Self::Nothing => {}
            Self::Limits(list) => requirements.limits = Some(list.to_quantities()),
            Self::Requests(list) => requirements.requests = Some(list.to_quantities()),
        }
        requirements
    }
}

/// A pod to be created, alone or from a workload's template.
#[derive(Clone, Debug)]
pub struct PodPlan {
    name: String,
    containers: Vec<(String, ResourceRequest)>,
    /// How long the program of each container sleeps. Containers without an entry never end.
    sleeps: Vec<String>,
    init_containers: Vec<ResourceRequest>,
    labels: BTreeMap<String, String>,
    spec: PodSpec,
}

impl PodPlan {
    /// Plans a pod with containers `<name>-cnt-0..` that wait, placed by this scheduler.
    pub fn new(
        name: &str,
        scheduler: &str,
        containers: impl IntoIterator<Item = ResourceRequest>,
    ) -> Self {
        let containers = containers
            .into_iter()
            .enumerate()
            .map(|(index, resources)| (format!("{name}-cnt-{index}"), resources))
            .collect();
        let spec = PodSpec {
            scheduler_name: Some(scheduler.to_owned()),
            termination_grace_period_seconds: Some(0),
            // nothing in these pods talks to the API server
            automount_service_account_token: Some(false),
            ..PodSpec::default()
        };
        Self {
            name: name.to_owned(),
            containers,
            sleeps: Vec::new(),
            init_containers: Vec::new(),
            labels: BTreeMap::new(),
            spec,
        }
    }

    /// Adds init containers that end at once.
    #[must_use]
    pub fn with_init_containers(
        mut self,
        containers: impl IntoIterator<Item = ResourceRequest>,
    ) -> Self {
        self.init_containers = containers.into_iter().collect();
        self
    }

    /// Makes the containers, in their order, end after these times, in the notation of `sleep`: `1s`, `42d`.
    #[must_use]
    pub fn sleeping(mut self, sleeps: &[&str]) -> Self {
        self.sleeps = sleeps.iter().map(|&time| time.to_owned()).collect();
        self
    }

    /// Never restarts containers.
    #[must_use]
    pub fn never_restarted(mut self) -> Self {
        self.spec.restart_policy = Some("Never".to_owned());
        self
    }

    /// Adds a label to the pod.
    #[must_use]
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Restricts the pod to nodes with this label.
    #[must_use]
    pub fn on_nodes_with(mut self, key: &str, value: &str) -> Self {
        self.spec
            .node_selector
            .get_or_insert_default()
            .insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the runtime class.
    #[must_use]
    pub fn of_runtime_class(mut self, class: &str) -> Self {
        self.spec.runtime_class_name = Some(class.to_owned());
        self
    }

    /// Sets the node affinity, required or preferred.
    #[must_use]
    pub fn with_node_affinity(mut self, affinity: NodeAffinity) -> Self {
        let all = self.spec.affinity.get_or_insert_default();
        all.node_affinity = Some(affinity);
        self
    }

    /// Binds the pod to a node by name, without a scheduler.
    #[must_use]
    pub fn bound_to(mut self, node: &str) -> Self {
        self.spec.node_name = Some(node.to_owned());
        self
    }

    /// Tolerates a taint with this key and any value.
    #[must_use]
    pub fn tolerating(mut self, key: &str, effect: &str) -> Self {
        self.spec
            .tolerations
            .get_or_insert_default()
            .push(Toleration {
                key: Some(key.to_owned()),
                operator: Some("Exists".to_owned()),
                effect: Some(effect.to_owned()),
                ..Toleration::default()
            });
        self
    }

    /// Sets the priority class; `None` for the default.
    #[must_use]
    pub fn with_priority_class(mut self, class: Option<&str>) -> Self {
        self.spec.priority_class_name = class.map(str::to_owned);
        self
    }

    /// Returns the name of the pod or of the workload.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sum of what all app containers request.
    pub fn total(&self) -> Resources {
        Resources::sum(
            &self
                .containers
                .iter()
                .map(|(_, resources)| resources.list())
                .collect::<Vec<_>>(),
        )
    }

    /// Returns the list of each app container.
    pub fn lists(&self) -> Vec<Resources> {
        self.containers
            .iter()
            .map(|(_, resources)| resources.list())
            .collect()
    }

    /// Builds the pod.
    pub fn pod(&self) -> Pod {
        Pod {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.labels.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(self.pod_spec()),
            status: None,
        }
    }

    /// Builds a deployment of such pods.
    pub fn deployment(&self, replicas: i32) -> Deployment {
        let (selector, template) = self.template();
        Deployment {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(DeploymentSpec {
                replicas: Some(replicas),
                selector,
                template,
                ..DeploymentSpec::default()
            }),
            status: None,
        }
    }

    /// Builds a replica set of such pods.
    pub fn replica_set(&self, replicas: i32) -> ReplicaSet {
        let (selector, template) = self.template();
        ReplicaSet {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(replicas),
                selector,
                template: Some(template),
                ..ReplicaSetSpec::default()
            }),
            status: None,
        }
    }

    /// Builds a daemon set of such pods.
    pub fn daemon_set(&self) -> DaemonSet {
        let (selector, template) = self.template();
        DaemonSet {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(DaemonSetSpec {
                selector,
                template,
                ..DaemonSetSpec::default()
            }),
            status: None,
        }
    }

    /// Returns the labels by which a workload selects its pods.
    pub fn selector_labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("test".to_owned(), self.name.clone())])
    }

    fn template(&self) -> (LabelSelector, PodTemplateSpec) {
        let selector = self.selector_labels();
        let mut labels = self.labels.clone();
        labels.extend(selector.clone());
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(labels),
                ..ObjectMeta::default()
            }),
            spec: Some(self.pod_spec()),
        };
        (
            LabelSelector {
                match_labels: Some(selector),
                ..LabelSelector::default()
            },
            template,
        )
    }

    fn pod_spec(&self) -> PodSpec {
        let image = images::of_pods(&[PAUSE_IMAGE_VARIABLE]);
        let container = |name: String, command: &[&str], resources: &ResourceRequest| Container {
            name,
            image: Some(image.clone()),
            command: Some(command.iter().map(|&word| word.to_owned()).collect()),
            resources: Some(resources.requirements()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            ..Container::default()
        };
        let containers = self
            .containers
            .iter()
            .enumerate()
            .map(|(index, (name, resources))| match self.sleeps.get(index) {
                Some(time) => container(name.clone(), &["/bin/sleep", time], resources),
                None => container(name.clone(), &["/pause"], resources),
            })
            .collect();
        let init: Vec<_> = self
            .init_containers
            .iter()
            .enumerate()
            .map(|(index, resources)| {
                container(
                    format!("{}-init-{index}", self.name),
                    &["/bin/sleep", "1s"],
                    resources,
                )
            })
            .collect();
        PodSpec {
            containers,
            init_containers: (!init.is_empty()).then_some(init),
            ..self.spec.clone()
        }
    }
}
