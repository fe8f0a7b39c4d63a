//! The device manager (kubelet-node.md 8).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::mask::ZoneId;

mod allocate;
mod hints;
mod preferences;

pub use self::allocate::{Error, KubeletPhase};
pub use self::preferences::{DevicePreferences, PreferenceRequest};

type Ids = BTreeSet<String>;

/// One device as its plugin describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// NUMA zones that the device is near to; none if the plugin does not report any.
    pub zones: Option<Vec<ZoneId>>,
    /// Whether it can be allocated to containers.
    pub healthy: bool,
}

/// Devices that a container holds according to the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct DeviceEntry {
    /// Pod.
    pub pod: String,
    /// Container.
    pub container: String,
    /// Resource.
    pub resource: String,
    /// NUMA node (-1 without topology) → device IDs, sorted.
    pub ids: BTreeMap<i64, Vec<String>>,
}

/// The device manager with its state.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    zones: Vec<ZoneId>,
    /// Resource → ID → device; empty after a restart of the kubelet until the plugin has registered.
    plugins: BTreeMap<String, BTreeMap<String, Device>>,
    /// Resource → ID → numbers of its zones as last reported, -1 for none.
    zone_numbers: BTreeMap<String, BTreeMap<String, Vec<i64>>>,
    /// Pod → container → resource → IDs.
    held: BTreeMap<String, BTreeMap<String, BTreeMap<String, Ids>>>,
    /// The UID of one pod, and resource → IDs of its finished init containers.
    reuse: Option<(String, BTreeMap<String, Ids>)>,
    written: Vec<DeviceEntry>,
    /// Devices to take first where the kubelet's order is unspecified.
    first_choice: Vec<DeviceEntry>,
    preferences: DevicePreferences,
    /// The first request that `preferences` does not answer.
    open_request: Option<PreferenceRequest>,
}

impl Manager {
    /// Creates the manager of an empty node without plugins.
    pub fn new(zones: Vec<ZoneId>) -> Self {
        Self {
            zones,
            ..Self::default()
        }
    }

    /// Takes the full list of devices that a plugin reports, and writes the checkpoint.
    pub fn set_devices(&mut self, resource: &str, devices: BTreeMap<String, Device>) {
        let zone_numbers = self.zone_numbers.entry(resource.to_owned()).or_default();
        for (id, device) in &devices {
            let zones = device.zones.iter().flatten();
            let mut numbers: Vec<i64> = zones.map(|zone| i64::from(zone.get())).collect();
            if numbers.is_empty() {
                numbers.push(-1);
            }
            zone_numbers.insert(id.clone(), numbers);
        }
        self.plugins.insert(resource.to_owned(), devices);
        self.write();
    }

    /// Restarts the kubelet: it knows what is in the checkpoint, and no device until its plugin registers.
    pub fn restart(&mut self) {
        self.plugins.values_mut().for_each(BTreeMap::clear);
        self.reuse = None;
        self.held.clear();
        for entry in &self.written {
            self.held
                .entry(entry.pod.clone())
                .or_default()
                .entry(entry.container.clone())
                .or_default()
                .insert(
                    entry.resource.clone(),
                    entry.ids.values().flatten().cloned().collect(),
                );
        }
    }

    /// Returns whether a pod holds any device.
    pub fn holds(&self, pod: &str) -> bool {
        self.held.contains_key(pod)
    }

    /// Returns resource → number of devices that pods hold.
    pub fn used(&self) -> BTreeMap<String, usize> {
        let resources: BTreeSet<&String> = self
            .held
            .values()
            .flat_map(BTreeMap::values)
            .flat_map(BTreeMap::keys)
            .collect();
        resources
            .into_iter()
            .map(|resource| (resource.clone(), self.in_use(resource).len()))
            .collect()
    }

    /// Chooses the devices to take first where the kubelet takes any. It iterates over hash tables there, the model takes the lowest IDs. A
    /// replay passes the devices that the kubelet took; the model takes them only where the rules allow it.
    pub fn set_first_choice(&mut self, entries: Vec<DeviceEntry>) {
        self.first_choice = entries;
    }

    /// Returns the plugins' devices by resource and ID.
    pub fn plugins(&self) -> &BTreeMap<String, BTreeMap<String, Device>> {
        &self.plugins
    }

    /// Returns resource → IDs that a container holds.
    pub fn held(&self, pod: &str, container: &str) -> Option<&BTreeMap<String, Ids>> {
        self.held.get(pod)?.get(container)
    }

    /// Returns the entries of the last written checkpoint.
    pub fn written(&self) -> &[DeviceEntry] {
        &self.written
    }

    fn healthy(&self, resource: &str) -> Ids {
        self.plugins
            .get(resource)
            .into_iter()
            .flatten()
            .filter(|(_, device)| device.healthy)
            .map(|(id, _)| id.clone())
            .collect()
    }

    fn in_use(&self, resource: &str) -> Ids {
        self.held
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|resources| resources.get(resource))
            .flatten()
            .cloned()
            .collect()
    }

    fn available(&self, resource: &str) -> Ids {
        let used = self.in_use(resource);
        self.healthy(resource).difference(&used).cloned().collect()
    }

    fn reusable(&self, pod: &str, resource: &str) -> Ids {
        match &self.reuse {
            Some((owner, reuse)) if owner == pod => {
                reuse.get(resource).cloned().unwrap_or_default()
            }
            _ => Ids::new(),
        }
    }

    fn device(&self, resource: &str, id: &str) -> Option<&Device> {
        self.plugins.get(resource)?.get(id)
    }

    /// Returns the zones of a device; none if the device is unknown or has no topology.
    fn zones_of(&self, resource: &str, id: &str) -> Option<&Vec<ZoneId>> {
        self.device(resource, id)?.zones.as_ref()
    }

    /// Returns whether any device of the resource reports a zone.
    fn is_aligned(&self, resource: &str) -> bool {
        self.plugins.get(resource).is_some_and(|devices| {
            devices
                .values()
                .any(|device| device.zones.as_ref().is_some_and(|zones| !zones.is_empty()))
        })
    }

    fn is_known(&self, resource: &str) -> bool {
        self.plugins.contains_key(resource)
            || self
                .held
                .values()
                .flat_map(BTreeMap::values)
                .any(|resources| resources.contains_key(resource))
    }

    /// Drops the devices of pods that are not active; this does not write the checkpoint.
    pub fn remove_stale(&mut self, active: &BTreeSet<String>) {
        self.held.retain(|pod, _| active.contains(pod));
    }

    fn write(&mut self) {
        let mut entries = Vec::new();
        for (pod, containers) in &self.held {
            for (container, resources) in containers {
                for (resource, ids) in resources {
                    let mut by_zone: BTreeMap<i64, Vec<String>> = BTreeMap::new();
                    for id in ids {
                        let zone_numbers = self
                            .zone_numbers
                            .get(resource)
                            .and_then(|known| known.get(id));
                        for zone in zone_numbers.into_iter().flatten() {
                            by_zone.entry(*zone).or_default().push(id.clone());
                        }
                    }
                    entries.push(DeviceEntry {
                        pod: pod.clone(),
                        container: container.clone(),
                        resource: resource.clone(),
                        ids: by_zone,
                    });
                }
            }
        }
        entries.sort();
        self.written = entries;
    }
}
