//! The certificate authority of the cluster. It signs the server's certificate and the client certificates.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};

use super::any_certificate::AnyCertificate;
use crate::error::Error;

/// A certificate authority with its key.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority.
    pub(crate) fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name
            .push(DnType::CommonName, "numaresources-embedded-ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = ca.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(ca, key),
        })
    }

    /// Returns the authority's certificate as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate and key of a user, both as PEM.
    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Result<(String, String), Error> {
        let key = KeyPair::generate()?;
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            client.distinguished_name.push(
                DnType::OrganizationName,
                DnValue::Utf8String((*group).to_owned()),
            );
        }
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = client.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// Signs what a client asks for; returns the certificate as PEM.
    pub(crate) fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<String, rcgen::Error> {
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }

    /// Returns the TLS configuration for calls to kubelets: the server shows a certificate of this authority and accepts any certificate,
    /// as a real server does unless it is configured with an authority for kubelets.
    pub(crate) fn kubelet_client_config(&self) -> Result<ClientConfig, Error> {
        let provider = Arc::new(crypto::ring::default_provider());
        let mut client = CertificateParams::default();
        client
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver-kubelet-client");
        client
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = client.signed_by(&key, &self.issuer)?;
        Ok(ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
            .with_client_auth_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )?)
    }

    /// Returns the TLS configuration of the server at an address; clients may show certificates of this authority.
    pub(crate) fn server_config(
        &self,
        address: SocketAddr,
        service: std::net::Ipv4Addr,
    ) -> Result<ServerConfig, Error> {
        let key = KeyPair::generate()?;
        let names = vec![
            address.ip().to_string(),
            "127.0.0.1".into(),
            service.to_string(),
            "localhost".into(),
            "kubernetes".into(),
            "kubernetes.default".into(),
            "kubernetes.default.svc".into(),
            "kubernetes.default.svc.cluster.local".into(),
        ];
        let mut serving = CertificateParams::new(names)?;
        serving
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        let certificate = serving.signed_by(&key, &self.issuer)?;
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|error| {
                    tokio_rustls::rustls::Error::General(format!("client certificates: {error}"))
                })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
