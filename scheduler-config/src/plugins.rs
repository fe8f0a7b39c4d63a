//! Which plugin runs at which extension point: defaults, merging, expansion of `multiPoint` (scheduler.md 1.3, 7.2).

use serde::{Deserialize, Serialize};

/// An extension point of the scheduling framework.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

use Point::{
    Bind, Filter, Permit, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore,
    QueueSort, Reserve, Score,
};

impl Point {
    /// Every point, in the order in which a pod passes them.
    pub const ALL: [Self; 12] = [
        PreEnqueue, QueueSort, PreFilter, Filter, PostFilter, PreScore, Score, Reserve, Permit,
        PreBind, Bind, PostBind,
    ];

    /// Returns the name of the plugin interface in error messages.
    fn interface(self) -> String {
        format!("{self:?}Plugin")
    }
}

/// A plugin that a configuration may name, and the points that it extends.
struct Known {
    name: &'static str,
    points: &'static [Point],
    /// Weight in the default `multiPoint` list; `None` for plugins that are not in it.
    default_weight: Option<i32>,
}

const fn default_plugin(name: &'static str, weight: i32, points: &'static [Point]) -> Known {
    Known {
        name,
        points,
        default_weight: Some(weight),
    }
}

/// All known plugins. The default ones come in the order of the default `multiPoint` list.
const KNOWN: &[Known] = &[
    default_plugin("SchedulingGates", 0, &[PreEnqueue]),
    default_plugin("PrioritySort", 0, &[QueueSort]),
    default_plugin("NodeUnschedulable", 0, &[Filter]),
    default_plugin("NodeName", 0, &[Filter]),
    default_plugin("TaintToleration", 3, &[Filter, PreScore, Score]),
    default_plugin("NodeAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    default_plugin("NodePorts", 0, &[PreFilter, Filter]),
    default_plugin("NodeResourcesFit", 1, &[PreFilter, Filter, PreScore, Score]),
    default_plugin("VolumeRestrictions", 0, &[PreFilter, Filter]),
    default_plugin("NodeVolumeLimits", 0, &[PreFilter, Filter]),
    default_plugin(
        "VolumeBinding",
        0,
        &[PreFilter, Filter, PreScore, Score, Reserve, PreBind],
    ),
    default_plugin("VolumeZone", 0, &[PreFilter, Filter]),
    default_plugin(
        "PodTopologySpread",
        2,
        &[PreFilter, Filter, PreScore, Score],
    ),
    default_plugin("InterPodAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    default_plugin(
        "DynamicResources",
        2,
        &[
            PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind,
        ],
    ),
    default_plugin("DefaultPreemption", 0, &[PreEnqueue, PostFilter]),
    default_plugin("NodeResourcesBalancedAllocation", 1, &[PreScore, Score]),
    default_plugin("ImageLocality", 1, &[Score]),
    default_plugin("DefaultBinder", 0, &[Bind]),
    Known {
        name: crate::args::PLUGIN,
        points: &[PreFilter, Filter, Score, Reserve, PostBind],
        default_weight: None,
    },
    // part of the fork that the Go operator deploys; only logs
    Known {
        name: "KNIDebug",
        points: &[Filter],
        default_weight: None,
    },
];

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|plugin| plugin.name == name)
}

/// Returns whether a plugin of that name exists and extends that point.
pub fn extends(name: &str, point: Point) -> bool {
    known(name).is_some_and(|plugin| plugin.points.contains(&point))
}

/// A plugin at a point, with the weight of its score.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Plugin {
    /// Name.
    pub name: String,
    /// Weight of its score; 0 means 1.
    #[serde(default)]
    pub weight: i32,
}

/// One list of a profile as written: what it adds to the defaults and what it removes.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct PluginSet {
    /// Plugins to add.
    pub enabled: Vec<Plugin>,
    /// Plugins to remove; `*` removes all.
    pub disabled: Vec<Plugin>,
}

impl PluginSet {
    fn disables(&self, name: &str) -> bool {
        self.disabled
            .iter()
            .any(|plugin| plugin.name == name || plugin.name == "*")
    }

    fn disables_all(&self) -> bool {
        self.disabled.iter().any(|plugin| plugin.name == "*")
    }
}

