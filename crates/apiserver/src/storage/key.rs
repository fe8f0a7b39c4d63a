//! Keys of objects.

use std::cmp::Ordering;

/// Storage name of the definitions of custom resources.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The key of an object. Keys are sorted by the paths `namespace/name`, as lists are, so `a-b/x` is before `a/x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// Resource and group: `pods`, `deployments.apps`.
    pub(crate) resource: String,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
}

impl Key {
    /// Makes the key of an object.
    pub(crate) fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        fn path(key: &Key) -> impl Iterator<Item = u8> + '_ {
            let slash = (!key.namespace.is_empty()).then_some(b'/');
            let name = key.name.bytes();
            key.namespace.bytes().chain(slash).chain(name)
        }
        self.resource.cmp(&other.resource).then_with(|| {
            if self.namespace == other.namespace {
                self.name.cmp(&other.name)
            } else {
                path(self).cmp(path(other))
            }
        })
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
