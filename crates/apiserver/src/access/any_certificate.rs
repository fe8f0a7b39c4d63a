//! Clients that accept any certificate of a server.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Accepts any certificate, as Go's clients do with `InsecureSkipVerify`: whoever signed it, whatever its names and its dates are. The
/// server only has to hold the key of the certificate that it shows.
#[derive(Debug)]
pub struct AnyCertificate(Arc<CryptoProvider>);

impl AnyCertificate {
    /// Creates a verifier that knows the signatures of this provider.
    #[must_use]
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        unless_wrong(crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            known,
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        unless_wrong(crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            known,
        ))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Refuses only a signature that is not of the certificate's key. Go reads certificates that rustls does not read, such as those of version
/// 1, so a certificate that cannot be read is accepted.
fn unless_wrong(
    verified: Result<HandshakeSignatureValid, Error>,
) -> Result<HandshakeSignatureValid, Error> {
    match verified {
        Err(Error::InvalidCertificate(CertificateError::BadSignature)) => verified,
        _ => Ok(HandshakeSignatureValid::assertion()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::server::ResolvesServerCert;
    use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
    use tokio_rustls::rustls::version::{TLS12, TLS13};
    use tokio_rustls::rustls::{
        ClientConfig, ClientConnection, ServerConfig, ServerConnection, SupportedProtocolVersion,
    };

    use super::*;

    fn certificate(key: &KeyPair) -> CertificateDer<'static> {
        let params = CertificateParams::new(vec!["server".to_owned()]).expect("it has a name");
        let signed = params.self_signed(key).expect("the key signs");
        signed.der().clone()
    }

    /// Returns what the client says to a server that shows a certificate and signs with a key.
    fn handshake(
        version: &'static SupportedProtocolVersion,
        shown: CertificateDer<'static>,
        key: &KeyPair,
    ) -> Result<(), Error> {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let key = provider.key_provider.load_private_key(key);
        let held = CertifiedKey::new(vec![shown], key.expect("it is a key"));
        let held: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(held));
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("the provider has the version")
            .with_no_client_auth()
            .with_cert_resolver(held);
        let mut server = ServerConnection::new(Arc::new(config)).expect("it serves");
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[version])
            .expect("the provider has the version")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
            .with_no_client_auth();
        let name = ServerName::try_from("other").expect("it is a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("it connects");
        while client.is_handshaking() {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).expect("a vector takes it");
            }
            while !wire.is_empty() {
                let read = server.read_tls(&mut wire.as_slice()).expect("it reads");
                wire.drain(..read);
                server.process_new_packets()?;
            }
            while server.wants_write() {
                server.write_tls(&mut wire).expect("a vector takes it");
            }
            while !wire.is_empty() {
                let read = client.read_tls(&mut wire.as_slice()).expect("it reads");
                wire.drain(..read);
                client.process_new_packets()?;
            }
        }
        Ok(())
    }

    #[test]
    fn a_certificate_of_nobody_with_another_name_is_accepted() {
        let key = KeyPair::generate().expect("there are keys");
        for version in [&TLS12, &TLS13] {
            assert_eq!(handshake(version, certificate(&key), &key), Ok(()));
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_read_is_accepted() {
        let key = KeyPair::generate().expect("there are keys");
        let unreadable = CertificateDer::from(vec![1, 2, 3]);
        for version in [&TLS12, &TLS13] {
            assert_eq!(handshake(version, unreadable.clone(), &key), Ok(()));
        }
    }

    #[test]
    fn a_server_without_the_key_of_its_certificate_is_refused() {
        let [own, other] = [(); 2].map(|()| KeyPair::generate().expect("there are keys"));
        let wrong = Error::InvalidCertificate(CertificateError::BadSignature);
        for version in [&TLS12, &TLS13] {
            let refused = handshake(version, certificate(&other), &own);
            assert_eq!(refused, Err(wrong.clone()));
        }
    }
}
