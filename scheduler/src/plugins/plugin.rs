//! The names of the filters, and sets of them.

use strum::VariantArray as _;

/// A filter plugin. Its name is that of the variant, as in Kubernetes.
///
/// Some of Kubernetes' filters have nothing to do here: `NodeName`, because pods with a node are never queued; `KNIDebug`, which only logs;
/// `DynamicResources`, which the shipped profile disables.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
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
    /// Returns the plugin of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns its Kubernetes name.
    pub fn name(self) -> &'static str {
        self.into()
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
        let all = Plugin::VARIANTS.iter().copied();
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
