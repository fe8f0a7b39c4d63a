//! The names of the filters, and sets of them.

use std::fmt;

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

/// Plugins that something concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugins {
    /// Every plugin, and none in particular.
    All,
    /// The plugins of a set.
    Of(PluginSet),
}

/// A set of plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginSet(u16);

impl PluginSet {
    /// Adds a plugin.
    pub fn insert(&mut self, plugin: Plugin) {
        self.0 |= 1 << plugin as u16;
    }

    /// Returns whether a plugin is in the set.
    pub fn contains(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u16) != 0
    }
}

impl Plugins {
    /// No plugin.
    pub const NONE: Self = Self::Of(PluginSet(0));

    /// Iterates over the plugins that are meant in particular.
    pub fn iter(self) -> impl Iterator<Item = Plugin> {
        let set = match self {
            Self::All => PluginSet::default(),
            Self::Of(set) => set,
        };
        let all = Plugin::ALL.into_iter();
        all.filter(move |plugin| set.contains(*plugin))
    }

    /// Returns whether any plugin is meant by both.
    pub fn intersects(self, other: Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::All, Self::Of(set)) | (Self::Of(set), Self::All) => set.0 != 0,
            (Self::Of(some), Self::Of(others)) => some.0 & others.0 != 0,
        }
    }
}

impl From<Plugin> for Plugins {
    fn from(plugin: Plugin) -> Self {
        [plugin].into_iter().collect()
    }
}

impl FromIterator<Plugin> for Plugins {
    fn from_iter<I: IntoIterator<Item = Plugin>>(plugins: I) -> Self {
        let mut set = PluginSet::default();
        for plugin in plugins {
            set.insert(plugin);
        }
        Self::Of(set)
    }
}
