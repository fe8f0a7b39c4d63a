//! Server-side TLS: [`Certificate`] from files or self-signed; versions and ciphers by their Go names; both go into [`server_config`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use self::by_name::ByName;
pub use self::by_name::NamedFiles;
pub use self::certificate::{
    Certificate, from_files, from_files_or_self_signed, self_signed, self_signed_until_files,
};
use self::go_names::{provider, versions};

mod by_name;
mod certificate;
mod go_names;

/// Requirements of a server for its TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `VersionTLS10` .. `VersionTLS13`, or empty for the default (1.2). rustls supports only 1.2 and 1.3, so lower values mean 1.2.
    pub min_version: String,
    /// Go cipher suite names; empty for the defaults. As in Go, they restrict only TLS 1.2.
    pub cipher_suites: Vec<String>,
    /// PEM file of certificate authorities. Clients must present a certificate of one of them; without a file clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// Certificates for clients that ask for certain names.
    pub named: Vec<NamedFiles>,
}

/// TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file contains no usable PEM of the expected kind.
    #[error("cannot use {}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The key does not match the certificate, or the combination of options is impossible.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
    /// No certificate could be generated.
    #[error("cannot make a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
    /// Not a Go version name.
    #[error("unknown tls version {0:?}")]
    Version(String),
    /// Not a Go cipher suite name.
    #[error("cipher suite {0} not supported or doesn't exist")]
    Cipher(String),
    /// The client authorities cannot be used.
    #[error("cannot verify clients")]
    ClientAuth(#[source] rustls::server::VerifierBuilderError),
}

/// Builds a rustls configuration for `certificate` and `options`.
pub fn server_config(
    certificate: Certificate,
    options: &Options,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(provider(&options.cipher_suites)?);
    let versions = versions(&options.min_version)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(Error::Setup)?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider)
                    .build()
                    .map_err(Error::ClientAuth)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let certificates: Arc<dyn ResolvesServerCert> = if options.named.is_empty() {
        Arc::new(certificate)
    } else {
        Arc::new(ByName::new(certificate, &options.named)?)
    };
    Ok(Arc::new(builder.with_cert_resolver(certificates)))
}

fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    let pem = |source| Error::Pem {
        path: path.to_owned(),
        source,
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(pem)? {
        store.add(certificate.map_err(pem)?).map_err(Error::Setup)?;
    }
    Ok(store)
}