/// The lists of a profile as written.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(missing_docs, reason = "one field for each extension point")]
pub struct Plugins {
    pub multi_point: PluginSet,
    pub pre_enqueue: PluginSet,
    pub queue_sort: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pub reserve: PluginSet,
    pub permit: PluginSet,
    pub pre_bind: PluginSet,
    pub bind: PluginSet,
    pub post_bind: PluginSet,
}

impl Plugins {
    fn at(&self, point: Point) -> &PluginSet {
        match point {
            Point::PreEnqueue => &self.pre_enqueue,
            Point::QueueSort => &self.queue_sort,
            Point::PreFilter => &self.pre_filter,
            Point::Filter => &self.filter,
            Point::PostFilter => &self.post_filter,
            Point::PreScore => &self.pre_score,
            Point::Score => &self.score,
            Point::Reserve => &self.reserve,
            Point::Permit => &self.permit,
            Point::PreBind => &self.pre_bind,
            Point::Bind => &self.bind,
            Point::PostBind => &self.post_bind,
        }
    }
}

/// Why the lists of a profile are refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// No plugin of that name exists.
    #[error("{interface} {name:?} does not exist")]
    Unknown {
        /// Interface of the list that names it.
        interface: String,
        /// The name.
        name: String,
    },
    /// The plugin exists but does not extend that point.
    #[error("plugin {name:?} does not extend {interface} plugin")]
    NotAtPoint {
        /// Interface of the list that names it.
        interface: String,
        /// The name.
        name: String,
    },
    /// The plugin is listed twice.
    #[error("plugin {name:?} already registered as {interface:?}")]
    Repeated {
        /// Interface of the list that names it.
        interface: String,
        /// The name.
        name: String,
    },
}

/// Returns the plugins that run at `point` for a profile with these lists, in order, with weights of at least 1.
///
/// # Errors
/// When a list names a plugin that does not exist, does not extend the point, or is listed twice.
pub fn resolve(plugins: &Plugins, point: Point) -> Result<Vec<Plugin>, Error> {
    let multi_point = merge(&plugins.multi_point);
    for plugin in &multi_point {
        if known(&plugin.name).is_none() {
            return Err(Error::Unknown {
                interface: "MultiPointPlugin".to_owned(),
                name: plugin.name.clone(),
            });
        }
    }
    let set = plugins.at(point);
    let interface = || point.interface();
    let mut listed: Vec<&Plugin> = Vec::new();
    for plugin in &set.enabled {
        let name = plugin.name.clone();
        let Some(found) = known(&plugin.name) else {
            return Err(Error::Unknown {
                interface: interface(),
                name,
            });
        };
        if !found.points.contains(&point) {
            return Err(Error::NotAtPoint {
                interface: interface(),
                name,
            });
        }
        if listed.iter().any(|other| other.name == plugin.name) {
            return Err(Error::Repeated {
                interface: interface(),
                name,
            });
        }
        listed.push(plugin);
    }
    let expanded: Vec<&Plugin> = if set.disables_all() {
        Vec::new()
    } else {
        multi_point
            .iter()
            .filter(|plugin| extends(&plugin.name, point))
            .collect()
    };
    let in_expanded = |plugin: &Plugin| expanded.iter().any(|other| other.name == plugin.name);
    let is_listed = |plugin: &Plugin| listed.iter().any(|other| other.name == plugin.name);
    let overriding = listed.iter().filter(|plugin| in_expanded(plugin));
    let remaining = expanded
        .iter()
        .filter(|plugin| !is_listed(plugin) && !set.disables(&plugin.name));
    let additional = listed.iter().filter(|plugin| !in_expanded(plugin));
    Ok(overriding
        .chain(remaining)
        .chain(additional)
        .map(|plugin| Plugin {
            name: plugin.name.clone(),
            weight: plugin.weight.max(1),
        })
        .collect())
}

