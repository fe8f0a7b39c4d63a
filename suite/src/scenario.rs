//! What a scenario is, and what can stop one.

use std::fmt;

use futures::future::LocalBoxFuture;
use reports::event::{Failure, ScenarioInfo};
use testbed::faults::Part;

use crate::context::Context;
use crate::facts::Facts;
use crate::resources::Resources;

/// The steps of a scenario.
pub type Body =
    Box<dyn for<'a> Fn(&'a Context) -> LocalBoxFuture<'a, Result<(), StepError>> + Send + Sync>;

/// One scenario of the catalogue.
pub struct Scenario {
    /// Stable id, `area/name`, as in the catalogue.
    pub id: &'static str,
    /// Number that the catalogue refers to.
    pub test_id: Option<u32>,
    /// Title in the catalogue, with its bracketed tags, for `--focus` and `--skip`.
    pub title: String,
    /// Labels.
    pub labels: Vec<&'static str>,
    /// What the cluster must have.
    pub needs: Vec<Need>,
    /// The steps.
    pub body: Body,
}

impl Scenario {
    /// Returns the part of the id before the slash.
    pub fn area(&self) -> &'static str {
        self.id.split_once('/').map_or(self.id, |(area, _)| area)
    }

    /// Returns what reports show about it.
    pub fn info(&self) -> ScenarioInfo {
        ScenarioInfo {
            id: self.id.to_owned(),
            title: self.title.clone(),
            test_id: self.test_id,
            labels: self
                .labels
                .iter()
                .map(|label| (*label).to_owned())
                .collect(),
        }
    }

    /// Returns the first need that the cluster does not meet: what is needed and what the cluster has instead.
    pub fn missing(&self, facts: &Facts) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing(facts))
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("id", &self.id)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}

/// Makes a [`Body`] from a function.
pub fn body<F>(run: F) -> Body
where
    F: for<'a> Fn(&'a Context) -> LocalBoxFuture<'a, Result<(), StepError>> + Send + Sync + 'static,
{
    Box::new(run)
}

/// Topology manager scope of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each container is aligned by itself.
    Container,
    /// The pod is aligned as a whole.
    Pod,
}

impl Scope {
    /// Returns the value of the NRT attribute.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }

    /// Returns the message of the scheduler when no zone fits (scheduler.md 3.5).
    pub fn alignment_failure(self) -> &'static str {
        match self {
            Self::Container => "cannot align container",
            Self::Pod => "cannot align pod",
        }
    }
}

/// Something that the cluster must have so that a scenario can give a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nodes with two zones and policy `single-numa-node`.
    Nodes {
        /// At least this many.
        count: usize,
        /// All with this scope.
        scope: Option<Scope>,
    },
    /// Zones of such nodes that can hold a request.
    Zone {
        /// Number of nodes that must have one.
        count: usize,
        /// Only nodes with this scope count.
        scope: Option<Scope>,
        /// The request, in the catalogue's notation.
        request: &'static str,
    },
    /// Sample device `d1`, `d2` or `d3` in both zones.
    Device(&'static str),
    /// A scheduler that resynchronises its cache and reports how often.
    CacheResync,
    /// The exporter's program, so that the scenario can start it.
    Exporter,
    /// A part in which faults can be injected.
    Faults(Part),
    /// `OpenShift`, with the machine config pools that feed the operator.
    OpenShift,
    /// A network that enforces policies.
    NetworkPolicies,
}

impl Need {
    /// Returns the need of this many nodes, of any scope.
    pub const fn nodes(count: usize) -> Self {
        Self::Nodes { count, scope: None }
    }

    /// Returns what is needed and what the cluster has instead, if the need is not met.
    pub fn missing(&self, facts: &Facts) -> Option<String> {
        match self {
            Self::Nodes { count, scope } => {
                let seen = facts.candidates(*scope).count();
                let scope = scope.map_or(String::new(), |scope| format!(" and scope {}", scope.as_str()));
                (seen < *count).then(|| {
                    format!("wanted at least {count} nodes with 2 NUMA zones, policy single-numa-node{scope}; seen {seen}")
                })
            }
            Self::Zone { count, scope, request } => {
                let list = Resources::literal(request).with_devices(&facts.devices).zone_level();
                let seen = facts.candidates(*scope).filter(|node| node.any_zone_fits(&list)).count();
                (seen < *count).then(|| format!("wanted at least {count} nodes with a NUMA zone that fits {list}; seen {seen}"))
            }
            Self::Device(device) => {
                let Some(name) = facts.devices.0.get(*device) else {
                    return Some(format!("wanted sample device {device} (E2E_NROP_DEVICE_TYPE_{}); none is known", &device[1..]));
                };
                let both = |node: &&crate::observed::NodeTopology| node.zones.iter().all(|zone| zone.resources.contains_key(name));
                (!facts.candidates(None).any(|node| both(&node))).then(|| format!("wanted {name} in both zones of a node; seen on none"))
            }
            Self::CacheResync => facts
                .cache_resync
                .is_none()
                .then(|| "wanted status.cacheResyncPeriod of the NUMAResourcesScheduler; it is not set".to_owned()),
            Self::Exporter => facts.exporter.is_none().then(|| {
                "wanted the exporter's program; its path is unknown for a cluster that is given by its kubeconfig".to_owned()
            }),
            Self::Faults(part) => {
                let seen = match &facts.faults {
                    None => "one that is known by its kubeconfig",
                    Some(faults) if !faults.supports(*part) => "one that cannot",
                    Some(_) => return None,
                };
                Some(format!("wanted a cluster that can {}; seen {seen}", part.verb()))
            }
            Self::NetworkPolicies => (!facts.network_policies).then(|| {
                "wanted a network that enforces NetworkPolicies; seen one without (the local lane needs the program nft, the embedded one has no networks of pods)".to_owned()
            }),
            Self::OpenShift => (!facts.openshift).then(|| {
                "wanted OpenShift (API group machineconfiguration.openshift.io); seen plain Kubernetes".to_owned()
            }),
        }
    }
}

/// Why a scenario or the set-up stops.
#[derive(Debug)]
pub enum StepError {
    /// Something is not as expected.
    Failed(Box<Failure>),
    /// The API server refused or did not answer; during a wait this only counts as "not yet".
    Api(Box<kube::Error>),
    /// The scenario cannot give a verdict here.
    Skip(String),
}

impl StepError {
    /// Returns a failure with a message of one line.
    pub fn fail(message: impl Into<String>) -> Self {
        Self::Failed(Box::new(Failure {
            message: message.into(),
            ..Failure::default()
        }))
    }

    /// Returns a failure with what was expected and what was seen.
    pub fn mismatch(
        message: impl Into<String>,
        expected: impl fmt::Display,
        seen: impl fmt::Display,
    ) -> Self {
        Self::Failed(Box::new(Failure {
            message: message.into(),
            expected: Some(expected.to_string()),
            seen: Some(seen.to_string()),
            ..Failure::default()
        }))
    }

    /// Converts to a failure of the given step.
    pub fn into_failure(self, step: &str) -> Failure {
        match self {
            Self::Failed(mut failure) => {
                if failure.step.is_empty() {
                    step.clone_into(&mut failure.step);
                }
                *failure
            }
            Self::Api(error) => Failure {
                step: step.to_owned(),
                message: format!("the API server refused: {error}"),
                ..Failure::default()
            },
            Self::Skip(reason) => Failure {
                step: step.to_owned(),
                message: reason,
                ..Failure::default()
            },
        }
    }
}

impl From<kube::Error> for StepError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}
