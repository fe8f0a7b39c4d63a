//! Warnings about the certificate and the key of a TLS secret that are no pair. The texts are those of Go's `tls.X509KeyPair`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio_rustls::rustls::crypto::ring::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};

/// Returns why certificate and key are no pair. Keys that cannot be read here, such as short ones of RSA, may be of any certificate.
pub(super) fn why_no_pair(secret: &Value) -> Option<String> {
    if secret["type"] != "kubernetes.io/tls" {
        return None;
    }
    let blocks = |field: &str| -> Vec<Pem> {
        let text = secret["data"][field].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(text).unwrap_or_default();
        let blocks = Pem::iter_from_buffer(&bytes);
        blocks.map_while(Result::ok).collect()
    };
    let (certificates, keys) = (blocks("tls.crt"), blocks("tls.key"));
    let is_key =
        |block: &&Pem| block.label == "PRIVATE KEY" || block.label.ends_with(" PRIVATE KEY");
    let Some(certificate) = certificates
        .iter()
        .find(|block| block.label == "CERTIFICATE")
    else {
        return Some(no_certificate(&labels(&certificates)));
    };
    let Some(key) = keys.iter().find(is_key) else {
        return Some(no_key(&labels(&keys)));
    };
    let Ok(certificate) = certificate.parse_x509() else {
        return Some("x509: malformed certificate".to_owned());
    };
    let Ok(key) = PrivateKeyDer::try_from(&*key.contents) else {
        return Some("tls: failed to parse private key".to_owned());
    };
    let signer = any_supported_type(&key).ok()?;
    let public = signer.public_key()?;
    let (_, of_key) = SubjectPublicKeyInfo::from_der(&public).ok()?;
    let of_certificate = certificate.public_key();
    if of_key.algorithm.algorithm != of_certificate.algorithm.algorithm {
        return Some("tls: private key type does not match public key type".to_owned());
    }
    let is_same = of_key.subject_public_key == of_certificate.subject_public_key;
    (!is_same).then(|| "tls: private key does not match public key".to_owned())
}

fn labels(blocks: &[Pem]) -> Vec<&str> {
    blocks.iter().map(|block| block.label.as_str()).collect()
}

fn no_certificate(found: &[&str]) -> String {
    match found {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [key] if key.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
        others => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    }
}

fn no_key(found: &[&str]) -> String {
    match found {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        ["CERTIFICATE"] => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        others => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            others.join(" ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm,
    };
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Returns a certificate and its key.
    fn pair(algorithm: &'static SignatureAlgorithm) -> (String, String) {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["example.com".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn secret(certificate: &str, key: &str) -> Value {
        let data =
            json!({"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)});
        json!({"type": "kubernetes.io/tls", "data": data})
    }

    #[test]
    fn a_pair_is_one() {
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ED25519] {
            let (certificate, key) = pair(algorithm);
            assert_eq!(why_no_pair(&secret(&certificate, &key)), None);
        }
    }

    #[test]
    fn keys_of_other_certificates_are_told() {
        let (certificate, _) = pair(&PKCS_ECDSA_P256_SHA256);
        for (algorithm, why) in [
            (
                &PKCS_ECDSA_P256_SHA256,
                "tls: private key does not match public key",
            ),
            (
                &PKCS_ED25519,
                "tls: private key type does not match public key type",
            ),
        ] {
            let (_, key) = pair(algorithm);
            assert_eq!(
                why_no_pair(&secret(&certificate, &key)).as_deref(),
                Some(why)
            );
        }
    }

    #[rstest]
    #[case("a", "b", "tls: failed to find any PEM data in certificate input")]
    #[case(
        "KEY",
        "KEY",
        "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
    )]
    #[case("CERT", "", "tls: failed to find any PEM data in key input")]
    #[case(
        "CERT",
        "CERT",
        "tls: found a certificate rather than a key in the PEM for the private key"
    )]
    #[case(
        "CERT",
        "-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----\n",
        "tls: failed to parse private key"
    )]
    #[case(
        "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n",
        "KEY",
        "x509: malformed certificate"
    )]
    #[case(
        "-----BEGIN A-----\nYQ==\n-----END A-----\n-----BEGIN B-----\nYQ==\n-----END B-----\n",
        "KEY",
        "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [A B]"
    )]
    fn what_is_missing_is_told(#[case] certificate: &str, #[case] key: &str, #[case] why: &str) {
        let (real_certificate, real_key) = pair(&PKCS_ECDSA_P256_SHA256);
        let real = |text: &str| match text {
            "CERT" => real_certificate.clone(),
            "KEY" => real_key.clone(),
            other => other.to_owned(),
        };
        let found = why_no_pair(&secret(&real(certificate), &real(key)));
        assert_eq!(found.as_deref(), Some(why));
    }
}
