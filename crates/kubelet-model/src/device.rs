//! The device manager (kubelet-node.md 8).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use topology::hint::{Hint, ProviderHints, masks};
use topology::mask::{NumaMask, ZoneId};

use super::workload::{Amounts, ContainerKind, ContainerRequest, Workload};

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

/// Why a container gets no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A container that holds devices asks for another number.
    #[error(
        "pod {pod:?} container {container:?} changed request for resource {resource:?} from {held} to {requested}"
    )]
    Changed {
        /// UID.
        pod: String,
        /// Container.
        container: String,
        /// Resource.
        resource: String,
        /// Number of devices held.
        held: usize,
        /// Number of devices requested.
        requested: usize,
    },
    /// The plugin has not registered since the kubelet started.
    #[error("cannot allocate unregistered device {0}")]
    Unregistered(String),
    /// No device is healthy.
    #[error("no healthy devices present; cannot allocate unhealthy devices {0}")]
    NoHealthy(String),
    /// A held device is not healthy any more.
    #[error(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {0}"
    )]
    HeldUnhealthy(String),
    /// Too few devices are free.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}"
    )]
    Unavailable {
        /// Resource.
        resource: String,
        /// Number still needed.
        requested: usize,
        /// Number of free devices.
        available: usize,
    },
}

/// The kubelet's request for a plugin's preferred allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferenceRequest {
    /// The plugin's resource.
    pub resource: String,
    /// Devices to choose from.
    pub available: BTreeSet<String>,
    /// Those of them that are already chosen.
    pub included: BTreeSet<String>,
    /// Total number of devices to choose.
    pub count: usize,
}

/// The plugins' preferred allocations. The manager itself does not call plugins: it keeps a request that has no answer here. The caller
/// then asks the plugin and repeats the allocation.
#[derive(Clone, Debug, Default)]
pub struct DevicePreferences {
    /// Resources whose plugins offer preferred allocations.
    pub resources: BTreeSet<String>,
    /// Their answers.
    pub answers: Vec<(PreferenceRequest, BTreeSet<String>)>,
}

