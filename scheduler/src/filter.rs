//! Which nodes a pod may go to, and why not to the others (scheduler.md 3, 7.3).
//!
//! Pure: everything is read from the [`Cluster`] and the nodes in their current state. The plugins run in the order of the profile;
//! the first one that rejects a node ends its examination.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use topology::resource::ResourceName;

use crate::numa::simulate;
use crate::numa::view::View;
use crate::state::cluster::Cluster;
use crate::state::node_info::NodeInfo;
use crate::state::pod::Pod;

pub mod inter_pod;
pub mod node;
pub mod selector;
pub mod spread;
pub mod topology_match;
pub mod volumes;

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
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
}

impl Plugin {
    /// Every plugin.
    pub const ALL: [Self; 12] = [
        Self::NodeUnschedulable,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::NodeResourceTopologyMatch,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
    ];

    /// Returns the plugin of that name. Some names have nothing to do here: `NodeName`, because pods with a node are never queued;
    /// `KNIDebug`, which only logs; `DynamicResources`, which the shipped profile disables.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "NodeUnschedulable" => Some(Self::NodeUnschedulable),
            "TaintToleration" => Some(Self::TaintToleration),
            "NodeAffinity" => Some(Self::NodeAffinity),
            "NodePorts" => Some(Self::NodePorts),
            "NodeResourcesFit" => Some(Self::NodeResourcesFit),
            "NodeResourceTopologyMatch" => Some(Self::NodeResourceTopologyMatch),
            "VolumeRestrictions" => Some(Self::VolumeRestrictions),
            "NodeVolumeLimits" => Some(Self::NodeVolumeLimits),
            "VolumeBinding" => Some(Self::VolumeBinding),
            "VolumeZone" => Some(Self::VolumeZone),
            "PodTopologySpread" => Some(Self::PodTopologySpread),
            "InterPodAffinity" => Some(Self::InterPodAffinity),
            _ => None,
        }
    }

    /// Returns its Kubernetes name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::NodeResourceTopologyMatch => "NodeResourceTopologyMatch",
            Self::VolumeRestrictions => "VolumeRestrictions",
            Self::NodeVolumeLimits => "NodeVolumeLimits",
            Self::VolumeBinding => "VolumeBinding",
            Self::VolumeZone => "VolumeZone",
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

    /// Adds a plugin.
    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u16;
    }

    /// Iterates over the plugins in the set. [`Plugins::ALL`] means no particular plugin and yields none.
    pub fn iter(self) -> impl Iterator<Item = Plugin> {
        let some = if self == Self::ALL {
            Self::default()
        } else {
            self
        };
        Plugin::ALL
            .into_iter()
            .filter(move |plugin| some.0 & (1 << *plugin as u16) != 0)
    }

    /// Returns whether any plugin is in both sets.
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

/// The filters of a profile, in order, with their settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// The plugins.
    pub plugins: Vec<Plugin>,
    /// Node affinity in addition to that of the pod.
    pub added_affinity: Option<NodeAffinity>,
    /// Extended resources that are ignored.
    pub ignored_resources: Vec<String>,
    /// Prefixes of extended resources that are ignored.
    pub ignored_resource_groups: Vec<String>,
    /// Spread constraints of pods that have none.
    pub default_spread: Vec<TopologySpreadConstraint>,
}

impl Filters {
    /// Returns whether the filter compares the amount of a resource.
    fn compares(&self, name: &ResourceName) -> bool {
        let group = name.as_str().split_once('/').map(|(group, _)| group);
        let is_extended = group.is_some() && !name.is_native();
        let is_ignored = is_extended
            && (self.ignored_resources.iter().any(|it| it == name.as_str())
                || group.is_some_and(|group| {
                    self.ignored_resource_groups.iter().any(|it| it == group)
                }));
        node::is_node_resource(name) && !is_ignored
    }
}

impl From<&[Plugin]> for Filters {
    fn from(plugins: &[Plugin]) -> Self {
        Self {
            plugins: plugins.to_vec(),
            ..Self::default()
        }
    }
}

/// Why a node was ruled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that ruled it out.
    pub plugin: Plugin,
    /// The reasons in the words that other programs match; at least one.
    pub reasons: Vec<Cow<'static, str>>,
    /// Explanation for people, for the log and the event.
    pub detail: Option<String>,
    /// The first resource of which there is too little.
    pub lacks: Option<ResourceName>,
    /// No eviction can change it, so the node is no candidate for preemption (scheduler.md 7.3: code X).
    pub unresolvable: bool,
    /// It was found before any node was examined, and is reported once for all nodes.
    pub everywhere: bool,
}