/// Returns the default `multiPoint` list after a profile's removals and additions.
fn merge(custom: &PluginSet) -> Vec<Plugin> {
    let mut merged: Vec<Plugin> = Vec::new();
    if !custom.disables_all() {
        for plugin in KNOWN {
            let Some(weight) = plugin.default_weight else {
                continue;
            };
            if custom.disables(plugin.name) {
                continue;
            }
            let replaced = custom
                .enabled
                .iter()
                .find(|other| other.name == plugin.name);
            merged.push(replaced.cloned().unwrap_or_else(|| Plugin {
                name: plugin.name.to_owned(),
                weight,
            }));
        }
    }
    for plugin in &custom.enabled {
        if !merged.iter().any(|other| other.name == plugin.name) {
            merged.push(plugin.clone());
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plugins: &[Plugin]) -> Vec<&str> {
        plugins.iter().map(|plugin| plugin.name.as_str()).collect()
    }

    fn set(enabled: &[(&str, i32)], disabled: &[&str]) -> PluginSet {
        let plugin = |name: &str, weight| Plugin {
            name: name.to_owned(),
            weight,
        };
        PluginSet {
            enabled: enabled
                .iter()
                .map(|(name, weight)| plugin(name, *weight))
                .collect(),
            disabled: disabled.iter().map(|name| plugin(name, 0)).collect(),
        }
    }

    #[test]
    fn without_lists_the_defaults_run_in_their_order() {
        let filter = resolve(&Plugins::default(), Filter).unwrap();
        assert_eq!(
            names(&filter),
            [
                "NodeUnschedulable",
                "NodeName",
                "TaintToleration",
                "NodeAffinity",
                "NodePorts",
                "NodeResourcesFit",
                "VolumeRestrictions",
                "NodeVolumeLimits",
                "VolumeBinding",
                "VolumeZone",
                "PodTopologySpread",
                "InterPodAffinity",
                "DynamicResources",
            ]
        );
        let score = resolve(&Plugins::default(), Score).unwrap();
        let weights: Vec<(&str, i32)> = score.iter().map(|p| (p.name.as_str(), p.weight)).collect();
        assert!(weights.contains(&("TaintToleration", 3)));
        assert!(weights.contains(&("ImageLocality", 1)));
    }

    #[test]
    fn a_plugin_of_a_profile_runs_last_unless_the_point_lists_it() {
        let plugins = Plugins {
            multi_point: set(&[("NodeResourceTopologyMatch", 0)], &["DynamicResources"]),
            ..Plugins::default()
        };
        let filter = resolve(&plugins, Filter).unwrap();
        assert_eq!(names(&filter).last(), Some(&"NodeResourceTopologyMatch"));
        assert!(!names(&filter).contains(&"DynamicResources"));
        assert_eq!(
            names(&resolve(&plugins, Reserve).unwrap()),
            ["VolumeBinding", "NodeResourceTopologyMatch"]
        );
    }

    #[test]
    fn a_point_that_disables_all_runs_what_it_lists_in_that_order() {
        let plugins = Plugins {
            multi_point: set(&[("NodeResourceTopologyMatch", 0)], &[]),
            filter: set(
                &[
                    ("KNIDebug", 0),
                    ("NodeResourceTopologyMatch", 0),
                    ("NodeName", 0),
                ],
                &["*"],
            ),
            ..Plugins::default()
        };
        assert_eq!(
            names(&resolve(&plugins, Filter).unwrap()),
            ["KNIDebug", "NodeResourceTopologyMatch", "NodeName"]
        );
    }

    #[test]
    fn listed_plugins_of_multi_point_come_first_and_bring_their_weight() {
        let plugins = Plugins {
            score: set(&[("ImageLocality", 7)], &["NodeAffinity"]),
            ..Plugins::default()
        };
        let score = resolve(&plugins, Score).unwrap();
        assert_eq!(
            score[0],
            Plugin {
                name: "ImageLocality".to_owned(),
                weight: 7
            }
        );
        assert!(!names(&score).contains(&"NodeAffinity"));
    }

    #[test]
    fn wrong_names_are_refused_as_kube_scheduler_words_it() {
        let at_filter = |name| Plugins {
            filter: set(&[(name, 0)], &[]),
            ..Plugins::default()
        };
        assert_eq!(
            resolve(&at_filter("NoSuch"), Filter)
                .unwrap_err()
                .to_string(),
            "FilterPlugin \"NoSuch\" does not exist"
        );
        assert_eq!(
            resolve(&at_filter("ImageLocality"), Filter)
                .unwrap_err()
                .to_string(),
            "plugin \"ImageLocality\" does not extend FilterPlugin plugin"
        );
        let twice = Plugins {
            filter: set(&[("NodeName", 0), ("NodeName", 0)], &[]),
            ..Plugins::default()
        };
        assert_eq!(
            resolve(&twice, Filter).unwrap_err().to_string(),
            "plugin \"NodeName\" already registered as \"FilterPlugin\""
        );
    }
}
