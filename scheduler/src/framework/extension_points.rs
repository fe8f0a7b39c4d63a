//! The extension points at which plugins act, and which function of which plugin runs there (scheduler.md 3, 4, 7.3, 7.4, 7.5).
//!
//! In the order of an attempt ([`cycle::attempt`](super::cycle::attempt)):
//!
//! | point | what runs | what it yields |
//! |---|---|---|
//! | PreFilter | [`Attempt::new`]: what is the same for all nodes, once | amounts, domains, counts; or a rejection of every node |
//! | Filter | [`Attempt::examine`]: the plugins on one node, in the order of the profile; the first one that rejects it ends the examination | a [`Rejection`] |
//! | PostFilter | [`preempt`](crate::framework::default_preemption::preempt), if no node is left | victims on a node |
//! | Score | [`ScorePlugin::raw_score`]: one plugin on one node alone | a number |
//! | NormalizeScore | [`ScorePlugin::normalized_scores`]: one plugin on all feasible nodes | 0 to 100 for each node; the weighted sum decides |
//!
//! Then the engine carries out what was decided:
//!
//! | point | what runs |
//! |---|---|
//! | Reserve | the pod is assumed on its node and charged to its zones ([`Cache::reserve`](crate::numa::cache::Cache::reserve)), its volumes are kept for it ([`reservation`](crate::plugins::volumes::volume_binding::reservation)) |
//! | PreBind | [`volume_bind`](crate::api_tasks::volume_bind) writes the choice of volumes and waits for it |
//! | Bind | [`bind`](crate::api_tasks::bind::bind) |
//!
//! Pure: everything is read from the [`Cluster`] and the nodes in their current state.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use scheduler_config::args::ScoringStrategy;
use scheduler_config::default_plugins::{self, InterPodAffinityArgs, ResourceSpec};
use topology::resource::ResourceName;

use crate::numa::simulate;
use crate::numa::view::View;
use crate::plugins::node_info::NodeInfo;
use crate::plugins::plugin::Plugin;
use crate::plugins::rejection::Rejection;
use crate::plugins::score::normalize;
use crate::plugins::{
    image_locality, inter_pod_affinity, node_affinity, node_ports, node_resource_topology_match,
    node_resources_balanced_allocation, node_resources_fit, node_unschedulable,
    pod_topology_spread, taint_toleration, volumes,
};
use crate::state::cluster::Cluster;
use crate::state::node::{Node, NodeState};
use crate::state::pod::Pod;

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
    pub(crate) fn compares(&self, name: &ResourceName) -> bool {
        let group = name.as_str().split_once('/').map(|(group, _)| group);
        let is_extended = group.is_some() && !name.is_native();
        let is_ignored = is_extended
            && (self.ignored_resources.iter().any(|it| it == name.as_str())
                || group.is_some_and(|group| {
                    self.ignored_resource_groups.iter().any(|it| it == group)
                }));
        node_resources_fit::is_node_resource(name) && !is_ignored
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
    spread: pod_topology_spread::Counts,
    inter_pod: inter_pod_affinity::Domains,
    simulated: Option<Result<View, simulate::Error>>,
}

impl<'a> Attempt<'a> {
    /// Prepares to examine nodes for `pod`.
    pub fn new(filters: &'a Filters, cluster: &'a Cluster, pod: &'a Pod) -> Self {
        let named = node_affinity::named(pod);
        let mut rejected_everywhere = None;
        if filters.plugins.contains(&Plugin::NodeAffinity) {
            rejected_everywhere = node_affinity::conflict(named.as_ref());
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
            wanted: node_resources_fit::wanted(pod, |name| filters.compares(name)),
            named,
            volumes,
            rejected_everywhere,
            spread: pod_topology_spread::Counts::new(cluster, pod, &filters.default_spread),
            inter_pod: inter_pod_affinity::Domains::new(cluster, pod),
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
            node_affinity::restrict_to_named(self.named.as_ref(), info.node)?;
        }
        plugins
            .iter()
            .try_for_each(|plugin| self.run(*plugin, info))
    }

