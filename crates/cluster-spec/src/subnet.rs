//! Addresses of a cluster of real Kubernetes parts.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// ClusterIP of the `kubernetes` service: first address of [`SERVICE_RANGE`].
pub const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Address range of services.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The cluster's DNS address in the configuration of pods; nothing answers there.
pub const DNS_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// Prefix of the link's name on the host, followed by the number of the subnet. The link serves as the lock on that number.
const HOST_LINK_PREFIX: &str = "nrop";

/// The third octet of a cluster's addresses, which was free on the machine when the cluster came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Subnet(pub u8);

impl Subnet {
    /// Returns the address of the cluster's side: API server and router of the nodes.
    pub fn gateway(self) -> Ipv4Addr {
        self.address(1)
    }

    /// Returns the address of the host in the cluster's network.
    pub fn host(self) -> Ipv4Addr {
        self.address(2)
    }

    /// Returns the address of the node with this index.
    pub fn node(self, index: usize) -> Ipv4Addr {
        self.address(10u8.saturating_add(u8::try_from(index).unwrap_or(u8::MAX)))
    }

    fn address(self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, self.0, last)
    }

    /// Returns the name of the link in the host's namespace.
    pub fn host_link(self) -> String {
        format!("{HOST_LINK_PREFIX}{}", self.0)
    }
}
