//! Why a node was ruled out.

use std::borrow::Cow;

use topology::resource::ResourceName;

use super::plugin::Plugin;

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
