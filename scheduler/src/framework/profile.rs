//! A profile: the plugins that place the pods of one scheduler name.

use std::time::Duration;

use scheduler_config::args::PLUGIN;
use scheduler_config::default_plugins::DefaultPreemptionArgs;
use scheduler_config::plugins::{Point, extends};

use crate::framework::extension_points::{Filters, ScorePlugin, Weighted};
use crate::plugins::plugin::Plugin;
use crate::plugins::{pod_topology_spread, volumes};

/// A profile with its plugin lists resolved to what this scheduler runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The `schedulerName` of its pods, and the reporting controller of its events.
    pub name: String,
    /// Filters in order, with their settings.
    pub filters: Filters,
    /// Scores with their weights.
    pub scores: Vec<Weighted>,
    /// Settings of preemption, if it is enabled.
    pub preemption: Option<DefaultPreemptionArgs>,
    /// Share of the nodes among which the best one is chosen, in percent. 0 adapts it to the number of nodes.
    pub percentage_of_nodes_to_score: u8,
    /// How long a pod may wait for its volumes to be bound once it has a node.
    pub volume_timeout: Duration,
}

impl Profile {
    /// Creates a profile from the configuration.
    pub fn new(config: &scheduler_config::Profile) -> Self {
        let args = &config.default_args;
        let mut filters = Vec::new();
        for plugin in config
            .at(Point::Filter)
            .iter()
            .filter_map(|plugin| Plugin::from_name(&plugin.name))
        {
            if !filters.contains(&plugin) {
                filters.push(plugin);
            }
        }
        let scores = config.at(Point::Score).iter().filter_map(|plugin| {
            let weight = i64::from(plugin.weight.max(1));
            Some(Weighted {
                plugin: score_plugin(config, &plugin.name)?,
                weight,
            })
        });
        Self {
            name: config.scheduler_name.clone(),
            filters: Filters {
                plugins: filters,
                added_affinity: args.node_affinity.added_affinity.clone(),
                ignored_resources: args.node_resources_fit.ignored_resources.clone(),
                ignored_resource_groups: args.node_resources_fit.ignored_resource_groups.clone(),
                default_spread: args.pod_topology_spread.constraints(),
            },
            scores: scores.collect(),
            preemption: config.preemption,
            percentage_of_nodes_to_score: config.percentage_of_nodes_to_score,
            volume_timeout: Duration::from_secs(
                u64::try_from(args.volume_binding.bind_timeout_seconds).unwrap_or(0),
            ),
        }
    }

    /// Returns whether it runs any plugin that reads volumes.
    pub fn reads_volumes(&self) -> bool {
        let plugins = &self.filters.plugins;
        plugins
            .iter()
            .any(|plugin| volumes::PLUGINS.contains(plugin))
    }

    /// Returns whether pods without spread constraints get default ones. Then the services and controllers that select them matter.
    pub fn spreads_by_default(&self) -> bool {
        let is_scored = self.scores.iter().any(|weighted| match &weighted.plugin {
            ScorePlugin::PodTopologySpread(defaults) => !defaults.constraints.is_empty(),
            _ => false,
        });
        let is_filtered = self.filters.plugins.contains(&Plugin::PodTopologySpread);
        let defaults = &self.filters.default_spread;
        is_scored
            || (is_filtered
                && defaults
                    .iter()
                    .any(|it| it.when_unsatisfiable == "DoNotSchedule"))
    }

    /// Returns how many of `nodes` nodes have to be feasible to end the search, by kube-scheduler's rule (scheduler.md 1.3): all of a small
    /// cluster, a part of a large one.
    pub fn feasible_nodes_to_find(&self, nodes: usize) -> usize {
        const AT_LEAST: usize = 100;
        if nodes < AT_LEAST {
            return nodes;
        }
        let percent = match usize::from(self.percentage_of_nodes_to_score) {
            0 => 50_usize.saturating_sub(nodes / 125).max(5),
            percent => percent,
        };
        (nodes * percent / 100).max(AT_LEAST)
    }
}

/// Returns plugins that a profile enables and that have no effect here, with the point where they would act. Because of them a pod may be
/// placed differently than by kube-scheduler.
pub fn unsupported_plugins(config: &scheduler_config::Profile) -> Vec<String> {
    const FILTERS_NOTHING: &[&str] = &["NodeName", "KNIDebug"];
    const SCORES_NOTHING: &[&str] = &["VolumeBinding"];
    let filters = names(config, Point::Filter)
        .filter(|name| Plugin::from_name(name).is_none() && !FILTERS_NOTHING.contains(name))
        .map(|name| format!("filter {name}"));
    let scores = names(config, Point::Score)
        .filter(|name| score_plugin(config, name).is_none() && !SCORES_NOTHING.contains(name))
        .map(|name| format!("score {name}"));
    filters.chain(scores).collect()
}

