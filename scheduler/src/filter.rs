//! Which nodes a pod may go to, and why not to the others (scheduler.md 3 and 7.3).
//!
//! Pure: everything is asked of the [`Cluster`] and the topology [`Cache`] as they are. The plugins run in the order of the profile;
//! the first that rejects a node ends its examination.

use std::borrow::Cow;
use std::fmt;

use topology::resource::ResourceName;

use crate::cache::Cache;
use crate::cluster::{Cluster, Node, NodeState};
use crate::pod::Pod;

pub mod inter_pod;
pub mod node;
pub mod selector;
pub mod spread;
pub mod topology_match;

/// A filter plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Plugin {
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    NodeResourceTopologyMatch,
    Volumes,
    PodTopologySpread,
    InterPodAffinity,
}

impl Plugin {
    /// The plugin of that name. Some names stand for nothing to do: `NodeName`, because pods with a node are never queued;
    /// `KNIDebug`, which only logs; `DynamicResources`, which the shipped profile disables. The volume plugins are one here.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "NodeUnschedulable" => Some(Self::NodeUnschedulable),
            "TaintToleration" => Some(Self::TaintToleration),
            "NodeAffinity" => Some(Self::NodeAffinity),
            "NodePorts" => Some(Self::NodePorts),
            "NodeResourcesFit" => Some(Self::NodeResourcesFit),
            "NodeResourceTopologyMatch" => Some(Self::NodeResourceTopologyMatch),
            "VolumeRestrictions" | "VolumeBinding" => Some(Self::Volumes),
            "PodTopologySpread" => Some(Self::PodTopologySpread),
            "InterPodAffinity" => Some(Self::InterPodAffinity),
            _ => None,
        }
    }

    /// Its Kubernetes name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::NodeResourceTopologyMatch => "NodeResourceTopologyMatch",
            Self::Volumes => "VolumeBinding",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
        }
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plugins(u16);

impl Plugins {
    /// Every plugin.
    pub const ALL: Self = Self(u16::MAX);

    /// Adds one.
    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u16;
    }

    /// Whether any plugin is in both.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl FromIterator<Plugin> for Plugins {
    fn from_iter<I: IntoIterator<Item = Plugin>>(plugins: I) -> Self {
        let mut set = Self::default();
        for plugin in plugins {
            set.insert(plugin);
        }
        set
    }
}

/// Why a node was ruled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Who ruled it out.
    pub plugin: Plugin,
    /// The reasons in the words that other programs match; at least one.
    pub reasons: Vec<Cow<'static, str>>,
    /// What a person needs to understand it, for the log and the event.
    pub detail: Option<String>,
    /// The first resource that there is too little of.
    pub lacks: Option<ResourceName>,
}

impl Rejection {
    /// One reason.
    pub fn new(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            plugin,
            reasons: vec![reason.into()],
            detail: None,
            lacks: None,
        }
    }
}

/// One attempt: what is the same for all nodes, worked out once.
pub struct Attempt<'a> {
    cluster: &'a Cluster,
    cache: &'a Cache,
    pod: &'a Pod,
    spread: spread::Counts,
    inter_pod: inter_pod::Neighbours,
}

impl<'a> Attempt<'a> {
    /// Prepares to examine nodes for `pod`.
    pub fn new(cluster: &'a Cluster, cache: &'a Cache, pod: &'a Pod) -> Self {
        Self {
            cluster,
            cache,
            pod,
            spread: spread::Counts::new(cluster, pod),
            inter_pod: inter_pod::Neighbours::new(cluster, pod),
        }
    }

    /// Runs `plugins` in their order on one node.
    pub fn examine(
        &self,
        plugins: &[Plugin],
        node: &Node,
        state: &NodeState,
    ) -> Result<(), Rejection> {
        plugins
            .iter()
            .try_for_each(|plugin| self.run(*plugin, node, state))
    }

    fn run(&self, plugin: Plugin, node: &Node, state: &NodeState) -> Result<(), Rejection> {
        let pod = self.pod;
        match plugin {
            Plugin::NodeUnschedulable => node::unschedulable(pod, node),
            Plugin::TaintToleration => node::taints(pod, node),
            Plugin::NodeAffinity => node::affinity(pod, node),
            Plugin::NodePorts => node::ports(pod, state, self.cluster),
            Plugin::NodeResourcesFit => node::resources(pod, node, state),
            Plugin::NodeResourceTopologyMatch => {
                topology_match::filter(pod, node, self.cache.view(&node.name))
            }
            Plugin::Volumes => match pod.wishes.volumes {
                Some(reason) => Err(Rejection::new(plugin, reason)),
                None => Ok(()),
            },
            Plugin::PodTopologySpread => self.spread.filter(node),
            Plugin::InterPodAffinity => self.inter_pod.filter(node),
        }
    }
}
