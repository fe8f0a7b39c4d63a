//! Which of the possible nodes is best (scheduler.md 4, 7.4, 7.5).
//!
//! Each plugin gives every node 0 to 100; the weighted sum decides.

use crate::cluster::{Cluster, Node, NodeState};
use crate::filter::node::{selected_weight, soft_taints};
use crate::node_info::NodeInfo;
use crate::pod::Pod;
use k8s_openapi::api::core::v1::NodeAffinity;
use scheduler_config::args::ScoringStrategy;
use scheduler_config::default_plugins::{self, InterPodAffinityArgs, ResourceSpec};

pub mod images;
pub mod inter_pod;
pub mod least_numa;
pub mod node;
pub mod spread;
pub mod zones;

/// Best score of one plugin.
pub const MAX: i64 = 100;

/// A score plugin with what it needs to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Plugin {
    /// Few taints that would rather keep the pod away.
    TaintToleration,
    /// Nodes that the pod would like, and those that the profile would.
    NodeAffinity(Option<NodeAffinity>),
    /// Nodes with most left, or as the strategy says.
    NodeResourcesFit(default_plugins::ScoringStrategy),
    /// Nodes whose resources are used evenly.
    NodeResourcesBalancedAllocation(Vec<ResourceSpec>),
    /// Few pods of the same kind near it.
    PodTopologySpread(spread::Defaults),
    /// Pods near it that are liked, and that like it.
    InterPodAffinity(InterPodAffinityArgs),
    /// Images that need not be pulled.
    ImageLocality,
    /// Zones that suit the strategy.
    NodeResourceTopologyMatch(ScoringStrategy),
}

impl Plugin {
    /// Its Kubernetes name.
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

/// A plugin with the weight of its opinion.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    /// The plugin.
    pub plugin: Plugin,
    /// At least 1.
    pub weight: i64,
}

/// What one plugin gives each of `nodes`, in their order.
pub fn scores(plugin: &Plugin, pod: &Pod, nodes: &[NodeInfo<'_>], cluster: &Cluster) -> Vec<i64> {
    let known = cluster.nodes().count();
    let alone = nodes
        .iter()
        .map(|info| plugin.alone(pod, info, cluster, known));
    let pairs = nodes.iter().map(|info| (info.node, info.state));
    plugin.together(pod, pairs, cluster, alone.collect())
}

impl Plugin {
    /// What a node gets without a look at the others; 0 from plugins that only compare. `known` is the number of nodes of the cluster.
    pub fn alone(&self, pod: &Pod, info: &NodeInfo<'_>, cluster: &Cluster, known: usize) -> i64 {
        let NodeInfo { node, state, .. } = *info;
        match self {
            Self::TaintToleration => soft_taints(pod, node),
            Self::NodeAffinity(added) => selected_weight(pod, node, added.as_ref()),
            Self::NodeResourcesFit(strategy) => node::fit(pod, node, state, strategy),
            Self::NodeResourcesBalancedAllocation(resources) => {
                node::balanced(pod, node, state, resources)
            }
            Self::ImageLocality => images::score(cluster, pod, node, known),
            Self::NodeResourceTopologyMatch(strategy) => zones::score(pod, info.view(), strategy),
            Self::PodTopologySpread(_) | Self::InterPodAffinity(_) => 0,
        }
    }

    /// The scores of `nodes` from what each got alone, in their order.
    pub fn together<'a>(
        &self,
        pod: &Pod,
        nodes: impl Iterator<Item = (&'a Node, &'a NodeState)> + Clone,
        cluster: &Cluster,
        alone: Vec<i64>,
    ) -> Vec<i64> {
        match self {
            Self::TaintToleration => normalise(alone, true),
            Self::NodeAffinity(_) => normalise(alone, false),
            Self::NodeResourcesFit(_)
            | Self::NodeResourcesBalancedAllocation(_)
            | Self::ImageLocality
            | Self::NodeResourceTopologyMatch(_) => alone,
            Self::PodTopologySpread(defaults) => {
                spread::scores(cluster, pod, nodes, defaults).unwrap_or(alone)
            }
            Self::InterPodAffinity(args) => {
                let objects = nodes.map(|(node, _)| node);
                inter_pod::scores(cluster, pod, objects, *args).unwrap_or(alone)
            }
        }
    }
}

/// Stretches raw scores so that the largest becomes [`MAX`]; reversed, the largest becomes 0 and all zero becomes [`MAX`].
fn normalise(scores: Vec<i64>, reversed: bool) -> Vec<i64> {
    let largest = scores.iter().copied().max().unwrap_or(0);
    let stretch = |score: i64| {
        if largest == 0 {
            0
        } else {
            score * MAX / largest
        }
    };
    scores
        .into_iter()
        .map(stretch)
        .map(|score| if reversed { MAX - score } else { score })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::plain(&[0, 1, 4], false, &[0, 25, 100])]
    #[case::reversed(&[0, 1, 4], true, &[100, 75, 0])]
    #[case::zeros(&[0, 0], false, &[0, 0])]
    #[case::zeros_reversed(&[0, 0], true, &[100, 100])]
    fn scores_are_stretched(#[case] raw: &[i64], #[case] reversed: bool, #[case] expected: &[i64]) {
        assert_eq!(normalise(raw.to_vec(), reversed), expected);
    }
}
