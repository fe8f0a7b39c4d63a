//! Results about each node for one pod, kept as long as they hold for the next pod.
//!
//! Many pods have the same shape: the replicas of a workload. Between two of them hardly any node changes, but examining nodes costs more
//! than any other part of placing a pod in a large cluster. So the verdicts of filters, and the scores that need no comparison, are kept
//! until the node, its zones or the shape change. Results that depend on pods other than those of the node are never kept
//! ([`is_pod_specific`](crate::framework::extension_points::Attempt::is_pod_specific)). kube-scheduler has a more limited form of this (KEP-5598, opportunistic
//! batching).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeAffinity, Toleration};
use topology::request::Pod as Request;
use topology::resource::Resources;

use crate::framework::profile::Profile;
use crate::numa::cache::Cache;
use crate::plugins::node_info::NodeInfo;
use crate::plugins::rejection::{Rejection, RuledOut};
use crate::state::cluster::Cluster;
use crate::state::images::ImageId;
use crate::state::node::{Node, NodeState};
use crate::state::pod::{HostPort, Pod, SchedulingConstraints};

/// Maximum number of remembered shapes: they are looked through for each pod.
const SHAPES: usize = 256;
/// Maximum size of what is remembered of other shapes than the current one, in bytes. Pods of many shapes that fit nowhere come back again and
/// again, and without a place here each of them costs a look at every node each time.
const SIZE: usize = 16 << 20;
/// Number of rejections that a new one is compared with. The nodes of a cluster are of few kinds, so most rejections are told before.
const RECENT: usize = 8;

/// Results about the nodes. It belongs to one [`Cluster`] and one [`Cache`] and must be the only consumer of their changes.
#[derive(Debug, Default)]
pub struct Memo {
    is_built: bool,
    /// Nodes whose object is known, by name.
    names: Vec<Arc<str>>,
    /// Results for the current pod.
    known: Known,
    /// Results for other shapes, the latest last. They have at most [`SIZE`] bytes when the next one is added.
    others: Vec<Known>,
}

/// The verdict of the filters on a node, if known.
type NodeVerdict = Option<Result<(), Arc<Rejection>>>;

/// Results for pods of a shape.
#[derive(Debug, Default)]
struct Known {
    /// `None` if the results are for a single pod.
    shape: Option<Shape>,
    verdicts: Vec<NodeVerdict>,
    /// The scores of each plugin for each node alone, valid where the filters accept the pod. Those of a pod that fits nowhere are empty.
    scores: Vec<Vec<i64>>,
    /// The latest rejections, which others share that are equal.
    recent: VecDeque<Arc<Rejection>>,
}

impl Known {
    fn applies_to(&self, profile: &Profile, pod: &Pod) -> bool {
        let shape = self.shape.as_ref();
        shape.is_some_and(|shape| shape.applies_to(profile, pod))
    }

    /// Drops all results and resizes to this many nodes and score plugins.
    fn clear(&mut self, nodes: usize, plugins: usize) {
        self.verdicts.clear();
        self.verdicts.resize(nodes, None);
        self.scores.clear();
        self.scores.resize_with(plugins, Vec::default);
        self.recent.clear();
    }

    /// Returns a rejection as it is kept: nodes that are ruled out for one reason share it.
    fn shared(&mut self, rejection: Rejection) -> Arc<Rejection> {
        if let Some(known) = self.recent.iter().find(|known| ***known == rejection) {
            return Arc::clone(known);
        }
        let new = Arc::new(rejection);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::clone(&new));
        new
    }

    /// Returns the number of bytes of the results, or somewhat more: a rejection counts again after another one.
    fn size(&self) -> usize {
        let runs = self.verdicts.chunk_by(|one, next| match (one, next) {
            (Some(Err(one)), Some(Err(next))) => Arc::ptr_eq(one, next),
            _ => false,
        });
        let rejections = runs.filter_map(|run| match run.first() {
            Some(Some(Err(rejection))) => Some(rejection.size()),
            _ => None,
        });
        let scores: usize = self.scores.iter().map(Vec::len).sum();
        rejections.sum::<usize>()
            + self.verdicts.len() * size_of::<NodeVerdict>()
            + scores * size_of::<i64>()
    }
}

impl Memo {
    /// Drops the results for everything that changed since the last call.
    pub fn update(&mut self, cluster: &mut Cluster, cache: &mut Cache) {
        let (nodes, zones) = (cluster.take_touched(), cache.take_touched());
        if !self.is_built || nodes.is_everything() {
            self.is_built = true;
            self.names.clear();
            let names = cluster.nodes().map(|(node, _)| Arc::from(&*node.name));
            self.names.extend(names);
            self.others.clear();
            let plugins = self.known.scores.len();
            self.known.clear(self.names.len(), plugins);
            return;
        }
        let changed = nodes.names().chain(zones.names());
        let changed: Vec<usize> = changed
            .filter_map(|name| {
                self.names
                    .binary_search_by(|known| (**known).cmp(name))
                    .ok()
            })
            .collect();
        for known in self.others.iter_mut().chain([&mut self.known]) {
            if zones.is_everything() {
                known.verdicts.fill(None);
                continue;
            }
            for index in &changed {
                known.verdicts[*index] = None;
            }
        }
    }

    /// Switches to a pod. Results that are `pod_specific` are not shared. Returns whether any results may be known.
    pub fn switch_to(&mut self, profile: &Profile, pod: &Pod, pod_specific: bool) -> bool {
        if !pod_specific && self.known.applies_to(profile, pod) {
            return true;
        }
        let remembered = if pod_specific {
            None
        } else {
            let mut others = self.others.iter();
            others.position(|known| known.applies_to(profile, pod))
        };
        let next = match remembered {
            Some(index) => self.others.remove(index),
            None if self.known.shape.is_none() => std::mem::take(&mut self.known),
            None => Known::default(),
        };
        let before = std::mem::replace(&mut self.known, next);
        if before.shape.is_some() {
            self.others.push(before);
        }
        if remembered.is_none() {
            self.make_room();
            self.known.shape = (!pod_specific).then(|| Shape::new(profile, pod));
            self.known.clear(self.names.len(), profile.scores.len());
        }
        remembered.is_some()
    }

