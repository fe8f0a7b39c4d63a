//! A profile: which plugins place the pods of one scheduler name.

use scheduler_config::args::PLUGIN;

use crate::filter;
use crate::score;

/// A profile with its plugin lists resolved to what this scheduler runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The `schedulerName` of its pods, and the reporting controller of its events.
    pub name: String,
    /// Filters in their order.
    pub filters: Vec<filter::Plugin>,
    /// Scores with their weights.
    pub scores: Vec<score::Weighted>,
}

impl Profile {
    /// From the configuration.
    pub fn new(config: &scheduler_config::Profile) -> Self {
        let mut filters = Vec::new();
        for plugin in config
            .filter
            .iter()
            .filter_map(|plugin| filter::Plugin::from_name(&plugin.name))
        {
            if !filters.contains(&plugin) {
                filters.push(plugin);
            }
        }
        let scores = config.score.iter().filter_map(|plugin| {
            let weight = i64::from(plugin.weight.max(1));
            Some(score::Weighted {
                plugin: score_plugin(config, &plugin.name)?,
                weight,
            })
        });
        Self {
            name: config.scheduler_name.clone(),
            filters,
            scores: scores.collect(),
        }
    }
}

/// The score plugin of that name. The others have no opinion here: image locality, volumes and soft spreading are not scored.
fn score_plugin(config: &scheduler_config::Profile, name: &str) -> Option<score::Plugin> {
    match name {
        "TaintToleration" => Some(score::Plugin::TaintToleration),
        "NodeAffinity" => Some(score::Plugin::NodeAffinity),
        "NodeResourcesFit" => Some(score::Plugin::NodeResourcesFit),
        "NodeResourcesBalancedAllocation" => Some(score::Plugin::NodeResourcesBalancedAllocation),
        PLUGIN => {
            let args = config.topology_match.as_ref()?;
            Some(score::Plugin::NodeResourceTopologyMatch(
                args.scoring_strategy.clone(),
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use filter::Plugin;

    const SHIPPED: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: topo-aware-scheduler
  plugins:
    multiPoint:
      disabled: [{name: DynamicResources}]
      enabled: [{name: NodeResourceTopologyMatch}]
    filter:
      disabled: [{name: '*'}]
      enabled:
      - name: NodeUnschedulable
      - name: NodeName
      - name: TaintToleration
      - name: NodeAffinity
      - name: NodePorts
      - name: KNIDebug
      - name: NodeResourcesFit
      - name: NodeResourceTopologyMatch
      - name: VolumeRestrictions
      - name: NodeVolumeLimits
      - name: VolumeBinding
      - name: VolumeZone
      - name: PodTopologySpread
      - name: InterPodAffinity
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {scoringStrategy: {type: MostAllocated}, cacheResyncPeriodSeconds: 5}
";

    #[test]
    fn the_shipped_configuration_filters_in_its_order() {
        let config = scheduler_config::parse(SHIPPED).expect("valid");
        let profile = Profile::new(&config.profiles[0]);
        assert_eq!(profile.name, "topo-aware-scheduler");
        assert_eq!(
            profile.filters,
            [
                Plugin::NodeUnschedulable,
                Plugin::TaintToleration,
                Plugin::NodeAffinity,
                Plugin::NodePorts,
                Plugin::NodeResourcesFit,
                Plugin::NodeResourceTopologyMatch,
                Plugin::Volumes,
                Plugin::PodTopologySpread,
                Plugin::InterPodAffinity,
            ]
        );
        let weights: Vec<i64> = profile.scores.iter().map(|score| score.weight).collect();
        assert_eq!(weights, [3, 2, 1, 1, 1]);
        assert!(matches!(
            &profile.scores[4].plugin,
            score::Plugin::NodeResourceTopologyMatch(strategy) if strategy.kind.to_string() == "MostAllocated"
        ));
    }
}
