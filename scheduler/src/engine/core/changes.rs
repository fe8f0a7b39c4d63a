//! Changes of watched objects, and which waiting pods they wake.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{Core, VolumeWatches, needs_objects};
use crate::engine::effect::Effect;
use crate::framework::queue::Cause;
use crate::plugins::plugin::{Plugin, Plugins};
use crate::plugins::volumes;
use crate::state::node::Node;
use crate::state::pod::{Phase, Pod, PodKey};
use crate::state::storage;
use crate::watch::follow::Change;
use crate::watch::kinds::{Kind, Object};

impl Core {
    pub(super) fn change(&mut self, kind: Kind, change: Change<(PodKey, Object), PodKey>) {
        if matches!(kind, Kind::Storage(_)) {
            self.volumes_changed = true;
        }
        match change {
            Change::Apply((key, object)) => self.apply(key, object),
            Change::Delete(key) => self.delete(kind, &key),
            Change::Synced(keys) => {
                self.retain(kind, &keys);
                self.unlisted.remove(&kind);
            }
        }
    }

    /// Takes note that objects of a kind may not be listed.
    pub(super) fn refuse(&mut self, kind: Kind) {
        if let Kind::Storage(of_volumes) = kind
            && self.cluster.storage_mut().refuse(of_volumes)
        {
            tracing::warn!(
                kind = kind.plural(),
                "This kind cannot be listed: pods with claims are not placed until it can, all other pods are"
            );
            self.wake_for_volumes();
        }
    }

    /// Adds or updates an object.
    fn apply(&mut self, key: PodKey, object: Object) {
        match object {
            Object::Node(node) => self.apply_node(*node),
            Object::Topology(topology) => {
                self.metrics.topology_update();
                let changed = self.cache.apply_nrt(&key.name, *topology);
                self.wake_if(
                    changed,
                    Plugin::NodeResourceTopologyMatch,
                    Cause::TopologyUpdated,
                );
            }
            Object::Pod(pod) => self.apply_pod(*pod),
            Object::Budget(budget) => self.cluster.apply_budget(key, budget),
            Object::Namespace(labels) => self.cluster.apply_namespace(key.name, labels),
            Object::Group(kind, Some(selector)) => self.cluster.apply_group(kind, key, selector),
            Object::Group(kind, None) => self.cluster.delete_group(kind, &key),
            Object::Storage(object) => {
                if self.cluster.storage_mut().apply(key, object) {
                    self.wake_for_volumes();
                }
            }
        }
    }

    /// Removes an object.
    fn delete(&mut self, kind: Kind, key: &PodKey) {
        match kind {
            Kind::Node => self.cluster.delete_node(&key.name),
            Kind::NodeResourceTopology => self.delete_topology(&key.name),
            Kind::Pod => self.delete_pod(key),
            Kind::PodDisruptionBudget => self.cluster.delete_budget(key),
            Kind::Namespace => self.cluster.delete_namespace(&key.name),
            Kind::Group(kind) => self.cluster.delete_group(kind, key),
            Kind::Storage(kind) => {
                self.cluster.storage_mut().delete(kind, key);
                if kind == storage::Kind::VolumeAttachment {
                    self.wake_for_volumes();
                }
            }
        }
    }

    /// Removes the objects of a kind that are not among the listed ones.
    fn retain(&mut self, kind: Kind, keys: &BTreeSet<PodKey>) {
        let is_gone = |name: &str| !keys.contains(&PodKey::unscoped(name));
        match kind {
            Kind::Node => {
                let names = self.cluster.nodes().map(|(node, _)| &node.name);
                let gone: Vec<String> = names.filter(|name| is_gone(name)).cloned().collect();
                for name in &gone {
                    self.cluster.delete_node(name);
                }
            }
            Kind::NodeResourceTopology => {
                let names = self.cache.nodes_with_nrt();
                let gone: BTreeSet<String> = names
                    .filter(|name| is_gone(name))
                    .map(str::to_owned)
                    .collect();
                for name in &gone {
                    self.delete_topology(name);
                }
            }
            Kind::Pod => {
                let known = self.cluster.pods().map(|pod| &pod.key);
                let gone: Vec<PodKey> = known.filter(|key| !keys.contains(key)).cloned().collect();
                for key in &gone {
                    self.delete_pod(key);
                }
            }
            Kind::PodDisruptionBudget => self.cluster.retain_budgets(keys),
            Kind::Namespace => self.cluster.retain_namespaces(|name| !is_gone(name)),
            Kind::Group(kind) => self.cluster.retain_groups(kind, keys),
            Kind::Storage(kind) => {
                self.cluster.storage_mut().retain(kind, keys);
                self.wake_for_volumes();
            }
        }
    }

