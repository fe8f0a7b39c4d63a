//! Why a node was ruled out.

use std::borrow::Cow;
use std::sync::Arc;

use topology::resource::ResourceName;

use super::plugin::Plugin;

/// A node that was ruled out, by name, and why. Both are shared: of thousands of nodes most are ruled out for one reason, again and again.
pub type RuledOut = (Arc<str>, Arc<Rejection>);

/// Iterates over the rejections of nodes, with the number of nodes in a row that share each.
pub fn counted(nodes: &[RuledOut]) -> impl Iterator<Item = (&Rejection, usize)> + Clone {
    let runs = nodes.chunk_by(|(_, one), (_, next)| Arc::ptr_eq(one, next));
    runs.filter_map(|run| Some((&*run.first()?.1, run.len())))
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

    /// Returns its size in bytes, with its texts.
    pub fn size(&self) -> usize {
        let reasons: usize = self.reasons.iter().map(|reason| reason.len()).sum();
        size_of::<Self>()
            + self.reasons.capacity() * size_of::<Cow<'static, str>>()
            + reasons
            + self.detail.as_ref().map_or(0, String::capacity)
    }

    /// Creates a rejection with one reason that no eviction can remove.
    pub fn unresolvable(plugin: Plugin, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            unresolvable: true,
            ..Self::new(plugin, reason)
        }
    }
}
