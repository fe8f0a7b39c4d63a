//! The kubelet's topology manager settings (kubelet-node.md 5.1).

use std::fmt;
use std::str::FromStr;

/// What the topology manager does with a pod that it cannot align.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It does not align anything.
    #[default]
    None,
    /// It admits the pod without alignment.
    BestEffort,
    /// It refuses pods that need more zones than necessary.
    Restricted,
    /// It refuses pods that need more than one zone.
    SingleNumaNode,
}

/// The unit that the topology manager aligns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each container by itself.
    #[default]
    Container,
    /// All containers of a pod together.
    Pod,
}

/// A text that names no policy or scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown topology manager {what} {value:?}")]
pub struct ParseError {
    what: &'static str,
    value: String,
}

impl FromStr for Policy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "none" => Ok(Self::None),
            "best-effort" => Ok(Self::BestEffort),
            "restricted" => Ok(Self::Restricted),
            "single-numa-node" => Ok(Self::SingleNumaNode),
            _ => Err(ParseError {
                what: "policy",
                value: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        })
    }
}

impl FromStr for Scope {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "container" => Ok(Self::Container),
            "pod" => Ok(Self::Pod),
            _ => Err(ParseError {
                what: "scope",
                value: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Pod => "pod",
        })
    }
}

/// The settings of a node's topology manager, as far as its NRT publishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagerConfig {
    /// Policy.
    pub policy: Policy,
    /// Scope.
    pub scope: Scope,
    /// The largest number of zones that it aligns across; above 1.
    pub max_numa_nodes: u16,
    /// What its other managers align, if that is known.
    pub managers: Option<Managers>,
}

/// Which resource managers of a kubelet give the topology manager hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Managers {
    /// The CPU manager.
    pub cpus: CpuManager,
    /// CPUs of a core, if the CPU manager takes the whole cores of a zone in one order, whatever their number (kubelet-node.md 6.4). A
    /// request for whole cores then gets all CPUs that a smaller one gets from the same pool.
    pub packed_cores: Option<u16>,
    /// Whether the memory manager's policy is `Static`.
    pub memory: bool,
}

/// How a kubelet assigns CPUs to containers (kubelet-node.md 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuManager {
    /// Policy `none`: all containers share the CPUs.
    Shared,
    /// Policy `static`: single CPUs.
    Single,
    /// Policy `static` with `full-pcpus-only`: whole cores of this many CPUs; requests for other numbers are refused.
    WholeCores(u16),
}

impl ManagerConfig {
    /// The kubelet's limit when nothing else is set.
    pub const DEFAULT_MAX_NUMA_NODES: u16 = 8;
    /// Returns the settings of a kubelet of which nothing is known.
    pub const fn unknown() -> Self {
        Self {
            policy: Policy::None,
            scope: Scope::Container,
            max_numa_nodes: Self::DEFAULT_MAX_NUMA_NODES,
            managers: None,
        }
    }

    /// Larger values are reduced to this (scheduler.md 3.2).
    pub const LARGEST_MAX_NUMA_NODES: u16 = 1024;
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self::unknown()
    }
}

impl fmt::Display for ManagerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            policy,
            scope,
            max_numa_nodes,
            managers: _,
        } = self;
        write!(
            f,
            "policy={policy} scope={scope} maxNUMANodes={max_numa_nodes}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_convert_both_ways() {
        for name in ["none", "best-effort", "restricted", "single-numa-node"] {
            assert_eq!(
                name.parse::<Policy>().map(|policy| policy.to_string()),
                Ok(name.to_owned())
            );
        }
        for name in ["container", "pod"] {
            assert_eq!(
                name.parse::<Scope>().map(|scope| scope.to_string()),
                Ok(name.to_owned())
            );
        }
        assert!("Pod".parse::<Scope>().is_err());
        assert!("".parse::<Policy>().is_err());
    }
}
