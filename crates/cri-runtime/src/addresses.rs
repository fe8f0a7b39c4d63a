//! The addresses of a node's pods.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Allocates the addresses of a prefix in turn, so that a released address is reused as late as possible.
#[derive(Debug)]
pub struct AddressPool {
    gateway: Ipv4Addr,
    prefix: u8,
    first: u32,
    last: u32,
    next: u32,
    used: BTreeSet<u32>,
}

/// Why a pool could not be created, or has no address left.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The prefix has no room for pods.
    #[error("prefix length {0} leaves no address for pods")]
    Prefix(u8),
    /// Every address is in use.
    #[error("no address left in {gateway}/{prefix}")]
    Exhausted {
        /// The pool's own address.
        gateway: Ipv4Addr,
        /// Length of its prefix.
        prefix: u8,
    },
}

impl AddressPool {
    /// Creates a pool of the addresses around `gateway`, without the gateway's own, the network and the broadcast address.
    pub fn new(gateway: Ipv4Addr, prefix: u8) -> Result<Self, Error> {
        if !(1..=29).contains(&prefix) {
            return Err(Error::Prefix(prefix));
        }
        let host_bits = u32::MAX >> prefix;
        let network = gateway.to_bits() & !host_bits;
        let first = network + 1;
        Ok(Self {
            gateway,
            prefix,
            first,
            last: (network | host_bits) - 1,
            next: first,
            used: [gateway.to_bits()].into(),
        })
    }

    /// Allocates an address that has been unused for long, because neighbours may remember its last owner.
    pub fn allocate(&mut self) -> Result<Ipv4Addr, Error> {
        let free = (self.next..=self.last)
            .chain(self.first..self.next)
            .find(|address| !self.used.contains(address))
            .ok_or(Error::Exhausted {
                gateway: self.gateway,
                prefix: self.prefix,
            })?;
        self.used.insert(free);
        self.next = if free == self.last {
            self.first
        } else {
            free + 1
        };
        Ok(Ipv4Addr::from_bits(free))
    }

    /// Releases an address; the gateway's stays in use.
    pub fn release(&mut self, address: Ipv4Addr) {
        if address != self.gateway {
            self.used.remove(&address.to_bits());
        }
    }

    /// Returns the length of the prefix.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Returns the address of the node's end.
    pub fn gateway(&self) -> Ipv4Addr {
        self.gateway
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn mk_pool(prefix: u8) -> AddressPool {
        AddressPool::new(Ipv4Addr::new(10, 244, 3, 1), prefix).unwrap()
    }

    #[test]
    fn first_pod_gets_the_address_after_the_gateway() {
        assert_eq!(mk_pool(24).allocate(), Ok(Ipv4Addr::new(10, 244, 3, 2)));
    }

    #[test]
    fn released_address_is_used_again_last() {
        let mut pool = mk_pool(29);
        let first = pool.allocate().unwrap();
        pool.release(first);
        let others: Vec<_> = (0..4).map(|_| pool.allocate().unwrap()).collect();
        assert!(!others.contains(&first), "{others:?}");
        assert_eq!(pool.allocate(), Ok(first));
    }

    #[test]
    fn network_gateway_and_broadcast_are_never_given() {
        let mut pool = mk_pool(29);
        let all: Vec<_> = (0..5)
            .map(|_| pool.allocate().unwrap().octets()[3])
            .collect();
        assert_eq!(all, [2, 3, 4, 5, 6]);
        assert_eq!(
            pool.allocate(),
            Err(Error::Exhausted {
                gateway: Ipv4Addr::new(10, 244, 3, 1),
                prefix: 29
            })
        );
    }

    #[test]
    fn gateway_cannot_be_released() {
        let mut pool = mk_pool(29);
        pool.release(Ipv4Addr::new(10, 244, 3, 1));
        let all: Vec<_> = (0..5)
            .map(|_| pool.allocate().unwrap().octets()[3])
            .collect();
        assert!(!all.contains(&1));
    }

    #[rstest]
    #[case::host(32)]
    #[case::pair(31)]
    #[case::too_small(30)]
    #[case::everything(0)]
    fn prefix_without_room_is_refused(#[case] prefix: u8) {
        let pool = AddressPool::new(Ipv4Addr::new(10, 0, 0, 1), prefix);
        assert_eq!(pool.err(), Some(Error::Prefix(prefix)));
    }
}