/// Returns points where plugins act here although the profile disables them there. A filter or a score always works as a whole, with
/// what it prepares, reserves and binds, and a pod with scheduling gates is never placed. With such a profile kube-scheduler fails pods,
/// or places them on nodes that other pods are about to use.
pub fn active_despite_profile(config: &scheduler_config::Profile) -> Vec<String> {
    // DynamicResources does nothing here; the pre-filter of NodeResourceTopologyMatch prepares what only the original's preemption needs
    let is_idle = |name: &str, point| {
        name == "DynamicResources" || (name == PLUGIN && point == Point::PreFilter)
    };
    let parts = |of: Point, parts: &'static [Point]| {
        names(config, of).flat_map(move |name| parts.iter().map(move |point| (name, *point)))
    };
    parts(
        Point::Filter,
        &[Point::PreFilter, Point::Reserve, Point::PreBind],
    )
    .chain(parts(Point::Score, &[Point::PreScore]))
    .chain([("SchedulingGates", Point::PreEnqueue)])
    .filter(|(name, point)| {
        extends(name, *point) && !config.runs(name, *point) && !is_idle(name, *point)
    })
    .map(|(name, point)| format!("{name} at {point:?}"))
    .collect()
}

fn names(config: &scheduler_config::Profile, point: Point) -> impl Iterator<Item = &str> {
    let plugins = config.at(point).iter();
    plugins.map(|plugin| plugin.name.as_str())
}

/// Returns the score plugin of that name. DynamicResources does not score here. VolumeBinding does not score in kube-scheduler either while
/// the feature gate StorageCapacityScoring is off.
fn score_plugin(config: &scheduler_config::Profile, name: &str) -> Option<ScorePlugin> {
    let args = &config.default_args;
    match name {
        "TaintToleration" => Some(ScorePlugin::TaintToleration),
        "NodeAffinity" => Some(ScorePlugin::NodeAffinity(
            args.node_affinity.added_affinity.clone(),
        )),
        "NodeResourcesFit" => Some(ScorePlugin::NodeResourcesFit(
            args.node_resources_fit.scoring_strategy.clone(),
        )),
        "NodeResourcesBalancedAllocation" => Some(ScorePlugin::NodeResourcesBalancedAllocation(
            args.balanced_allocation.resources.clone(),
        )),
        "PodTopologySpread" => Some(ScorePlugin::PodTopologySpread(
            pod_topology_spread::Defaults {
                constraints: args.pod_topology_spread.constraints(),
                are_system: args.pod_topology_spread.is_system(),
            },
        )),
        "InterPodAffinity" => Some(ScorePlugin::InterPodAffinity(args.inter_pod_affinity)),
        "ImageLocality" => Some(ScorePlugin::ImageLocality),
        PLUGIN => {
            let args = config.topology_match.as_ref()?;
            Some(ScorePlugin::NodeResourceTopologyMatch(
                args.scoring_strategy.clone(),
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            profile.filters.plugins,
            [
                Plugin::NodeUnschedulable,
                Plugin::TaintToleration,
                Plugin::NodeAffinity,
                Plugin::NodePorts,
                Plugin::NodeResourcesFit,
                Plugin::NodeResourceTopologyMatch,
                Plugin::VolumeRestrictions,
                Plugin::NodeVolumeLimits,
                Plugin::VolumeBinding,
                Plugin::VolumeZone,
                Plugin::PodTopologySpread,
                Plugin::InterPodAffinity,
            ]
        );
        assert_eq!(unsupported_plugins(&config.profiles[0]), [""; 0]);
        let weights: Vec<i64> = profile.scores.iter().map(|score| score.weight).collect();
        assert_eq!(weights, [3, 2, 1, 2, 2, 1, 1, 1]);
        assert!(matches!(
            &profile.scores[7].plugin,
            ScorePlugin::NodeResourceTopologyMatch(strategy) if strategy.kind.to_string() == "MostAllocated"
        ));
    }

    #[test]
    fn what_acts_where_the_profile_takes_it_away_is_told() {
        let config = |text: &str| scheduler_config::parse(text).expect("valid").profiles;
        assert_eq!(active_despite_profile(&config(SHIPPED)[0]), [""; 0]);
        let without = SHIPPED.replace(
            "    filter:\n",
            "    preEnqueue: {disabled: [{name: SchedulingGates}]}
    preFilter: {disabled: [{name: NodeAffinity}, {name: NodeResourceTopologyMatch}]}
    preScore: {disabled: [{name: NodeAffinity}]}
    reserve: {disabled: [{name: NodeResourceTopologyMatch}]}
    preBind: {disabled: [{name: '*'}]}
    filter:\n",
        );
        assert_eq!(
            active_despite_profile(&config(&without)[0]),
            [
                "NodeAffinity at PreFilter",
                "NodeResourceTopologyMatch at Reserve",
                "VolumeBinding at PreBind",
                "NodeAffinity at PreScore",
                "SchedulingGates at PreEnqueue",
            ]
        );
        let filtered = without.replace("      - name: NodeAffinity\n", "");
        let reported = active_despite_profile(&config(&filtered)[0]);
        assert!(
            !reported.contains(&"NodeAffinity at PreFilter".to_owned()),
            "{reported:?}"
        );
    }
}
