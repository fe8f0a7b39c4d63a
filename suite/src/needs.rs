//! What a cluster must have for a scenario.

use cluster_faults::Part;

use crate::environment::Platform;
use crate::facts::Facts;
use crate::observed::{NodeTopology, Scope};
use crate::resources::Resources;

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

    /// Describes the need in a few words, for the page of all scenarios.
    pub fn describe(&self) -> String {
        let nodes = |count: usize, scope: Option<Scope>| {
            let plural = if count == 1 { "node" } else { "nodes" };
            let scope = scope.map_or(String::new(), |scope| {
                format!(" of scope {}", scope.as_str())
            });
            format!("{count} {plural}{scope}")
        };
        match self {
            Self::Nodes { count, scope } => nodes(*count, *scope),
            Self::Zone {
                count,
                scope,
                request,
            } => format!("{} with {request} in a zone", nodes(*count, *scope)),
            Self::Device(device) => format!("device {device} in both zones"),
            Self::CacheResync => "a scheduler with a resync period".to_owned(),
            Self::Exporter => "the exporter's program".to_owned(),
            Self::Faults(part) => format!("a cluster that can {}", part.verb()),
            Self::OpenShift => "OpenShift".to_owned(),
            Self::NetworkPolicies => "enforced network policies".to_owned(),
        }
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
                let both = |node: &&NodeTopology| node.zones.iter().all(|zone| zone.resources.contains_key(name));
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
            Self::OpenShift => {
                let seen = match facts.environment.platform {
                    Platform::Openshift => return None,
                    Platform::Hypershift => "a hosted control plane",
                    Platform::Kubernetes => "plain Kubernetes",
                };
                Some(format!("wanted OpenShift (API group machineconfiguration.openshift.io); seen {seen}"))
            }
        }
    }
}
