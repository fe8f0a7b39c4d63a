//! Why the server does not start.

use std::net::SocketAddr;

use tokio_rustls::rustls;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be generated.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The server could not listen on the address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The objects of a new cluster could not be parsed.
    #[error("cannot read the objects of a new cluster")]
    Bootstrap(#[from] serde_json::Error),
}
