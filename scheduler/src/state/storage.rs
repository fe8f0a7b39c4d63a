//! Volumes, claims and the other objects that decide where storage is available: what the watches reported, and which volumes and claims
//! this scheduler has reserved for pods whose binding is in progress.
//!
//! Objects keep only the fields that the volume plugins read. Pods without volumes of these kinds do not use this module.
//!
//! In reading order:
//! - this file: all known objects.
//! - `kinds`: the kinds; `volume`, `claim`, `drivers`: what is kept of each object; `fields`: what several of them have.
//! - `reservation`: what is reserved for pods whose binding is in progress.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::pod::PodKey;

mod claim;
mod drivers;
mod fields;
mod kinds;
mod reservation;
mod volume;

pub use claim::{Claim, ClaimState, SELECTED_NODE};
pub use drivers::{Attachment, Capacity, Class, CsiNode, Driver};
pub use fields::version;
pub use kinds::{Kind, Object, Stored, read};
pub use reservation::{Progress, Reservation};
pub use volume::{BOUND_BY_CONTROLLER, Owner, Volume, driver_of, is_counted, is_migrated};

/// Why the objects of a kind are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unlisted {
    /// Their first list may still come.
    Awaited,
    /// They may not be listed.
    Refused,
}

/// All known storage objects.
#[derive(Debug, Default)]
pub struct Storage {
    volumes: BTreeMap<String, Volume>,
    claims: BTreeMap<PodKey, Claim>,
    classes: BTreeMap<String, Class>,
    nodes: BTreeMap<String, CsiNode>,
    drivers: BTreeMap<String, Driver>,
    capacities: BTreeMap<PodKey, Capacity>,
    attachments: BTreeMap<String, Attachment>,
    /// Names of the attachments of a node.
    attached: BTreeMap<String, BTreeSet<String>>,
    /// Kinds whose objects are not known.
    unlisted: BTreeMap<Kind, Unlisted>,
    /// By uid of the pod.
    reservations: BTreeMap<String, Reservation>,
}

impl Storage {
    /// Creates a storage in which every kind is unknown until [`Storage::retain`] says that it is complete.
    pub fn unknown() -> Self {
        Self {
            unlisted: Kind::ALL.map(|kind| (kind, Unlisted::Awaited)).into(),
            ..Self::default()
        }
    }

    /// Iterates over the kinds whose objects are not known.
    pub fn unknown_kinds(&self) -> impl Iterator<Item = Kind> {
        self.unlisted.keys().copied()
    }

    /// Returns whether the first list of any kind may still come.
    pub fn awaits_lists(&self) -> bool {
        let mut unlisted = self.unlisted.values();
        unlisted.any(|reason| *reason == Unlisted::Awaited)
    }

    /// Takes note that the objects of a kind may not be listed. Returns whether their first list was awaited.
    pub fn refuse(&mut self, kind: Kind) -> bool {
        match self.unlisted.get_mut(&kind) {
            Some(reason) => std::mem::replace(reason, Unlisted::Refused) == Unlisted::Awaited,
            None => false,
        }
    }

    /// Returns a volume by name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.get(name)
    }

    /// Iterates over all volumes, by name.
    pub fn volumes(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values()
    }

    /// Returns a claim.
    pub fn claim(&self, key: &PodKey) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// Returns a class by name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Returns the CSINode of a node.
    pub fn node(&self, name: &str) -> Option<&CsiNode> {
        self.nodes.get(name)
    }

    /// Iterates over the attachments of a node.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &Attachment> {
        let names = self.attached.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get(name))
    }

    /// Returns the capacities for volumes of a class; `None` if its driver does not publish them.
    pub fn capacities(&self, class: &str) -> Option<impl Iterator<Item = &Capacity>> {
        let provisioner = &self.classes.get(class)?.provisioner;
        let driver = self.drivers.get(provisioner)?;
        driver.publishes_capacity.then(|| {
            let class = class.to_owned();
            self.capacities
                .values()
                .filter(move |capacity| capacity.class == class)
        })
    }

    /// Adds or updates an object. Returns whether anything but its resource version changed.
    pub fn apply(&mut self, key: PodKey, object: Object) -> bool {
        match object {
            Object::Volume(new) => {
                let same = |old: &Volume| {
                    Volume {
                        version: new.version,
                        ..old.clone()
                    } == *new
                };
                let changed = self.volumes.get(&key.name).is_none_or(|old| !same(old));
                self.volumes.insert(key.name, *new);
                changed
            }
            Object::Claim(new) => {
                let same = |old: &Claim| {
                    Claim {
                        version: new.version,
                        ..old.clone()
                    } == *new
                };
                let changed = self.claims.get(&key).is_none_or(|old| !same(old));
                self.claims.insert(key, *new);
                changed
            }
            Object::Class(new) => insert_and_compare(&mut self.classes, key.name, new),
            Object::CsiNode(new) => insert_and_compare(&mut self.nodes, key.name, new),
            Object::Driver(new) => insert_and_compare(&mut self.drivers, key.name, new),
            Object::Capacity(new) => insert_and_compare(&mut self.capacities, key, new),
            Object::Attachment(new) => {
                let names = self.attached.entry(new.node.clone()).or_default();
                names.insert(key.name.clone());
                insert_and_compare(&mut self.attachments, key.name, new)
            }
        }
    }

    /// Removes an object.
    pub fn delete(&mut self, kind: Kind, key: &PodKey) {
        match kind {
            Kind::PersistentVolume => drop(self.volumes.remove(&key.name)),
            Kind::PersistentVolumeClaim => drop(self.claims.remove(key)),
            Kind::StorageClass => drop(self.classes.remove(&key.name)),
            Kind::CsiNode => drop(self.nodes.remove(&key.name)),
            Kind::CsiDriver => drop(self.drivers.remove(&key.name)),
            Kind::CsiStorageCapacity => drop(self.capacities.remove(key)),
            Kind::VolumeAttachment => self.detach(&key.name),
        }
    }

    /// Keeps only the listed objects of a kind and marks the kind as known.
    pub fn retain(&mut self, kind: Kind, keys: &BTreeSet<PodKey>) {
        let named = |name: &str| keys.contains(&PodKey::unscoped(name));
        match kind {
            Kind::PersistentVolume => self.volumes.retain(|name, _| named(name)),
            Kind::PersistentVolumeClaim => self.claims.retain(|key, _| keys.contains(key)),
            Kind::StorageClass => self.classes.retain(|name, _| named(name)),
            Kind::CsiNode => self.nodes.retain(|name, _| named(name)),
            Kind::CsiDriver => self.drivers.retain(|name, _| named(name)),
            Kind::CsiStorageCapacity => self.capacities.retain(|key, _| keys.contains(key)),
            Kind::VolumeAttachment => {
                let names = self.attachments.keys().filter(|name| !named(name));
                let gone: Vec<String> = names.cloned().collect();
                for name in &gone {
                    self.detach(name);
                }
            }
        }
        self.unlisted.remove(&kind);
    }

    fn detach(&mut self, name: &str) {
        let Some(attachment) = self.attachments.remove(name) else {
            return;
        };
        if let Some(names) = self.attached.get_mut(&attachment.node) {
            names.remove(name);
            if names.is_empty() {
                self.attached.remove(&attachment.node);
            }
        }
    }
}

/// Stores an object and returns whether it differs from the previous one.
fn insert_and_compare<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, new: V) -> bool {
    let same = map.get(&key) == Some(&new);
    map.insert(key, new);
    !same
}

#[cfg(test)]
mod tests;