impl Rejection {
    /// Creates a rejection with one reason.
    pub fn new(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            plugin,
            reasons: vec![reason.into()],
            detail: None,
            lacks: None,
            unresolvable: false,
            everywhere: false,
        }
    }

    /// Creates a rejection with one reason that no eviction can remove.
    pub fn unresolvable(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            unresolvable: true,
            ..Self::new(plugin, reason)
        }
    }
}

/// One attempt: the results that are the same for all nodes, computed once.
pub struct Attempt<'a> {
    filters: &'a Filters,
    cluster: &'a Cluster,
    pod: &'a Pod,
    /// Amounts that every node must have left.
    wanted: Vec<(&'a ResourceName, i64)>,
    named: Option<BTreeSet<&'a str>>,
    volumes: Option<volumes::Volumes<'a>>,
    /// Why every node is ruled out.
    rejected_everywhere: Option<Rejection>,
    spread: spread::Counts,
    inter_pod: inter_pod::Domains,
    simulated: Option<Result<View, simulate::Error>>,
}

impl<'a> Attempt<'a> {
    /// Prepares to examine nodes for `pod`.
    pub fn new(filters: &'a Filters, cluster: &'a Cluster, pod: &'a Pod) -> Self {
        let named = node::named(pod);
        let mut rejected_everywhere = None;
        if filters.plugins.contains(&Plugin::NodeAffinity) {
            rejected_everywhere = node::conflict(named.as_ref());
        }
        let volumes = match volumes::Volumes::new(&filters.plugins, cluster, pod) {
            Ok(volumes) => volumes,
            Err(rejection) => {
                rejected_everywhere = rejected_everywhere.or(Some(rejection));
                None
            }
        };
        Self {
            filters,
            cluster,
            pod,
            wanted: node::wanted(pod, |name| filters.compares(name)),
            named,
            volumes,
            rejected_everywhere,
            spread: spread::Counts::new(cluster, pod, &filters.default_spread),
            inter_pod: inter_pod::Domains::new(cluster, pod),
            simulated: None,
        }
    }

    /// Returns the same attempt for a single node, assuming this view of its zones.
    #[must_use]
    pub fn with_view(mut self, view: Result<View, simulate::Error>) -> Self {
        self.simulated = Some(view);
        self
    }

    /// Returns whether the outcome depends on more than the node, its zones and what the pod requests of them: on other nodes, on volumes,
    /// or on where other pods are.
    pub fn is_pod_specific(&self) -> bool {
        self.rejected_everywhere.is_some()
            || self.simulated.is_some()
            || self.volumes.is_some()
            || !self.spread.is_empty()
            || !self.inter_pod.is_empty()
    }

    /// Runs the plugins in order on one node.
    pub fn examine(&self, info: &NodeInfo<'_>) -> Result<(), Rejection> {
        if let Some(rejection) = &self.rejected_everywhere {
            return Err(rejection.clone());
        }
        let plugins = &self.filters.plugins;
        if plugins.contains(&Plugin::NodeAffinity) {
            node::restrict_to_named(self.named.as_ref(), info.node)?;
        }
        plugins
            .iter()
            .try_for_each(|plugin| self.run(*plugin, info))
    }

    fn run(&self, plugin: Plugin, info: &NodeInfo<'_>) -> Result<(), Rejection> {
        let pod = self.pod;
        let NodeInfo { node, state, .. } = *info;
        match plugin {
            Plugin::NodeUnschedulable => node::unschedulable(pod, node),
            Plugin::TaintToleration => node::taints(pod, node),
            Plugin::NodeAffinity => node::affinity(pod, node, self.filters.added_affinity.as_ref()),
            Plugin::NodePorts => node::ports(pod, state, self.cluster),
            Plugin::NodeResourcesFit => node::resources(&self.wanted, node, state),
            Plugin::NodeResourceTopologyMatch => match &self.simulated {
                None => topology_match::filter(pod, node, info.view()),
                Some(Ok(view)) => topology_match::filter(pod, node, view),
                Some(Err(error)) => topology_match::refuse(pod, error),
            },
            Plugin::VolumeRestrictions => self.volumes(|it| it.restrictions(state)),
            Plugin::NodeVolumeLimits => self.volumes(|it| it.limits(node, state)),
            Plugin::VolumeBinding => self.volumes(|it| it.binding(node)),
            Plugin::VolumeZone => self.volumes(|it| it.zone(node)),
            Plugin::PodTopologySpread => self.spread.filter(node),
            Plugin::InterPodAffinity => self.inter_pod.filter(node),
        }
    }

    /// Runs a volume filter. Pods without relevant volumes fit everywhere.
    fn volumes(
        &self,
        filter: impl FnOnce(&volumes::Volumes<'a>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        self.volumes.as_ref().map_or(Ok(()), filter)
    }
}
