//! What all connections share.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_rustls::rustls;

use crate::access::audit;
use crate::access::authn::Users;
use crate::admission::extent::Ignored;
use crate::faults;
use crate::registry::Registry;
use crate::storage::Store;

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The address of the server.
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<Store>,
    pub(crate) registry: Registry,
    pub(crate) users: Users,
    pub(crate) disabled_admission: Vec<String>,
    pub(crate) ignored: Ignored,
    pub(crate) proxies_to_loopback: bool,
    pub(crate) faults: Arc<faults::State>,
    pub(crate) audit: audit::Record,
    pub(crate) kubelet_client: Arc<rustls::ClientConfig>,
}
