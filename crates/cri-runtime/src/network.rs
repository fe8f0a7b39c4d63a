//! The pod network of a node: a bridge in the node's network namespace, and a veth pair from it into each sandbox.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use futures::TryStreamExt as _;
use parking_lot::Mutex;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};
use tokio::task::JoinHandle;

use super::addresses::{self, AddressPool};

/// Name of the sandboxes' bridge in the node's network namespace.
const BRIDGE: &str = "pods0";
/// Name of the sandbox's end of its link.
const INSIDE: &str = "eth0";
/// Index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

/// Why a link could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address is left, or the prefix has no room for any.
    #[error("no address for a sandbox")]
    Address(#[from] addresses::Error),
    /// The kernel refused a request.
    #[error("cannot {action}")]
    Netlink {
        /// The failed action.
        action: &'static str,
        /// The kernel's error.
        #[source]
        source: rtnetlink::Error,
    },
    /// A netlink socket could not be opened.
    #[error("cannot open a netlink socket")]
    Socket(#[source] io::Error),
    /// A link that was just created does not exist.
    #[error("link {0} does not exist")]
    NoLink(String),
}

fn netlink(action: &'static str) -> impl FnOnce(rtnetlink::Error) -> Error {
    move |source| Error::Netlink { action, source }
}

/// A netlink connection into the network namespace of the thread that opened it. It keeps that namespace alive.
#[derive(Debug)]
pub struct Link {
    handle: Handle,
    task: JoinHandle<()>,
}

impl Link {
    /// Opens a connection; needs a tokio runtime.
    pub fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let task = tokio::runtime::Handle::current().spawn(connection);
        Ok(Self { handle, task })
    }

    async fn index(&self, name: &str) -> Result<Option<u32>, Error> {
        let mut links = self.handle.link().get().match_name(name).execute();
        match links.try_next().await {
            Ok(link) => Ok(link.map(|link| link.header.index)),
            // The kernel reports a missing link as an error.
            Err(rtnetlink::Error::NetlinkError(error))
                if error.raw_code() == -(nix::errno::Errno::ENODEV as i32) =>
            {
                Ok(None)
            }
            Err(error) => Err(netlink("look up a link")(error)),
        }
    }

    async fn up(&self, index: u32) -> Result<(), Error> {
        let message = LinkUnspec::new_with_index(index).up().build();
        self.handle
            .link()
            .set(message)
            .execute()
            .await
            .map_err(netlink("bring a link up"))
    }

    async fn add_address(&self, index: u32, address: Ipv4Addr, prefix: u8) -> Result<(), Error> {
        self.handle
            .address()
            .add(index, IpAddr::V4(address), prefix)
            .execute()
            .await
            .map_err(netlink("add an address"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Otherwise the task would keep the socket open, and the socket the namespace.
        self.task.abort();
    }
}

/// The pod network of this node.
#[derive(Debug)]
pub struct Network {
    link: Link,
    bridge: u32,
    pool: Mutex<AddressPool>,
}

impl Network {
    /// Creates the bridge with `gateway` as its address in the network namespace of the calling thread.
    pub async fn start(gateway: Ipv4Addr, prefix: u8) -> Result<Self, Error> {
        let pool = AddressPool::new(gateway, prefix)?;
        let link = Link::open().map_err(Error::Socket)?;
        // The streams to commands in containers use it.
        link.up(LOOPBACK).await?;
        let bridge = match link.index(BRIDGE).await? {
            Some(existing) => existing,
            None => make_bridge(&link, gateway, prefix).await?,
        };
        Ok(Self {
            link,
            bridge,
            pool: Mutex::new(pool),
        })
    }

    /// Connects the sandbox whose network is `namespace`, in which `inside` is a connection; returns its address.
    pub async fn attach(
        &self,
        sandbox: &str,
        namespace: &OwnedFd,
        inside: &Link,
    ) -> Result<Ipv4Addr, Error> {
        let address = self.pool().allocate()?;
        let outcome = self.connect(sandbox, namespace, inside, address).await;
        if outcome.is_err() {
            self.detach(sandbox, address).await;
        }
        outcome.map(|()| address)
    }

    async fn connect(
        &self,
        sandbox: &str,
        namespace: &OwnedFd,
        inside: &Link,
        address: Ipv4Addr,
    ) -> Result<(), Error> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(INSIDE)
            .setns_by_fd(namespace.as_raw_fd())
            .build();
        let pair = LinkMessageBuilder::<LinkVeth>::new(&outside_name(sandbox), INSIDE)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .controller(self.bridge)
            .up()
            .build();
        self.link
            .handle
            .link()
            .add(pair)
            .execute()
            .await
            .map_err(netlink("add the link of a sandbox"))?;
        let index = inside
            .index(INSIDE)
            .await?
            .ok_or_else(|| Error::NoLink(INSIDE.to_owned()))?;
        let (gateway, prefix) = {
            let pool = self.pool();
            (pool.gateway(), pool.prefix())
        };
        inside.up(LOOPBACK).await?;
        inside.add_address(index, address, prefix).await?;
        inside.up(index).await?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(gateway)
            .build();
        inside
            .handle
            .route()
            .add(route)
            .execute()
            .await
            .map_err(netlink("add the default route of a sandbox"))
    }

    /// Removes the sandbox's link, if it still exists, and frees its address.
    pub async fn detach(&self, sandbox: &str, address: Ipv4Addr) {
        let name = outside_name(sandbox);
        match self.link.index(&name).await {
            Ok(Some(index)) => {
                if let Err(error) = self.link.handle.link().del(index).execute().await {
                    // The link also disappears with the namespace.
                    tracing::debug!(link = name, %error, "Link was already removed");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(link = name, %error, "Cannot look up the link"),
        }
        self.pool().release(address);
    }

    fn pool(&self) -> parking_lot::MutexGuard<'_, AddressPool> {
        self.pool.lock()
    }
}

async fn make_bridge(link: &Link, gateway: Ipv4Addr, prefix: u8) -> Result<u32, Error> {
    // A bridge without an address of its own takes that of its newest port, while neighbours still use the old one.
    let mut hardware_address = vec![0x02, 0x42];
    hardware_address.extend_from_slice(&gateway.octets());
    let bridge = LinkBridge::new(BRIDGE).address(hardware_address).build();
    link.handle
        .link()
        .add(bridge)
        .execute()
        .await
        .map_err(netlink("add the bridge of the sandboxes"))?;
    let index = link
        .index(BRIDGE)
        .await?
        .ok_or_else(|| Error::NoLink(BRIDGE.to_owned()))?;
    link.add_address(index, gateway, prefix).await?;
    link.up(index).await?;
    Ok(index)
}

/// Returns the name of the node's end of a sandbox's link; link names have at most 15 bytes.
fn outside_name(sandbox: &str) -> String {
    format!("pod{}", sandbox.get(..12).unwrap_or(sandbox))
}
