//! Allocates memory to containers (kubelet-node.md 7).

use std::collections::BTreeMap;

use topology::hint::{Hint, is_narrower};
use topology::mask::NumaMask;

use super::{Block, Manager, Reusable, key};
use crate::workload::{ContainerKind, ContainerRequest, Workload};

/// Why a container gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No placement exists.
    #[error(
        "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
    )]
    NoDefault,
    /// The default placement is not preferred, although the hint is.
    #[error("[memorymanager] failed to find the default preferred hint")]
    NoPreferredDefault,
    /// The placement is too small, and no wider one fits.
    #[error("[memorymanager] failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    /// The wider placement is not preferred, although the hint is.
    #[error("[memorymanager] failed to find the extended preferred hint")]
    NoPreferredExtension,
    /// The placement would mix single and grouped zones.
    #[error("[memorymanager] preferred hint violates NUMA node allocation")]
    Violation,
}

impl Manager {
    /// Allocates the memory of a container.
    pub fn allocate(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        stored: Hint,
    ) -> Result<(), Error> {
        let Some(request) = self.request(pod, container) else {
            return Ok(());
        };
        let held = self.blocks(&pod.uid, &container.name).to_vec();
        if !held.is_empty() {
            self.update_reuse(&pod.uid, container, &held);
            return Ok(());
        }
        let mask = self.placement(&pod.uid, &request, stored)?;
        let blocks: Vec<Block> = request
            .iter()
            .map(|(kind, size)| Block {
                affinity: mask,
                kind: kind.clone(),
                size: *size,
            })
            .collect();
        for block in &blocks {
            let reusable = self.reusable(&pod.uid, mask, &block.kind);
            self.occupy(mask, &block.kind, block.size.saturating_sub(reusable));
        }
        self.update_reuse(&pod.uid, container, &blocks);
        self.shrink_init_blocks(pod, container, &blocks);
        self.entries
            .entry(pod.uid.clone())
            .or_default()
            .insert(container.name.clone(), blocks);
        Ok(())
    }

    fn placement(
        &self,
        pod: &str,
        request: &BTreeMap<String, u64>,
        stored: Hint,
    ) -> Result<NumaMask, Error> {
        let (mut mask, preferred) = if let Some(mask) = stored.affinity {
            (mask, stored.preferred)
        } else {
            let hint = best(self.generate(pod, request)).ok_or(Error::NoDefault)?;
            if stored.preferred && !hint.preferred {
                return Err(Error::NoPreferredDefault);
            }
            (hint.affinity.unwrap_or_default(), hint.preferred)
        };
        let enough = request
            .iter()
            .all(|(kind, size)| self.sum(mask, kind, |table| table.free) >= *size);
        if !enough {
            let mut wider = self.generate(pod, request);
            wider.retain(|hint| {
                hint.affinity
                    .is_some_and(|affinity| affinity & mask == mask)
            });
            let hint = best(wider).ok_or(Error::NoExtension)?;
            if preferred && !hint.preferred {
                return Err(Error::NoPreferredExtension);
            }
            mask = hint.affinity.unwrap_or_default();
        }
        if self.violates(mask) {
            return Err(Error::Violation);
        }
        Ok(mask)
    }

    pub(super) fn occupy(&mut self, mask: NumaMask, kind: &str, mut amount: u64) {
        for id in mask.iter() {
            let Some(zone) = self.zones.get_mut(&id) else {
                continue;
            };
            zone.assignments += 1;
            zone.cells = mask;
            if let Some(table) = zone.tables.get_mut(kind) {
                let part = table.free.min(amount);
                table.free -= part;
                table.reserved += part;
                amount -= part;
            }
        }
    }

    fn update_reuse(&mut self, pod: &str, container: &ContainerRequest, blocks: &[Block]) {
        let mut reuse = match self.reuse.take() {
            Some((owner, reuse)) if owner == pod => reuse,
            _ => Reusable::new(),
        };
        for block in blocks {
            let place = (key(block.affinity), block.kind.clone());
            let held = reuse.entry(place).or_default();
            *held = if container.kind == ContainerKind::Init {
                block.size.max(*held)
            } else {
                held.saturating_sub(block.size)
            };
        }
        self.reuse = Some((pod.to_owned(), reuse));
    }

    /// Takes what a container reuses away from the blocks of earlier init containers.
    fn shrink_init_blocks(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        blocks: &[Block],
    ) {
        let Some(containers) = self.entries.get_mut(&pod.uid) else {
            return;
        };
        for block in blocks {
            let mut size = block.size;
            for earlier in &pod.containers {
                if earlier.name == container.name {
                    break;
                }
                if earlier.kind != ContainerKind::Init {
                    continue;
                }
                for held in containers.get_mut(&earlier.name).into_iter().flatten() {
                    if held.kind == block.kind && held.affinity == block.affinity && size > 0 {
                        let part = held.size.min(size);
                        held.size -= part;
                        size -= part;
                    }
                }
            }
        }
    }
}

/// Returns the best hint: preferred before not preferred, then the narrowest.
fn best(hints: Vec<Hint>) -> Option<Hint> {
    let mut best: Option<Hint> = None;
    for hint in hints {
        let better = best.is_none_or(|held| match (held.preferred, hint.preferred) {
            (true, false) => false,
            (false, true) => true,
            _ => is_narrower(
                hint.affinity.unwrap_or_default(),
                held.affinity.unwrap_or_default(),
            ),
        });
        if better {
            best = Some(hint);
        }
    }
    best
}
