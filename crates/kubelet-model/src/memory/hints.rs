//! The memory manager's hints to the Topology Manager (kubelet-node.md 7).

use std::collections::{BTreeMap, BTreeSet};

use topology::hint::{Hint, ProviderHints, masks};
use topology::mask::ZoneId;
use topology::request::Qos;

use super::{Block, Manager, memory_of};
use crate::workload::{ContainerKind, ContainerRequest, Workload};

impl Manager {
    /// Returns the hints for one container.
    pub fn hints(&self, pod: &Workload, container: &ContainerRequest) -> ProviderHints {
        let Some(request) = self.request(pod, container) else {
            return ProviderHints::new();
        };
        let blocks = self.blocks(&pod.uid, &container.name);
        if blocks.is_empty() {
            self.provider_hints(&pod.uid, &request)
        } else {
            regenerated(blocks, &request)
        }
    }

    /// Returns the hints for a whole pod.
    pub fn pod_hints(&self, pod: &Workload) -> ProviderHints {
        if !self.is_static || pod.qos != Qos::Guaranteed || pod.has_pod_level_resources {
            return ProviderHints::new();
        }
        let wanted: BTreeSet<String> = pod
            .containers
            .iter()
            .filter(|container| container.kind == ContainerKind::App)
            .flat_map(|container| memory_of(&container.requests).into_keys())
            .collect();
        let total = pod.peak(|container| {
            memory_of(&container.requests)
                .into_iter()
                .map(|(kind, size)| (kind, size as i64))
                .collect()
        });
        let request: BTreeMap<String, u64> = total
            .into_iter()
            .filter(|(kind, _)| wanted.contains(kind))
            .map(|(kind, size)| (kind, size as u64))
            .collect();
        for container in &pod.containers {
            let blocks = self.blocks(&pod.uid, &container.name);
            if !blocks.is_empty() {
                return regenerated(blocks, &request);
            }
        }
        self.provider_hints(&pod.uid, &request)
    }

    fn provider_hints(&self, pod: &str, request: &BTreeMap<String, u64>) -> ProviderHints {
        let hints = self.generate(pod, request);
        if hints.is_empty() {
            return ProviderHints::new();
        }
        request
            .keys()
            .map(|kind| (kind.clone(), Some(hints.clone())))
            .collect()
    }

    pub(super) fn generate(&self, pod: &str, request: &BTreeMap<String, u64>) -> Vec<Hint> {
        let ids: Vec<ZoneId> = self.zones.keys().copied().collect();
        let mut fewest = ids.len() as u32;
        let mut found = Vec::new();
        for mask in masks(&ids) {
            let large = request
                .iter()
                .all(|(kind, size)| self.sum(mask, kind, |table| table.allocatable) >= *size);
            if !large {
                continue;
            }
            fewest = fewest.min(mask.len());
            let grouped = mask.len() == 1
                && mask
                    .lowest()
                    .and_then(|id| self.zones.get(&id))
                    .is_some_and(|zone| zone.cells.len() > 1);
            if grouped || self.violates(mask) {
                continue;
            }
            let free = request.iter().all(|(kind, size)| {
                self.sum(mask, kind, |table| table.free) + self.reusable(pod, mask, kind) >= *size
            });
            if free {
                found.push(mask);
            }
        }
        found
            .into_iter()
            .map(|mask| Hint::of(mask, mask.len() == fewest))
            .collect()
    }
}

/// Returns the hint of the blocks that a container already holds, if they match the request.
fn regenerated(blocks: &[Block], request: &BTreeMap<String, u64>) -> ProviderHints {
    let same = blocks.len() == request.len()
        && blocks
            .iter()
            .all(|block| request.get(&block.kind) == Some(&block.size));
    if !same {
        return ProviderHints::new();
    }
    blocks
        .iter()
        .map(|block| {
            let hint = Hint::of(block.affinity, true);
            (block.kind.clone(), Some(vec![hint]))
        })
        .collect()
}
