//! Requests in the form of PKCS #10: what they ask for, and whether the asking client has the key.

use std::net::IpAddr;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, PublicKeyData, SanType,
    SignatureAlgorithm,
};
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::SignError;

/// The public key of a request.
pub(super) struct Key {
    bits: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

/// Kinds of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    P256,
    P384,
    Rsa,
    Ed25519,
}

fn kind(info: &SubjectPublicKeyInfo<'_>) -> Option<Kind> {
    let parameters = info.algorithm.parameters.as_ref();
    let curve = parameters.and_then(|any| any.as_oid().ok());
    let curve = curve.map(|oid| oid.to_id_string());
    match (
        info.algorithm.algorithm.to_id_string().as_str(),
        curve.as_deref(),
    ) {
        ("1.2.840.10045.2.1", Some("1.2.840.10045.3.1.7")) => Some(Kind::P256),
        ("1.2.840.10045.2.1", Some("1.3.132.0.34")) => Some(Kind::P384),
        ("1.2.840.113549.1.1.1", _) => Some(Kind::Rsa),
        ("1.3.101.112", _) => Some(Kind::Ed25519),
        _ => None,
    }
}

/// Returns what checks a signature with the algorithm of this identifier by a key of this kind.
fn verifier(kind: Kind, signed_with: &str) -> Option<&'static dyn VerificationAlgorithm> {
    let verifier: &'static dyn VerificationAlgorithm = match (signed_with, kind) {
        ("1.2.840.10045.4.3.2", Kind::P256) => &signature::ECDSA_P256_SHA256_ASN1,
        ("1.2.840.10045.4.3.2", Kind::P384) => &signature::ECDSA_P384_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", Kind::P256) => &signature::ECDSA_P256_SHA384_ASN1,
        ("1.2.840.10045.4.3.3", Kind::P384) => &signature::ECDSA_P384_SHA384_ASN1,
        ("1.2.840.113549.1.1.11", Kind::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA256,
        ("1.2.840.113549.1.1.12", Kind::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA384,
        ("1.2.840.113549.1.1.13", Kind::Rsa) => &signature::RSA_PKCS1_2048_8192_SHA512,
        ("1.3.101.112", Kind::Ed25519) => &signature::ED25519,
        _ => return None,
    };
    Some(verifier)
}

/// Reads a request in DER and checks its signature. Returns subject and names of the certificate, and its key.
pub(super) fn read(der: &[u8]) -> Result<(CertificateParams, Key), SignError> {
    let (_, request) =
        X509CertificationRequest::from_der(der).map_err(|_| SignError::Unreadable)?;
    let info = &request.certification_request_info;
    let kind = kind(&info.subject_pki).ok_or(SignError::Key)?;
    let bits = info.subject_pki.subject_public_key.data.to_vec();
    let signed_with = request.signature_algorithm.algorithm.to_id_string();
    let verifier = verifier(kind, &signed_with).ok_or(SignError::Key)?;
    UnparsedPublicKey::new(verifier, &bits)
        .verify(info.raw, &request.signature_value.data)
        .map_err(|_| SignError::Signature)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&request)?;
    params.subject_alt_names = names(&request)?;
    let algorithm = match kind {
        Kind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        Kind::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        Kind::Rsa => &rcgen::PKCS_RSA_SHA256,
        Kind::Ed25519 => &rcgen::PKCS_ED25519,
    };
    Ok((params, Key { bits, algorithm }))
}

/// Returns the subject. The library that signs holds one value of each kind.
fn subject(request: &X509CertificationRequest<'_>) -> Result<DistinguishedName, SignError> {
    let mut subject = DistinguishedName::new();
    for set in request.certification_request_info.subject.iter() {
        let mut parts = set.iter();
        let (Some(part), None) = (parts.next(), parts.next()) else {
            return Err(SignError::Subject);
        };
        let oid = part.attr_type().iter().ok_or(SignError::Unreadable)?;
        let kind = DnType::CustomDnType(oid.collect());
        if subject.get(&kind).is_some() {
            return Err(SignError::Subject);
        }
        let value = part.as_str().map_err(|_| SignError::Unreadable)?;
        subject.push(kind, DnValue::Utf8String(value.to_owned()));
    }
    Ok(subject)
}

/// Returns the alternative names.
fn names(request: &X509CertificationRequest<'_>) -> Result<Vec<SanType>, SignError> {
    let mut found = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            continue;
        };
        for name in &names.general_names {
            found.push(match name {
                GeneralName::DNSName(name) => SanType::DnsName((*name).try_into()?),
                GeneralName::RFC822Name(name) => SanType::Rfc822Name((*name).try_into()?),
                GeneralName::URI(name) => SanType::URI((*name).try_into()?),
                GeneralName::IPAddress(bytes) => {
                    let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                    let sixteen = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
                    let address = four.or_else(|_| sixteen());
                    SanType::IpAddress(address.map_err(|_| SignError::Unreadable)?)
                }
                _ => return Err(SignError::Unreadable),
            });
        }
    }
    Ok(found)
}