/// What the kubelet does during an allocation.
#[derive(Clone, Copy, Debug)]
pub enum KubeletPhase<'a> {
    /// The kubelet runs, and these pods are active: devices of other pods are free.
    Running {
        /// Their UIDs.
        active: &'a BTreeSet<String>,
    },
    /// The kubelet starts and admits the pods that it finds: devices of other pods stay allocated.
    Starting {
        /// Whether the container runs according to the runtime.
        is_running: bool,
    },
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

    /// Sets the plugins' preferred allocations for later calls.
    pub fn set_preferences(&mut self, preferences: DevicePreferences) {
        self.preferences = preferences;
    }

    /// Returns the first request without an answer. Devices that were chosen since may not be those that the plugin prefers.
    pub fn take_preference_request(&mut self) -> Option<PreferenceRequest> {
        self.open_request.take()
    }

    /// Returns the devices that the plugin of a resource prefers, if it offers preferred allocations.
    fn preferred(&mut self, request: PreferenceRequest) -> Ids {
        if !self.preferences.resources.contains(&request.resource) {
            return Ids::new();
        }
        let mut known = self.preferences.answers.iter();
        if let Some((_, ids)) = known.find(|(asked, _)| *asked == request) {
            return ids.clone();
        }
        self.open_request.get_or_insert(request);
        Ids::new()
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

    fn touches(&self, resource: &str, id: &str, mask: NumaMask) -> bool {
        self.zones_of(resource, id)
            .is_some_and(|zones| zones.iter().any(|zone| mask.contains(*zone)))
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

    /// Allocates the devices of a container.
    pub fn allocate(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        affinity: Option<NumaMask>,
        phase: KubeletPhase<'_>,
    ) -> Result<(), Error> {
        if self
            .reuse
            .as_ref()
            .is_none_or(|(owner, _)| *owner != pod.uid)
        {
            self.reuse = Some((pod.uid.clone(), BTreeMap::new()));
        }
        let mut changed = false;
        let mut is_stale_removed = false;
        for (resource, amount) in &container.limits {
            let count = usize::try_from(*amount).unwrap_or_default();
            if !self.is_known(resource) {
                continue;
            }
            if let KubeletPhase::Running { active } = phase
                && !is_stale_removed
            {
                self.remove_stale(active);
                is_stale_removed = true;
            }
            let held = self.held_of(pod, container, resource, count)?;
            if let KubeletPhase::Starting { is_running: true } = phase {
                // a running container keeps its devices, whether their plugin has registered or not
                continue;
            }
            let chosen = self.choose(pod, container, resource, (count, held), affinity)?;
            if !chosen.is_empty() {
                self.held
                    .entry(pod.uid.clone())
                    .or_default()
                    .entry(container.name.clone())
                    .or_default()
                    .insert(resource.clone(), chosen);
                changed = true;
            }
        }
        if changed {
            self.write();
        }
        self.update_reuse(pod, container);
        Ok(())
    }

    /// Returns the devices that the container already holds: none, or as many as it requests.
    fn held_of(
        &self,
        pod: &Workload,
        container: &ContainerRequest,
        resource: &str,
        count: usize,
    ) -> Result<Ids, Error> {
        let held = self
            .held(&pod.uid, &container.name)
            .and_then(|resources| resources.get(resource))
            .cloned()
            .unwrap_or_default();
        if !held.is_empty() && held.len() != count {
            return Err(Error::Changed {
                pod: pod.uid.clone(),
                container: container.name.clone(),
                resource: resource.to_owned(),
                held: held.len(),
                requested: count,
            });
        }
        Ok(held)
    }

    /// Returns the devices to allocate; none if the container already holds them.
    fn choose(
        &mut self,
        pod: &Workload,
        container: &ContainerRequest,
        resource: &str,
        (count, held): (usize, Ids),
        affinity: Option<NumaMask>,
    ) -> Result<Ids, Error> {
        if !self.plugins.contains_key(resource) {
            return Err(Error::Unregistered(resource.to_owned()));
        }
        let healthy = self.healthy(resource);
        if healthy.is_empty() {
            return Err(Error::NoHealthy(resource.to_owned()));
        }
        if !held.is_subset(&healthy) {
            return Err(Error::HeldUnhealthy(resource.to_owned()));
        }
        if !held.is_empty() || count == 0 {
            return Ok(Ids::new());
        }
        let first_choice: Ids = self
            .first_choice
            .iter()
            .filter(|entry| {
                (&entry.pod, &entry.container) == (&pod.uid, &container.name)
                    && entry.resource == resource
            })
            .flat_map(|entry| entry.ids.values().flatten().cloned())
            .collect();
        let mut chosen = Ids::new();
        let reusable = self.reusable(&pod.uid, resource);
        pick(&reusable, count, &first_choice, &mut chosen);
        let needed = count - chosen.len();
        if needed == 0 {
            return Ok(chosen);
        }
        let mut available = self.available(resource);
        available.retain(|id| !chosen.contains(id));
        if available.len() < needed {
            return Err(Error::Unavailable {
                resource: resource.to_owned(),
                requested: needed,
                available: available.len(),
            });
        }
        let [aligned, unaligned, anywhere] = self.by_affinity(resource, &available, affinity);
        let request = |from: &Ids, chosen: &Ids| PreferenceRequest {
            resource: resource.to_owned(),
            available: from.union(chosen).cloned().collect(),
            included: chosen.clone(),
            count,
        };
        if needed < aligned.len() {
            let preferred = self.preferred(request(&aligned, &chosen));
            let preferred = preferred.intersection(&aligned).cloned().collect();
            pick(&preferred, count, &first_choice, &mut chosen);
            pick(&aligned, count, &first_choice, &mut chosen);
            return Ok(chosen);
        }
        pick(&aligned, count, &first_choice, &mut chosen);
        if chosen.len() < count {
            let preferred = self.preferred(request(&available, &chosen));
            let preferred = preferred.intersection(&available).cloned().collect();
            for set in [preferred, unaligned, anywhere] {
                pick(&set, count, &first_choice, &mut chosen);
            }
        }
        Ok(chosen)
    }

    /// Returns the devices in the affinity, the other devices with a zone, and the devices without one.
    fn by_affinity(&self, resource: &str, available: &Ids, affinity: Option<NumaMask>) -> [Ids; 3] {
        let Some(mask) = affinity.filter(|_| self.is_aligned(resource)) else {
            return [Ids::new(), Ids::new(), available.clone()];
        };
        let mut sets = [Ids::new(), Ids::new(), Ids::new()];
        for id in available {
            let set = match self.zones_of(resource, id) {
                Some(zones) if zones.iter().any(|zone| mask.contains(*zone)) => 0,
                Some(zones) if !zones.is_empty() => 1,
                _ => 2,
            };
            sets[set].insert(id.clone());
        }
        sets
    }

    fn update_reuse(&mut self, pod: &Workload, container: &ContainerRequest) {
        let given = self
            .held(&pod.uid, &container.name)
            .cloned()
            .unwrap_or_default();
        let Some((_, reuse)) = &mut self.reuse else {
            return;
        };
        for (resource, ids) in given {
            let pool = reuse.entry(resource).or_default();
            if container.kind == ContainerKind::Init {
                pool.extend(ids);
            } else {
                pool.retain(|id| !ids.contains(id));
            }
        }
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

/// Adds IDs from a set until there are `count`: those of `first_choice` first, then the lowest IDs.
fn pick(from: &Ids, count: usize, first_choice: &Ids, chosen: &mut Ids) {
    let first = from.intersection(first_choice);
    for id in first.chain(from.difference(first_choice)) {
        if chosen.len() < count {
            chosen.insert(id.clone());
        }
    }
}
