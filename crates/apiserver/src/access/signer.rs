//! Certificates that clients ask for, signed by the cluster's authority.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{ExtendedKeyUsagePurpose as Extended, IsCa, KeyUsagePurpose};

use super::authority::Authority;

mod request;

/// The begin of a certificate lies so far in the past, for clocks that are behind.
const BACKDATE: Duration = Duration::from_mins(5);
/// A shorter certificate ends so much later than its begin and the time that was asked for.
const SHORT: Duration = Duration::from_hours(8);

/// Signs requests in the name of the cluster's authority; cheap to clone.
#[derive(Clone, Debug)]
pub struct Signer(Arc<Authority>);

/// Why a request is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// A usage is none of those that Kubernetes knows.
    #[error("unrecognized usage value: {0:?}")]
    Usage(String),
    /// The request is no PKCS #10 request.
    #[error("the request cannot be read")]
    Unreadable,
    /// The key of the request, or what it is signed with, is not known here.
    #[error("the kind of the key or of the signature is not supported here")]
    Key,
    /// The signature is not of the key in the request.
    #[error("the signature of the request is wrong")]
    Signature,
    /// The subject has a part that the signer would lose.
    #[error("a subject with several values of one kind is not supported here")]
    Subject,
    /// The library that signs refuses the request.
    #[error("the request cannot be signed")]
    Sign(#[from] rcgen::Error),
}

/// Returns the DER form of a request in PEM.
///
/// # Errors
/// Returns an error if the text is no such request.
pub fn request_der(pem: &[u8]) -> Result<Vec<u8>, SignError> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| SignError::Unreadable)?;
    let known = ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"];
    if !known.contains(&block.label.as_str()) {
        return Err(SignError::Unreadable);
    }
    Ok(block.contents)
}

fn usage(name: &str) -> Option<KeyUsagePurpose> {
    Some(match name {
        "signing" | "digital signature" => KeyUsagePurpose::DigitalSignature,
        "content commitment" => KeyUsagePurpose::ContentCommitment,
        "key encipherment" => KeyUsagePurpose::KeyEncipherment,
        "key agreement" => KeyUsagePurpose::KeyAgreement,
        "data encipherment" => KeyUsagePurpose::DataEncipherment,
        "cert sign" => KeyUsagePurpose::KeyCertSign,
        "crl sign" => KeyUsagePurpose::CrlSign,
        "encipher only" => KeyUsagePurpose::EncipherOnly,
        "decipher only" => KeyUsagePurpose::DecipherOnly,
        _ => return None,
    })
}

fn extended_usage(name: &str) -> Option<Extended> {
    Some(match name {
        "any" => Extended::Any,
        "server auth" => Extended::ServerAuth,
        "client auth" => Extended::ClientAuth,
        "code signing" => Extended::CodeSigning,
        "email protection" | "s/mime" => Extended::EmailProtection,
        "ipsec end system" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 5]),
        "ipsec tunnel" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 6]),
        "ipsec user" => Extended::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 7]),
        "timestamping" => Extended::TimeStamping,
        "ocsp signing" => Extended::OcspSigning,
        "microsoft sgc" => Extended::Other(vec![1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
        "netscape sgc" => Extended::Other(vec![2, 16, 840, 1, 113_730, 4, 1]),
        _ => return None,
    })
}

impl Signer {
    pub(crate) fn new(authority: Arc<Authority>) -> Self {
        Self(authority)
    }

    /// Signs a request in DER for the usages that Kubernetes names so, and for a lifetime from now. Returns the certificate as PEM.
    ///
    /// # Errors
    /// Returns an error if the request cannot be read or signed.
    pub fn sign<'a>(
        &self,
        request: &[u8],
        usages: impl IntoIterator<Item = &'a str>,
        lifetime: Duration,
    ) -> Result<String, SignError> {
        let (mut params, key) = request::read(request)?;
        for name in usages {
            if let Some(usage) = usage(name) {
                params.key_usages.push(usage);
            } else if let Some(usage) = extended_usage(name) {
                params.extended_key_usages.push(usage);
            } else {
                return Err(SignError::Usage(name.to_owned()));
            }
        }
        let now = SystemTime::now();
        let begin = now - BACKDATE;
        let end = if lifetime < SHORT { now } else { begin } + lifetime;
        params.not_before = begin.into();
        params.not_after = end.into();
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        Ok(self.0.sign(&params, &key)?)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};
    use x509_parser::pem::parse_x509_pem;

    use super::*;

    fn request() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "jane");
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        request_der(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_certificate_has_the_subject_of_the_request_and_the_usages_that_were_asked_for() {
        let signer = Signer::new(Arc::new(Authority::new().unwrap()));
        let lifetime = Duration::from_hours(1);
        let usages = ["client auth", "key encipherment"];
        let pem = signer.sign(&request(), usages, lifetime).unwrap();
        let (_, block) = parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = block.parse_x509().unwrap();
        let validity = certificate.validity();
        assert_eq!(certificate.subject().to_string(), "CN=jane");
        assert_eq!(
            validity.not_after.timestamp() - validity.not_before.timestamp(),
            3900
        );
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.key_encipherment() && !usage.digital_signature());
        let extended = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(extended.client_auth && !extended.server_auth);
        assert!(!certificate.is_ca());
    }

    #[test]
    fn a_request_with_the_signature_of_another_is_refused() {
        let signer = Signer::new(Arc::new(Authority::new().unwrap()));
        let mut forged = request();
        let end = forged.len() - 1;
        forged[end] ^= 1;
        let signed = signer.sign(&forged, ["client auth"], Duration::from_hours(1));
        assert!(matches!(signed, Err(SignError::Signature)), "{signed:?}");
    }

    #[test]
    fn other_usages_and_other_texts_are_refused() {
        let signer = Signer::new(Arc::new(Authority::new().unwrap()));
        let signed = signer.sign(&request(), ["swimming"], Duration::from_hours(1));
        assert_eq!(
            signed.unwrap_err().to_string(),
            "unrecognized usage value: \"swimming\""
        );
        let text = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(request_der(text).is_err());
        assert!(
            signer
                .sign(&[0x30, 0x00], [], Duration::from_hours(1))
                .is_err()
        );
    }
}
