//! Lists of resources with amounts, and the catalogue's notation for them (scenarios-serial.md 0, 7.1).

use std::collections::BTreeMap;
use std::fmt;

use api::quantity::{self, Amount, Format};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// CPU time, in cores.
pub const CPU: &str = "cpu";
/// Memory, in bytes.
pub const MEMORY: &str = "memory";
/// Hugepages of 2 MiB, in bytes.
pub const HUGEPAGES_2MI: &str = "hugepages-2Mi";
/// Hugepages of 1 GiB, in bytes.
pub const HUGEPAGES_1GI: &str = "hugepages-1Gi";
/// Ephemeral storage of a node, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// One mebibyte in bytes.
pub const MI: i64 = 1 << 20;
/// One gibibyte in bytes.
pub const GI: i64 = 1 << 30;

/// Resource names with amounts in thousandths (of a core, a byte, a device).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources(BTreeMap<String, i64>);

/// A word is not in the catalogue's notation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no amount of a resource: write 4c, 1500m, 4Gi, h2=256, h1=1, d1=3 or eph=32Mi")]
pub struct NotationError(String);

/// Names of the sample devices that table rows call `d1`, `d2` and `d3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNames(pub BTreeMap<String, String>);

impl Resources {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the catalogue's notation: `4c`, `1500m`, `4Gi`, `h2=256` (MiB of 2 MiB pages), `h1=1` (GiB of 1 GiB pages),
    /// `d1=3` (kept under that name, see [`Resources::with_devices`]), `eph=32Mi`; separated by blanks.
    pub fn parse(text: &str) -> Result<Self, NotationError> {
        let mut list = Self::new();
        for word in text.split_whitespace() {
            let wrong = || NotationError(word.to_owned());
            let amount = |text: &str| {
                text.parse::<Amount>()
                    .map(Amount::milli)
                    .map_err(|_| wrong())
            };
            let whole = |text: &str| text.parse::<i64>().map_err(|_| wrong());
            let (name, milli) = match word.split_once('=') {
                Some(("h2", mebibytes)) => (HUGEPAGES_2MI, whole(mebibytes)? * MI * 1000),
                Some(("h1", gibibytes)) => (HUGEPAGES_1GI, whole(gibibytes)? * GI * 1000),
                Some(("eph", bytes)) => (EPHEMERAL_STORAGE, amount(bytes)?),
                Some((device @ ("d1" | "d2" | "d3"), count)) => (device, whole(count)? * 1000),
                Some(_) => return Err(wrong()),
                None => match word.strip_suffix('c') {
                    Some(cores) => (CPU, whole(cores)? * 1000),
                    None if word.ends_with('m') => (CPU, amount(word)?),
                    None => (MEMORY, amount(word)?),
                },
            };
            list.set(name, milli);
        }
        Ok(list)
    }

    /// Parses the literal of a table row.
    ///
    /// # Panics
    /// Panics if it is not in the notation. The tests of the registry read every row, so a wrong one never gets this far.
    pub fn literal(text: &str) -> Self {
        Self::parse(text).expect("rows of the tables are in the catalogue's notation")
    }

    /// Returns the same list with `d1` to `d3` replaced by the devices' real names.
    #[must_use]
    pub fn with_devices(&self, names: &DeviceNames) -> Self {
        let rename = |name: &String| names.0.get(name).unwrap_or(name).clone();
        Self(
            self.0
                .iter()
                .map(|(name, milli)| (rename(name), *milli))
                .collect(),
        )
    }

    /// Returns an amount in thousandths; 0 when not listed.
    pub fn milli(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Returns an amount in whole units, rounded up; 0 when not listed.
    pub fn units(&self, name: &str) -> i64 {
        let milli = self.milli(name);
        milli.div_euclid(1000) + i64::from(milli.rem_euclid(1000) > 0)
    }

    /// Sets an amount, in thousandths.
    pub fn set(&mut self, name: &str, milli: i64) {
        self.0.insert(name.to_owned(), milli);
    }

    /// Returns whether the resource is listed.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether nothing is listed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns names and amounts in thousandths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, milli)| (name.as_str(), *milli))
    }

    /// Adds every resource of the other list.
    pub fn add(&mut self, other: &Self) {
        for (name, milli) in other.iter() {
            *self.0.entry(name.to_owned()).or_default() += milli;
        }
    }

