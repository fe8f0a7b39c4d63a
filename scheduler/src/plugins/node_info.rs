//! A node as an attempt sees it.

use std::cell::OnceCell;

use crate::numa::cache::Cache;
use crate::numa::view::View;
use crate::state::cluster::Cluster;
use crate::state::node::{Node, NodeState};

/// A node with what its pods use and what is known of its zones. The zones are looked up at most once, when first needed.
#[derive(Clone, Debug)]
pub struct NodeInfo<'a> {
    /// The node object.
    pub node: &'a Node,
    /// What its pods use.
    pub state: &'a NodeState,
    cache: &'a Cache,
    view: OnceCell<&'a View>,
}

impl<'a> NodeInfo<'a> {
    /// Creates the info of a node of a cluster.
    pub fn new(node: &'a Node, state: &'a NodeState, cache: &'a Cache) -> Self {
        Self {
            node,
            state,
            cache,
            view: OnceCell::new(),
        }
    }

    /// Iterates over the nodes whose object is known, by name.
    pub fn all(cluster: &'a Cluster, cache: &'a Cache) -> impl Iterator<Item = Self> {
        cluster
            .nodes()
            .map(move |(node, state)| Self::new(node, state, cache))
    }

    /// Returns a node by name, if its object is known.
    pub fn named(name: &str, cluster: &'a Cluster, cache: &'a Cache) -> Option<Self> {
        let state = cluster.node(name)?;
        Some(Self::new(state.node.as_ref()?, state, cache))
    }

    /// Returns what is known of its zones.
    pub fn view(&self) -> &'a View {
        self.view.get_or_init(|| self.cache.view(&self.node.name))
    }
}
