//! Addresses of a cluster: a part of the loopback network, so that every pod can listen on every port without privileges.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use parking_lot::Mutex;

/// Port on the block's last address that marks the block as taken.
const MARK_PORT: u16 = 47_000;
/// Number of blocks to try before giving up.
const ATTEMPTS: usize = 64;
/// Largest number of nodes in a block.
pub const MAX_NODES: usize = 250;
/// Last byte of a node's own address; the constants below are those of the first and the last pod address.
const NODE_HOST: u8 = 1;
const FIRST_POD: u8 = 2;
const LAST_POD: u8 = 254;

/// The addresses `127.A.0.0/16` of one cluster; dropping it frees them.
#[derive(Debug)]
pub struct Block {
    second: u8,
    /// The block is taken as long as this socket is bound.
    _mark: TcpListener,
}

impl Block {
    /// Claims a block that no other cluster on this machine has.
    pub fn claim() -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..ATTEMPTS {
            // The first byte of a version 4 UUID is random. Addresses 127.0.x.y are left to other programs.
            let second = uuid::Uuid::new_v4().as_bytes()[0].clamp(16, 250);
            match TcpListener::bind((Ipv4Addr::new(127, second, 255, 254), MARK_PORT)) {
                Ok(mark) => {
                    return Ok(Self {
                        second,
                        _mark: mark,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns the address of the control plane.
    pub fn control_plane(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, 0, 1)
    }

    /// Returns the addresses of the node with this index, which must be less than [`MAX_NODES`].
    pub fn node(&self, index: usize) -> NodeAddresses {
        let third = u8::try_from(index.min(MAX_NODES) + 1).unwrap_or(u8::MAX);
        NodeAddresses {
            network: [127, self.second, third],
            pods: Arc::default(),
        }
    }
}

/// The addresses of one node and its pods; clones share them.
#[derive(Clone, Debug)]
pub struct NodeAddresses {
    network: [u8; 3],
    pods: Arc<Mutex<Pods>>,
}

#[derive(Debug, Default)]
struct Pods {
    used: BTreeSet<u8>,
    last: u8,
}

impl NodeAddresses {
    /// Returns the node's own address.
    pub fn node(&self) -> Ipv4Addr {
        self.address(NODE_HOST)
    }

    fn address(&self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, host)
    }

    /// Takes an address for a pod; addresses that were freed long ago come first. Returns `None` when all are taken.
    pub fn take(&self) -> Option<Ipv4Addr> {
        let mut pods = self.pods.lock();
        let after = pods.last.max(FIRST_POD - 1);
        let host = (after.saturating_add(1)..=LAST_POD)
            .chain(FIRST_POD..=after)
            .find(|host| !pods.used.contains(host))?;
        pods.used.insert(host);
        pods.last = if host == LAST_POD { 0 } else { host };
        Some(self.address(host))
    }

    /// Frees an address.
    pub fn give_back(&self, address: Ipv4Addr) {
        let mut pods = self.pods.lock();
        pods.used.remove(&address.octets()[3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_never_share_a_block() {
        let (one, other) = (Block::claim().unwrap(), Block::claim().unwrap());
        assert_ne!(one.second, other.second);
    }

    #[test]
    fn pods_of_a_node_have_addresses_of_their_own_and_freed_ones_rest() {
        let addresses = Block::claim().unwrap().node(3);
        let first = addresses.take().unwrap();
        addresses.give_back(first);
        let second = addresses.take().unwrap();
        assert_ne!(first, second);
        assert_ne!(second, addresses.node());
        assert_eq!(first.octets()[2], 4);
    }

    #[test]
    fn every_address_is_given_once_and_then_none() {
        let addresses = Block::claim().unwrap().node(0);
        let all: BTreeSet<_> = std::iter::from_fn(|| addresses.take()).collect();
        assert_eq!(all.len(), 253);
        let one = all.iter().next().copied().unwrap();
        addresses.give_back(one);
        assert_eq!(addresses.take(), Some(one));
    }
}
