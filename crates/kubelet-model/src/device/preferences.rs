//! The preferred allocations of device plugins, which the manager's caller asks for.

use std::collections::BTreeSet;

use super::{Ids, Manager};

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

impl Manager {
    /// Sets the plugins' preferred allocations for later calls.
    pub fn set_preferences(&mut self, preferences: DevicePreferences) {
        self.preferences = preferences;
    }

    /// Returns the first request without an answer. Devices that were chosen since may not be those that the plugin prefers.
    pub fn take_preference_request(&mut self) -> Option<PreferenceRequest> {
        self.open_request.take()
    }

    /// Returns the devices that the plugin of a resource prefers, if it offers preferred allocations.
    pub(super) fn preferred(&mut self, request: PreferenceRequest) -> Ids {
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
}