    fn run(&self, plugin: Plugin, info: &NodeInfo<'_>) -> Result<(), Rejection> {
        let pod = self.pod;
        let NodeInfo { node, state, .. } = *info;
        match plugin {
            Plugin::NodeUnschedulable => node_unschedulable::filter(pod, node),
            Plugin::TaintToleration => taint_toleration::filter(pod, node),
            Plugin::NodeAffinity => {
                node_affinity::filter(pod, node, self.filters.added_affinity.as_ref())
            }
            Plugin::NodePorts => node_ports::filter(pod, state, self.cluster),
            Plugin::NodeResourcesFit => node_resources_fit::filter(&self.wanted, node, state),
            Plugin::NodeResourceTopologyMatch => match &self.simulated {
                None => node_resource_topology_match::filter(pod, node, info.view()),
                Some(Ok(view)) => node_resource_topology_match::filter(pod, node, view),
                Some(Err(error)) => node_resource_topology_match::refuse(pod, error),
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

/// A score plugin with its settings. The variants say which nodes score high.
#[derive(Clone, Debug, PartialEq)]
pub enum ScorePlugin {
    /// Few untolerated `PreferNoSchedule` taints.
    TaintToleration,
    /// Nodes preferred by the pod, and by the profile.
    NodeAffinity(Option<NodeAffinity>),
    /// Nodes with most left, or as the strategy says.
    NodeResourcesFit(default_plugins::ScoringStrategy),
    /// Nodes whose resources are used evenly.
    NodeResourcesBalancedAllocation(Vec<ResourceSpec>),
    /// Few pods of the same kind in the same domains.
    PodTopologySpread(pod_topology_spread::Defaults),
    /// Preferred pods nearby, and pods that prefer this one.
    InterPodAffinity(InterPodAffinityArgs),
    /// Images of the pod that are already on the node.
    ImageLocality,
    /// Zones that suit the strategy.
    NodeResourceTopologyMatch(ScoringStrategy),
}

impl ScorePlugin {
    /// Returns its Kubernetes name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity(_) => "NodeAffinity",
            Self::NodeResourcesFit(_) => "NodeResourcesFit",
            Self::NodeResourcesBalancedAllocation(_) => "NodeResourcesBalancedAllocation",
            Self::PodTopologySpread(_) => "PodTopologySpread",
            Self::InterPodAffinity(_) => "InterPodAffinity",
            Self::ImageLocality => "ImageLocality",
            Self::NodeResourceTopologyMatch(_) => scheduler_config::args::PLUGIN,
        }
    }
}

/// A plugin with the weight of its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    /// The plugin.
    pub plugin: ScorePlugin,
    /// At least 1.
    pub weight: i64,
}

/// Returns the scores of one plugin for `nodes`, in order.
pub fn scores(
    plugin: &ScorePlugin,
    pod: &Pod,
    nodes: &[NodeInfo<'_>],
    cluster: &Cluster,
) -> Vec<i64> {
    let node_count = cluster.nodes().count();
    let raw = nodes
        .iter()
        .map(|info| plugin.raw_score(pod, info, cluster, node_count));
    let pairs = nodes.iter().map(|info| (info.node, info.state));
    plugin.normalized_scores(pod, pairs, cluster, raw.collect())
}

impl ScorePlugin {
    /// Returns the score of a node independent of the other nodes; 0 for plugins that only compare. `node_count` is the number of nodes
    /// of the cluster.
    pub fn raw_score(
        &self,
        pod: &Pod,
        info: &NodeInfo<'_>,
        cluster: &Cluster,
        node_count: usize,
    ) -> i64 {
        let NodeInfo { node, state, .. } = *info;
        match self {
            Self::TaintToleration => taint_toleration::raw_score(pod, node),
            Self::NodeAffinity(added) => node_affinity::raw_score(pod, node, added.as_ref()),
            Self::NodeResourcesFit(strategy) => {
                node_resources_fit::score(pod, node, state, strategy)
            }
            Self::NodeResourcesBalancedAllocation(resources) => {
                node_resources_balanced_allocation::score(pod, node, state, resources)
            }
            Self::ImageLocality => image_locality::score(cluster, pod, node, node_count),
            Self::NodeResourceTopologyMatch(strategy) => {
                node_resource_topology_match::score(pod, info.view(), strategy)
            }
            Self::PodTopologySpread(_) | Self::InterPodAffinity(_) => 0,
        }
    }

    /// Computes the final scores of `nodes` from their raw scores, in order.
    pub fn normalized_scores<'a>(
        &self,
        pod: &Pod,
        nodes: impl Iterator<Item = (&'a Node, &'a NodeState)> + Clone,
        cluster: &Cluster,
        raw: Vec<i64>,
    ) -> Vec<i64> {
        match self {
            Self::TaintToleration => normalize(raw, true),
            Self::NodeAffinity(_) => normalize(raw, false),
            Self::NodeResourcesFit(_)
            | Self::NodeResourcesBalancedAllocation(_)
            | Self::ImageLocality
            | Self::NodeResourceTopologyMatch(_) => raw,
            Self::PodTopologySpread(defaults) => {
                pod_topology_spread::scores(cluster, pod, nodes, defaults).unwrap_or(raw)
            }
            Self::InterPodAffinity(args) => {
                let objects = nodes.map(|(node, _)| node);
                inter_pod_affinity::scores(cluster, pod, objects, *args).unwrap_or(raw)
            }
        }
    }
}
