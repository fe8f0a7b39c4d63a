//! Resources by their paths and kinds.

use std::collections::HashMap;
use std::sync::Arc;

use super::resource::Resource;

/// Resources by group, version and plural.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    by_path: HashMap<(String, String, String), Arc<Resource>>,
    /// The resources in the order of discovery.
    pub(crate) ordered: Vec<Arc<Resource>>,
}

impl Table {
    /// Returns a resource by its path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Returns a resource by the kind of its objects.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.ordered
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// Returns whether a group is built in, and does not come from a definition of custom resources.
    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        let mut all = self.ordered.iter();
        all.any(|resource| resource.group == group && resource.custom.is_none())
    }

    /// Adds a resource, at the end of the order of discovery.
    pub(super) fn add(&mut self, resource: Resource) {
        let resource = Arc::new(resource);
        let path = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.by_path.insert(path, Arc::clone(&resource));
        self.ordered.push(resource);
    }
}