    /// Forgets the shapes that were used longest ago, as far as there are too many or too large ones.
    fn make_room(&mut self) {
        let mut size = self.size();
        let mut forgotten = 0;
        for known in &self.others {
            if self.others.len() - forgotten < SHAPES && size <= SIZE {
                break;
            }
            size -= known.size();
            forgotten += 1;
        }
        self.others.drain(..forgotten);
    }

    /// Returns the number of bytes of the results for other shapes than the current one.
    fn size(&self) -> usize {
        self.others.iter().map(Known::size).sum()
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the name of a node.
    pub fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// Returns whether the filters accept the pod on a node. The node is examined only if the result is unknown.
    pub fn is_feasible<'a>(
        &mut self,
        index: usize,
        find_node: impl FnOnce(&str) -> Option<NodeInfo<'a>>,
        examine: impl FnOnce(&NodeInfo<'a>) -> Result<(), Rejection>,
        score: impl Fn(usize, &NodeInfo<'a>) -> i64,
    ) -> bool {
        let known = &mut self.known;
        if let Some(verdict) = &known.verdicts[index] {
            return verdict.is_ok();
        }
        let Some(info) = find_node(&self.names[index]) else {
            return false;
        };
        let verdict = examine(&info).map_err(|rejection| known.shared(rejection));
        let feasible = verdict.is_ok();
        if feasible {
            for (plugin, scores) in known.scores.iter_mut().enumerate() {
                scores.resize(known.verdicts.len(), 0);
                scores[index] = score(plugin, &info);
            }
        }
        known.verdicts[index] = Some(verdict);
        feasible
    }

    /// Returns the total score of each of these nodes, in order.
    pub fn totals(
        &self,
        profile: &Profile,
        pod: &Pod,
        feasible: &[usize],
        cluster: &Cluster,
    ) -> Vec<i64> {
        let find_node = |index: &usize| -> Option<(&Node, &NodeState)> {
            let state = cluster.node(&self.names[*index])?;
            Some((state.node.as_ref()?, state))
        };
        let mut totals = vec![0; feasible.len()];
        for (scores, weighted) in self.known.scores.iter().zip(&profile.scores) {
            let raw = feasible.iter().map(|index| scores[*index]).collect();
            let nodes = feasible.iter().filter_map(find_node);
            let scores = weighted.plugin.normalized_scores(pod, nodes, cluster, raw);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += score * weighted.weight;
            }
        }
        totals
    }

    /// Returns every node that is known to be ruled out, by name.
    pub fn rejections(&self) -> Vec<RuledOut> {
        let nodes = self.names.iter().zip(&self.known.verdicts);
        nodes
            .filter_map(|(name, verdict)| match verdict {
                Some(Err(rejection)) => Some((Arc::clone(name), Arc::clone(rejection))),
                _ => None,
            })
            .collect()
    }
}

/// Everything that filters and scores read of a pod, except what [`is_pod_specific`](crate::framework::extension_points::Attempt::is_pod_specific) covers and
/// what only comparing scores read.
#[derive(Debug)]
struct Shape {
    profile: String,
    request: Arc<Request>,
    node_request: Arc<Resources>,
    nonzero_request: (i64, i64),
    host_ports: Vec<HostPort>,
    node_selector: BTreeMap<String, String>,
    node_affinity: Option<NodeAffinity>,
    tolerations: Vec<Toleration>,
    images: Vec<ImageId>,
}

impl Shape {
    fn new(profile: &Profile, pod: &Pod) -> Self {
        Self {
            profile: profile.name.clone(),
            request: Arc::clone(&pod.request),
            node_request: Arc::clone(&pod.node_request),
            nonzero_request: pod.nonzero_request,
            host_ports: pod.host_ports.clone(),
            node_selector: pod.constraints.node_selector.clone(),
            node_affinity: pod.constraints.node_affinity.clone(),
            tolerations: pod.constraints.tolerations.clone(),
            images: pod.constraints.images.clone(),
        }
    }

    fn applies_to(&self, profile: &Profile, pod: &Pod) -> bool {
        // every field is named, so that a new field has to be considered here
        let Pod {
            // identity and status
            key: _,
            uid: _,
            resource_version: _,
            scheduler: _,
            node: _,
            phase: _,
            deleting: _,
            nominated: _,
            started: _,
            is_victim: _,
            created: _,
            hash: _,
            // which pods it displaces
            priority: _,
            preempts: _,
            // volumes make results specific to the pod; so do relations to other pods, unless only comparing scores read them
            volumes: _,
            labels: _,
            anti_affinity: _,
            request,
            node_request,
            nonzero_request,
            host_ports,
            constraints,
        } = pod;
        let SchedulingConstraints {
            gates: _,
            condition: _,
            affinity: _,
            preferences: _,
            spread: _,
            controller: _,
            node_selector,
            node_affinity,
            tolerations,
            images,
        } = constraints;
        // two numbers tell most shapes apart
        self.nonzero_request == *nonzero_request
            && self.profile == profile.name
            && self.request == *request
            && self.node_request == *node_request
            && self.host_ports == *host_ports
            && self.node_selector == *node_selector
            && self.node_affinity == *node_affinity
            && self.tolerations == *tolerations
            && self.images == *images
    }
}

#[cfg(test)]
mod tests;
