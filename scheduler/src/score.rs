//! Which of the feasible nodes is best (scheduler.md 4, 7.4, 7.5).
//!
//! Each plugin gives every node a score from 0 to 100; the weighted sum decides.

use crate::filter::node::{selected_weight, soft_taints};
use crate::state::cluster::{Cluster, Node, NodeState};
use crate::state::node_info::NodeInfo;
use crate::state::pod::Pod;
use k8s_openapi::api::core::v1::NodeAffinity;
use scheduler_config::args::ScoringStrategy;
use scheduler_config::default_plugins::{self, InterPodAffinityArgs, ResourceSpec};

pub mod images;
pub mod inter_pod;
pub mod least_numa;
pub mod node;
pub mod spread;
pub mod zones;

/// Highest score of one plugin.
pub const MAX: i64 = 100;

/// A score plugin with its settings. The variants say which nodes score high.
#[derive(Clone, Debug, PartialEq)]
pub enum Plugin {
    /// Few untolerated `PreferNoSchedule` taints.
    TaintToleration,
    /// Nodes preferred by the pod, and by the profile.
    NodeAffinity(Option<NodeAffinity>),
    /// Nodes with most left, or as the strategy says.
    NodeResourcesFit(default_plugins::ScoringStrategy),
    /// Nodes whose resources are used evenly.
    NodeResourcesBalancedAllocation(Vec<ResourceSpec>),
    /// Few pods of the same kind in the same domains.
    PodTopologySpread(spread::Defaults),
    /// Preferred pods nearby, and pods that prefer this one.
    InterPodAffinity(InterPodAffinityArgs),
    /// Images of the pod that are already on the node.
    ImageLocality,
    /// Zones that suit the strategy.
    NodeResourceTopologyMatch(ScoringStrategy),
}

impl Plugin {
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
    pub plugin: Plugin,
    /// At least 1.
    pub weight: i64,
}

/// Returns the scores of one plugin for `nodes`, in order.
pub fn scores(plugin: &Plugin, pod: &Pod, nodes: &[NodeInfo<'_>], cluster: &Cluster) -> Vec<i64> {
    let node_count = cluster.nodes().count();
    let raw = nodes
        .iter()
        .map(|info| plugin.raw_score(pod, info, cluster, node_count));
    let pairs = nodes.iter().map(|info| (info.node, info.state));
    plugin.normalized_scores(pod, pairs, cluster, raw.collect())
}

impl Plugin {
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
            Self::TaintToleration => soft_taints(pod, node),
            Self::NodeAffinity(added) => selected_weight(pod, node, added.as_ref()),
            Self::NodeResourcesFit(strategy) => node::fit(pod, node, state, strategy),
            Self::NodeResourcesBalancedAllocation(resources) => {
                node::balanced(pod, node, state, resources)
            }
            Self::ImageLocality => images::score(cluster, pod, node, node_count),
            Self::NodeResourceTopologyMatch(strategy) => zones::score(pod, info.view(), strategy),
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
                spread::scores(cluster, pod, nodes, defaults).unwrap_or(raw)
            }
            Self::InterPodAffinity(args) => {
                let objects = nodes.map(|(node, _)| node);
                inter_pod::scores(cluster, pod, objects, *args).unwrap_or(raw)
            }
        }
    }
}

/// Scales raw scores so that the largest becomes [`MAX`]. If `reversed`, the largest becomes 0, and scores that are all zero become [`MAX`].
fn normalize(scores: Vec<i64>, reversed: bool) -> Vec<i64> {
    let largest = scores.iter().copied().max().unwrap_or(0);
    let scale = |score: i64| {
        if largest == 0 {
            0
        } else {
            score * MAX / largest
        }
    };
    scores
        .into_iter()
        .map(scale)
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
        assert_eq!(normalize(raw.to_vec(), reversed), expected);
    }
}