    /// Returns the sum of both lists.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(other);
        sum
    }

    /// Returns the sum of several lists.
    pub fn sum<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Self {
        lists
            .into_iter()
            .fold(Self::new(), |sum, list| sum.plus(list))
    }

    /// Returns this list with the amounts of the other list subtracted. Resources that are not listed here are left out.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.with(|name, milli| milli - other.milli(name))
    }

    /// Returns the larger amount of each resource that is listed here (7.1).
    #[must_use]
    pub fn highest(&self, other: &Self) -> Self {
        self.with(|name, milli| milli.max(other.milli(name)))
    }

    /// Returns the smaller amount of each resource that is listed here.
    #[must_use]
    pub fn lowest(&self, other: &Self) -> Self {
        self.with(|name, milli| milli.min(other.milli(name)))
    }

    fn with(&self, amount: impl Fn(&str, i64) -> i64) -> Self {
        Self(
            self.0
                .iter()
                .map(|(name, milli)| (name.clone(), amount(name, *milli)))
                .collect(),
        )
    }

    /// Returns only the resources for which `keep` holds.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&str, i64) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(name, milli)| keep(name, **milli))
                .map(|(n, m)| (n.clone(), *m))
                .collect(),
        )
    }

    /// Returns the list without resources that no NUMA zone has: ephemeral storage and management cores (7.3).
    #[must_use]
    pub fn zone_level(&self) -> Self {
        self.filtered(|name, _| !is_host_level(name))
    }

    /// Returns CPU and memory only.
    #[must_use]
    pub fn core(&self) -> Self {
        self.filtered(|name, _| matches!(name, CPU | MEMORY))
    }

    /// Returns what a container of a Guaranteed pod holds exclusively: no ephemeral storage, and CPUs only if they are whole (7.1).
    #[must_use]
    pub fn exclusive(&self) -> Self {
        self.zone_level()
            .filtered(|name, milli| name != CPU || milli % 1000 == 0)
    }

    /// Rounds CPUs up to whole cores and then to an even number, and memory up to a multiple of 10^9 bytes (7.1).
    #[must_use]
    pub fn rounded_up(&self) -> Self {
        let up = |value: i64, step: i64| {
            value.div_euclid(step) * step + i64::from(value.rem_euclid(step) > 0) * step
        };
        Self(
            self.0
                .iter()
                .map(|(name, milli)| match name.as_str() {
                    CPU => (name.clone(), up(*milli, 2000)),
                    MEMORY => (name.clone(), up(*milli, 1_000_000_000_000)),
                    _ => (name.clone(), *milli),
                })
                .collect(),
        )
    }

    /// Returns whether `there` has every resource listed here in at least this amount.
    pub fn fits_in(&self, there: &Self) -> bool {
        self.0
            .iter()
            .all(|(name, milli)| there.0.get(name).is_some_and(|have| have >= milli))
    }

    /// Converts to the form of a pod spec or status.
    pub fn to_quantities(&self) -> BTreeMap<String, Quantity> {
        self.0
            .iter()
            .map(|(name, milli)| (name.clone(), quantity_of(name, *milli)))
            .collect()
    }

    /// Converts from the form of a pod spec or status.
    pub fn from_quantities(
        list: &BTreeMap<String, Quantity>,
    ) -> Result<Self, quantity::ParseError> {
        list.iter()
            .map(|(name, quantity)| Ok((name.clone(), quantity::milli(quantity)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Returns whether no NUMA zone ever has this resource.
pub fn is_host_level(name: &str) -> bool {
    matches!(name, EPHEMERAL_STORAGE | "storage")
        || name.starts_with("management.workload.openshift.io/")
}

/// Returns whether the resource counts for alignment only in Guaranteed pods.
pub fn is_native(name: &str) -> bool {
    name == CPU || name == MEMORY || name.starts_with("hugepages-")
}

fn quantity_of(name: &str, milli: i64) -> Quantity {
    let binary = name == MEMORY || name.starts_with("hugepages-") || name == EPHEMERAL_STORAGE;
    Amount::from_milli(
        milli,
        if binary {
            Format::BinarySi
        } else {
            Format::DecimalSi
        },
    )
    .to_quantity()
}

impl FromIterator<(String, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, i64)>>(list: I) -> Self {
        Self(list.into_iter().collect())
    }
}

impl fmt::Display for Resources {
    /// Writes `cpu=4 memory=4Gi`, or `nothing` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (index, (name, milli)) in self.0.iter().enumerate() {
            let blank = if index == 0 { "" } else { " " };
            write!(f, "{blank}{name}={}", quantity_of(name, *milli).0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