    fn apply_node(&mut self, node: Node) {
        let known = self.cluster.node(&node.name);
        let cause = match known.and_then(|state| state.node.as_ref()) {
            Some(_) => Cause::NodeUpdated,
            None => Cause::NodeAdded,
        };
        if self.cluster.apply_node(node) {
            self.queue
                .wake_rejected_by(Plugins::All, cause, Instant::now());
        }
    }

    fn delete_topology(&mut self, name: &str) {
        let changed = self.cache.delete_nrt(name);
        self.wake_if(
            changed,
            Plugin::NodeResourceTopologyMatch,
            Cause::TopologyUpdated,
        );
    }

    fn apply_pod(&mut self, pod: Pod) {
        let key = pod.key.clone();
        let before = self.cluster.pod(&key);
        if before.is_some_and(|before| before.uid != pod.uid) {
            self.delete_pod(&key);
        }
        let changed_itself = self.cluster.pod(&key).is_some_and(|before| {
            before.request != pod.request
                || before.labels != pod.labels
                || before.constraints.tolerations != pod.constraints.tolerations
                || before.constraints.node_selector != pod.constraints.node_selector
        });
        let effect = self.cluster.apply_pod(pod);
        let Some(pod) = self.cluster.pod(&key) else {
            return;
        };
        let topology_changed = pod
            .node
            .as_deref()
            .is_some_and(|node| self.cache.apply_pod(node, pod));
        self.queue_pod(&key, changed_itself);
        let cause = if effect.placed {
            Cause::PodPlaced
        } else {
            Cause::PodGone
        };
        self.wake_if(topology_changed, Plugin::NodeResourceTopologyMatch, cause);
        if effect.freed {
            self.freed();
        } else if effect.placed {
            self.wake_if(true, Plugin::InterPodAffinity, cause);
            self.wake_if(true, Plugin::PodTopologySpread, cause);
        }
    }

    /// Queues a pod that waits for us, and takes any other one out of the queue.
    fn queue_pod(&mut self, key: &PodKey, changed_itself: bool) {
        let Some(pod) = self.cluster.pod(key) else {
            return;
        };
        let mut profiles = self.profiles.iter();
        let ours = profiles.any(|profile| profile.name == pod.scheduler);
        let waits = pod.node.is_none() && pod.phase != Phase::Terminal && !pod.deleting;
        if ours && waits {
            if needs_objects(pod) && self.volume_watches == VolumeWatches::OnDemand {
                self.volume_watches = VolumeWatches::Started;
                self.effects.push(Effect::WatchVolumes);
            }
            let gated = !pod.constraints.gates.is_empty();
            let now = Instant::now();
            self.queue.upsert(key, &pod.uid, pod.priority, gated, now);
            if changed_itself {
                self.queue.wake(key, Cause::PodUpdated, now);
            }
        } else if !self.cluster.is_assumed(key) {
            self.queue.remove(key);
        }
    }

    fn delete_pod(&mut self, key: &PodKey) {
        self.queue.remove(key);
        let Some(pod) = self.cluster.delete_pod(key) else {
            return;
        };
        if self.waiting.remove(&pod.uid).is_some() {
            self.release_volumes(&pod);
        }
        let Some(node) = &pod.node else { return };
        let changed = self.cache.delete_pod(node, key, Instant::now());
        self.wake_if(changed, Plugin::NodeResourceTopologyMatch, Cause::PodGone);
        self.freed();
    }

    /// Wakes the pods that waited for room, ports, volumes or distance, after a pod left a node.
    pub(super) fn freed(&mut self) {
        let plugins = [
            Plugin::NodeResourcesFit,
            Plugin::NodePorts,
            Plugin::VolumeRestrictions,
            Plugin::NodeVolumeLimits,
            Plugin::PodTopologySpread,
            Plugin::InterPodAffinity,
        ];
        let plugins = plugins.into_iter().collect();
        self.queue
            .wake_rejected_by(plugins, Cause::PodGone, Instant::now());
    }

    fn wake_for_volumes(&mut self) {
        let plugins = volumes::PLUGINS.into_iter().collect();
        self.queue
            .wake_rejected_by(plugins, Cause::VolumeUpdated, Instant::now());
    }
}
