//! TLS of a node's endpoint and of probes.

use std::net::Ipv4Addr;
use std::sync::Arc;

use apiserver::AnyCertificate;
use rcgen::{CertificateParams, DnType, KeyPair};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

/// Returns the server name of an address.
pub(crate) fn name_of(address: Ipv4Addr) -> ServerName<'static> {
    ServerName::IpAddress(address.into())
}

/// Creates a client configuration that accepts any certificate, as probes do.
pub(crate) fn unverified() -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate::new(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Why TLS of a node could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The certificate could not be created.
    #[error("cannot make a certificate for the node")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS for the node")]
    Tls(#[from] Error),
    /// The authority of client certificates could not be used.
    #[error("cannot verify clients of the node")]
    Clients(#[from] VerifierBuilderError),
}

/// Returns the verifier of client certificates. A client without a certificate is accepted and can authenticate by other means.
fn clients(
    provider: Arc<CryptoProvider>,
    authorities: &[Vec<u8>],
) -> Result<Arc<dyn ClientCertVerifier>, ServingError> {
    if authorities.is_empty() {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(CertificateDer::from(authority.clone()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    Ok(builder.allow_unauthenticated().build()?)
}

/// Creates a server configuration with a self-signed certificate, as kubelets have. It accepts client certificates of these authorities.
pub(crate) fn serving(
    node: &str,
    address: Ipv4Addr,
    authorities: &[Vec<u8>],
) -> Result<Arc<ServerConfig>, ServingError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![node.to_owned(), address.to_string()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{node}@1"));
    let certificate = params.self_signed(&key)?;
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients(provider, authorities)?)
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
