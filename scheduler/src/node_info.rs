//! A node as an attempt looks at it.

use std::cell::OnceCell;

use crate::cache::{Cache, View};
use crate::cluster::{Cluster, Node, NodeState};

/// A node with what its pods take and what is known of its zones, which is looked up once, and only if somebody asks.
#[derive(Clone, Debug)]
pub struct NodeInfo<'a> {
    /// As its object tells it.
    pub node: &'a Node,
    /// What its pods take.
    pub state: &'a NodeState,
    cache: &'a Cache,
    view: OnceCell<&'a View>,
}

impl<'a> NodeInfo<'a> {
    /// A node of a cluster.
    pub fn new(node: &'a Node, state: &'a NodeState, cache: &'a Cache) -> Self {
        Self {
            node,
            state,
            cache,
            view: OnceCell::new(),
        }
    }

    /// Nodes whose object is known, by name.
    pub fn all(cluster: &'a Cluster, cache: &'a Cache) -> impl Iterator<Item = Self> {
        cluster
            .nodes()
            .map(move |(node, state)| Self::new(node, state, cache))
    }

    /// One node, if its object is known.
    pub fn named(name: &str, cluster: &'a Cluster, cache: &'a Cache) -> Option<Self> {
        let state = cluster.node(name)?;
        Some(Self::new(state.node.as_ref()?, state, cache))
    }

    /// What is known of its zones.
    pub fn view(&self) -> &'a View {
        self.view.get_or_init(|| self.cache.view(&self.node.name))
    }
}
