//! Addresses and links of a cluster: all of them live in network namespaces of their own and disappear with them.
//!
//! ```text
//!  host netns            cluster netns                         node netns
//!  nropK .2 ───uplink── br0 198.18.K.1 (API server) ── nI ── eth0 198.18.K.(10+I) ── pods 10.244.I.0/24
//!                        lo 10.96.0.1 (ClusterIP)
//! ```

use std::fs::File;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use cluster_spec::subnet::{KUBERNETES_SERVICE, SERVICE_RANGE, Subnet};
use nix::sched::{CloneFlags, setns, unshare};

/// Maximum number of nodes of the address plan.
pub const MAX_NODES: usize = 200;
/// The pod networks of all nodes.
pub(crate) const POD_NETWORKS: &str = "10.244.0.0/16";
/// Prefix length of the pod network of one node.
pub const POD_PREFIX: u8 = 24;

const BRIDGE: &str = "br0";
const UPLINK: &str = "uplink";

/// Returns the first address of the pod network of the node with this index; the node's own bridge has it.
pub fn pod_gateway(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, u8::try_from(index).unwrap_or(u8::MAX), 1)
}

/// Returns the pod network of the node with this index.
pub(crate) fn pod_network(index: usize) -> String {
    format!("10.244.{index}.0/{POD_PREFIX}")
}

/// Why a network could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program `ip` could not be started.
    #[error("cannot run the program ip of iproute2")]
    Ip(#[source] std::io::Error),
    /// `ip` refused a command.
    #[error("ip refused one of [{commands}]: {message}")]
    Refused {
        /// The commands of the batch, separated by semicolons.
        commands: String,
        /// What `ip` wrote.
        message: String,
    },
    /// A namespace could not be opened, created or entered.
    #[error("cannot {action}")]
    Namespace {
        /// The failed action.
        action: &'static str,
        /// The cause.
        #[source]
        source: nix::Error,
    },
    /// A file under `/proc` could not be read or written.
    #[error("cannot use a network file of the namespace")]
    Proc(#[from] std::io::Error),
    /// All 256 numbers are in use.
    #[error("no free network 198.18.N.0/24 on this machine")]
    NoFreeSubnet,
}

/// Two network namespaces between which this (single-threaded) process switches: the original one, and a new one.
pub(crate) struct NetworkNamespaces {
    outer: File,
    inner: File,
}

impl NetworkNamespaces {
    /// Creates a new network namespace (and the others in `others`) and stays in it.
    pub(crate) fn enter_new(others: CloneFlags) -> Result<Self, Error> {
        let outer = File::open("/proc/self/ns/net")?;
        unshare(CloneFlags::CLONE_NEWNET | others).map_err(|source| Error::Namespace {
            action: "make new namespaces",
            source,
        })?;
        let inner = File::open("/proc/self/ns/net")?;
        Ok(Self { outer, inner })
    }

    /// Runs `ip` commands in the original namespace. `{inner}` in a command stands for the new namespace in a form that `ip` accepts after
    /// `netns`.
    fn ip_outside(&self, commands: &[String]) -> Result<(), Error> {
        // The path names a descriptor of this process, because the child's copy is closed at exec.
        let inner = format!("/proc/{}/fd/{}", std::process::id(), self.inner.as_raw_fd());
        let commands: Vec<String> = commands
            .iter()
            .map(|command| command.replace("{inner}", &inner))
            .collect();
        enter(&self.outer)?;
        let outcome = ip(&commands);
        enter(&self.inner)?;
        outcome
    }
}

fn enter(namespace: &File) -> Result<(), Error> {
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|source| Error::Namespace {
        action: "enter a network namespace",
        source,
    })
}

/// Sets up the cluster's side of the network in the new namespace; returns the subnet that was free.
pub(crate) fn set_up_cluster(namespaces: &NetworkNamespaces) -> Result<Subnet, Error> {
    let subnet = claim_subnet(namespaces)?;
    let gateway = subnet.gateway();
    ip(&[
        "link set lo up".to_owned(),
        format!("address add {KUBERNETES_SERVICE}/32 dev lo"),
        format!("route add unreachable {SERVICE_RANGE}"),
        format!("link add {BRIDGE} type bridge"),
        format!("address add {gateway}/24 dev {BRIDGE}"),
        format!("link set {BRIDGE} up"),
        format!("link set {UPLINK} master {BRIDGE} up"),
    ])?;
    enable_forwarding()?;
    namespaces.ip_outside(&[
        format!(
            "address add {}/24 dev {}",
            subnet.host(),
            subnet.host_link()
        ),
        format!("link set {} up", subnet.host_link()),
    ])?;
    Ok(subnet)
}

/// The link of a cluster on this machine. Another cluster may have one of the same name later, but not with the same index.
#[derive(Debug)]
pub(crate) struct HostLink {
    name: String,
    index: String,
}

