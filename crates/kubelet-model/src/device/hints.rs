//! The device manager's hints to the Topology Manager (kubelet-node.md 8).

use std::collections::BTreeMap;

use topology::hint::{Hint, ProviderHints, masks};
use topology::mask::NumaMask;

use super::{Ids, Manager};
use crate::workload::{Amounts, ContainerRequest, Workload};

impl Manager {
    /// Returns the hints for one container.
    pub fn hints(&self, pod: &Workload, container: &ContainerRequest) -> ProviderHints {
        let held = self.held(&pod.uid, &container.name);
        self.hints_for(&container.limits, |resource| {
            let ids = held
                .and_then(|held| held.get(resource))
                .cloned()
                .unwrap_or_default();
            (ids, self.reusable(&pod.uid, resource))
        })
    }

    /// Returns the hints for a whole pod.
    pub fn pod_hints(&self, pod: &Workload) -> ProviderHints {
        let limits = pod.peak(|container| container.limits.clone());
        self.hints_for(&limits, |resource| {
            let ids = self
                .held
                .get(&pod.uid)
                .into_iter()
                .flat_map(BTreeMap::values)
                .filter_map(|resources| resources.get(resource))
                .flatten()
                .cloned()
                .collect();
            (ids, Ids::new())
        })
    }

    fn hints_for(&self, limits: &Amounts, holdings: impl Fn(&str) -> (Ids, Ids)) -> ProviderHints {
        let mut all = ProviderHints::new();
        for (resource, amount) in limits {
            let count = usize::try_from(*amount).unwrap_or_default();
            if !self.is_known(resource) {
                continue;
            }
            if !self.is_aligned(resource) {
                all.insert(resource.clone(), None);
                continue;
            }
            let (held, reusable) = holdings(resource);
            let hints = if held.is_empty() {
                let available = self.available(resource);
                if available.union(&reusable).count() < count {
                    Vec::new()
                } else {
                    self.generate(resource, &available, &reusable, count)
                }
            } else if held.len() == count {
                self.generate(resource, &held, &Ids::new(), count)
            } else {
                Vec::new()
            };
            all.insert(resource.clone(), Some(hints));
        }
        all
    }

    fn generate(&self, resource: &str, available: &Ids, reusable: &Ids, count: usize) -> Vec<Hint> {
        let mut fewest = self.zones.len() as u32;
        let mut found = Vec::new();
        for mask in masks(&self.zones) {
            let touching = |ids: &mut dyn Iterator<Item = &String>| {
                ids.filter(|id| self.touches(resource, id, mask)).count()
            };
            let devices = self.plugins.get(resource);
            if touching(&mut devices.into_iter().flat_map(BTreeMap::keys)) >= count {
                fewest = fewest.min(mask.len());
            }
            let located = reusable
                .iter()
                .filter(|id| self.zones_of(resource, id).is_some())
                .count();
            let reused = touching(&mut reusable.iter());
            if reused < located {
                continue;
            }
            if reused + touching(&mut available.difference(reusable)) >= count {
                found.push(mask);
            }
        }
        found
            .into_iter()
            .map(|mask| Hint::of(mask, mask.len() == fewest))
            .collect()
    }

    fn touches(&self, resource: &str, id: &str, mask: NumaMask) -> bool {
        self.zones_of(resource, id)
            .is_some_and(|zones| zones.iter().any(|zone| mask.contains(*zone)))
    }
}
