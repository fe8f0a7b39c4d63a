//! Resource names with their classes, and lists of amounts.
//!
//! An amount is an `i64`: thousandths of a core for `cpu`, whole units (bytes, devices, pods) for everything else.

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Name of the CPU resource.
pub const CPU: &str = "cpu";
/// Name of the memory resource.
pub const MEMORY: &str = "memory";
/// Prefix of the names of hugepage resources.
pub const HUGEPAGES_PREFIX: &str = "hugepages-";

/// Names that nearly every list has. Each name shares one text, because a scheduler keeps thousands of lists and compares their names
/// all the time.
static COMMON: LazyLock<[Arc<str>; 6]> = LazyLock::new(|| {
    [
        CPU,
        MEMORY,
        "ephemeral-storage",
        "hugepages-1Gi",
        "hugepages-2Mi",
        "pods",
    ]
    .map(Arc::from)
});

/// Name of a compute resource, as in a container's requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// Returns the name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this is the CPU resource.
    #[inline]
    pub fn is_cpu(&self) -> bool {
        &*self.0 == CPU
    }

    /// Returns whether this is memory or hugepages of any size.
    pub fn is_memory_like(&self) -> bool {
        &*self.0 == MEMORY || self.0.starts_with(HUGEPAGES_PREFIX)
    }

    /// Returns whether the kubelet aligns the resource for guaranteed pods only: CPUs, memory, hugepages (scheduler.md 0).
    pub fn is_affine(&self) -> bool {
        self.is_cpu() || self.is_memory_like()
    }

    /// Returns whether the name is native to Kubernetes: without a slash, or in a `kubernetes.io/` domain (scheduler.md 0).
    pub fn is_native(&self) -> bool {
        !self.0.contains('/') || self.0.contains("kubernetes.io/")
    }

    /// Returns whether the resource may belong to the host as a whole: storage, and devices without a home zone (scheduler.md 3.4).
    pub fn is_host_level(&self) -> bool {
        matches!(&*self.0, "ephemeral-storage" | "storage") || !self.is_native()
    }
}

impl From<&str> for ResourceName {
    fn from(name: &str) -> Self {
        let common = COMMON.iter().find(|common| &***common == name);
        Self(common.map_or_else(|| name.into(), Arc::clone))
    }
}

impl From<String> for ResourceName {
    fn from(name: String) -> Self {
        name.as_str().into()
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Amounts by resource name. A name that is listed with amount 0 differs from a name that is not listed.
///
/// Sorted by name, each name once. The lists are short, so a linear search is faster than a binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources(Vec<(ResourceName, i64)>);

impl Resources {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the amount of a resource, if it is listed.
    #[inline]
    pub fn get(&self, name: &str) -> Option<i64> {
        let listed = self.0.iter().find(|(listed, _)| listed.as_str() == name);
        listed.map(|(_, amount)| *amount)
    }

    /// Returns the amount of a resource, or 0 if it is not listed.
    #[inline]
    pub fn amount(&self, name: &str) -> i64 {
        self.get(name).unwrap_or(0)
    }

    /// Lists a resource with this amount. An earlier amount is replaced.
    pub fn set(&mut self, name: impl Into<ResourceName>, amount: i64) {
        *self.entry(&name.into()) = amount;
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let mine = self.entry(name);
            *mine = mine.saturating_add(*amount);
        }
    }

    /// Subtracts every amount of `other` from the resources listed here, not below 0. Resources that are not listed here stay unlisted.
    pub fn subtract_listed(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            if let Some((_, mine)) = self.0.iter_mut().find(|(listed, _)| listed == name) {
                *mine = mine.saturating_sub(*amount).max(0);
            }
        }
    }

    /// Raises every resource to at least its amount in `other`.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let mine = self.entry(name);
            *mine = (*mine).max(*amount);
        }
    }

    /// Iterates over all listed resources, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Returns whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether every listed amount is 0.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|(_, amount)| *amount == 0)
    }

    /// Returns the amount of a resource, listing it with 0 if it is missing.
    fn entry(&mut self, name: &ResourceName) -> &mut i64 {
        let index = match self.0.binary_search_by(|(listed, _)| listed.cmp(name)) {
            Ok(index) => index,
            Err(index) => {
                self.0.insert(index, (name.clone(), 0));
                index
            }
        };
        &mut self.0[index].1
    }
}

impl<N: Into<ResourceName>> FromIterator<(N, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (N, i64)>>(items: I) -> Self {
        let mut list = Self::new();
        for (name, amount) in items {
            list.set(name, amount);
        }
        list.0.shrink_to_fit();
        list
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let unit = if name.is_cpu() { "m" } else { "" };
            write!(f, "{comma}{name}={amount}{unit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("cpu", true, true, false)]
    #[case("memory", true, true, false)]
    #[case("hugepages-2Mi", true, true, false)]
    #[case("ephemeral-storage", false, true, true)]
    #[case("storage", false, true, true)]
    #[case("vendor.io/nic", false, false, true)]
    #[case("requests.kubernetes.io/thing", false, true, false)]
    #[case("pods", false, true, false)]
    fn names_fall_into_classes(
        #[case] name: &str,
        #[case] affine: bool,
        #[case] native: bool,
        #[case] host_level: bool,
    ) {
        let name = ResourceName::from(name);
        assert_eq!(
            (name.is_affine(), name.is_native(), name.is_host_level()),
            (affine, native, host_level)
        );
    }

    #[test]
    fn subtraction_stops_at_zero_and_lists_nothing_new() {
        let mut have = Resources::from_iter([("cpu", 1000), ("memory", 5)]);
        have.subtract_listed(&Resources::from_iter([("cpu", 3000), ("vendor.io/nic", 1)]));
        assert_eq!(have, Resources::from_iter([("cpu", 0), ("memory", 5)]));
    }

    #[test]
    fn the_last_amount_of_a_name_counts_and_order_does_not() {
        let list = Resources::from_iter([("vendor.io/nic", 1), ("cpu", 1), ("vendor.io/nic", 2)]);
        assert_eq!(
            list,
            Resources::from_iter([("cpu", 1), ("vendor.io/nic", 2)])
        );
        assert_eq!(list.get("vendor.io/nic"), Some(2));
        assert_eq!(list.get("memory"), None);
    }

    #[test]
    fn display_is_sorted_and_shows_the_unit_of_cpu() {
        let list = Resources::from_iter([("memory", 5), ("cpu", 1500)]);
        assert_eq!(list.to_string(), "cpu=1500m,memory=5");
    }
}