impl HostLink {
    /// Returns the link of the cluster that has this subnet now.
    pub(crate) fn of(subnet: Subnet) -> Option<Self> {
        let name = subnet.host_link();
        let index = index_of(&name)?;
        Some(Self { name, index })
    }

    /// Deletes it if it is left when the processes of the cluster are gone. The kernel keeps a network namespace, and the link with it, for
    /// minutes while it still sends what a process that was killed had written and nobody takes.
    pub(crate) fn delete(&self) {
        if index_of(&self.name).as_ref() != Some(&self.index) {
            return;
        }
        // the kernel may be faster
        if let Err(error) = ip(&[format!("link delete {}", self.name)])
            && index_of(&self.name).as_ref() == Some(&self.index)
        {
            tracing::warn!(%error, link = self.name, "Could not delete the link of a cluster; it goes later");
        }
    }
}

fn index_of(link: &str) -> Option<String> {
    std::fs::read_to_string(format!("/sys/class/net/{link}/ifindex")).ok()
}

/// Takes the first number whose link name and addresses are free in the original namespace.
fn claim_subnet(namespaces: &NetworkNamespaces) -> Result<Subnet, Error> {
    enter(&namespaces.outer)?;
    let used = used_subnets();
    enter(&namespaces.inner)?;
    let mut last_refusal = None;
    for number in (0..=u8::MAX).filter(|number| !used.contains(number)) {
        let subnet = Subnet(number);
        let add = format!(
            "link add {} type veth peer name {UPLINK} netns {{inner}}",
            subnet.host_link()
        );
        match namespaces.ip_outside(&[add]) {
            Ok(()) => return Ok(subnet),
            // Another cluster was faster, or the name is taken for another reason.
            Err(error @ Error::Refused { .. }) => {
                let exists =
                    matches!(&error, Error::Refused { message, .. } if message.contains("exists"));
                if !exists {
                    return Err(error);
                }
                last_refusal = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(last_refusal.unwrap_or(Error::NoFreeSubnet))
}

/// Returns the third octets of all addresses 198.18.N.x in the current network namespace.
fn used_subnets() -> Vec<u8> {
    let Ok(addresses) = nix::ifaddrs::getifaddrs() else {
        return Vec::new();
    };
    addresses
        .filter_map(|interface| {
            let address = interface.address?;
            let octets = address.as_sockaddr_in()?.ip().octets();
            (octets[..2] == [198, 18]).then_some(octets[2])
        })
        .collect()
}

/// Sets up the network of one node in the new namespace of this process, which came from the cluster's namespace.
pub(crate) fn set_up_node(
    namespaces: &NetworkNamespaces,
    subnet: Subnet,
    index: usize,
    nodes: usize,
) -> Result<(), Error> {
    let address = subnet.node(index);
    namespaces.ip_outside(&[
        format!("link add n{index} type veth peer name eth0 netns {{inner}}"),
        format!("link set n{index} master {BRIDGE} up"),
        format!("route add {} via {address}", pod_network(index)),
    ])?;
    let mut commands = vec![
        "link set lo up".to_owned(),
        format!("address add {address}/24 dev eth0"),
        "link set eth0 up".to_owned(),
        format!("route add default via {}", subnet.gateway()),
    ];
    commands.extend((0..nodes).filter(|other| *other != index).map(|other| {
        format!(
            "route add {} via {}",
            pod_network(other),
            subnet.node(other)
        )
    }));
    ip(&commands)?;
    enable_forwarding()
}

/// Enables routing between the links of the current network namespace. This file belongs to the namespace, not to the host.
fn enable_forwarding() -> Result<(), Error> {
    fs_err::write("/proc/sys/net/ipv4/ip_forward", "1\n")?;
    Ok(())
}

/// Runs several `ip` commands in one process.
fn ip(commands: &[String]) -> Result<(), Error> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::Ip)?;
    if let Some(mut input) = child.stdin.take() {
        input
            .write_all(format!("{}\n", commands.join("\n")).as_bytes())
            .map_err(Error::Ip)?;
    }
    let output = child.wait_with_output().map_err(Error::Ip)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Refused {
        commands: commands.join("; "),
        message: String::from_utf8_lossy(&output.stderr)
            .trim()
            .replace('\n', " "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_cluster_follow_from_its_number() {
        let subnet = Subnet(7);
        assert_eq!(subnet.gateway().to_string(), "198.18.7.1");
        assert_eq!(subnet.host().to_string(), "198.18.7.2");
        assert_eq!(subnet.node(3).to_string(), "198.18.7.13");
        assert_eq!(subnet.host_link(), "nrop7");
        assert_eq!(pod_gateway(3).to_string(), "10.244.3.1");
        assert_eq!(pod_network(3), "10.244.3.0/24");
    }

    #[test]
    fn link_names_fit_into_the_kernels_fifteen_characters() {
        assert!(Subnet(255).host_link().len() <= 15);
    }
}
