//! TLS versions and cipher suites by the names that Go gives them.

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};

use super::Error;

static ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Returns the versions from a minimum on.
pub(super) fn versions(min: &str) -> Result<&'static [&'static SupportedProtocolVersion], Error> {
    match min {
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(rustls::ALL_VERSIONS),
        "VersionTLS13" => Ok(ONLY_13),
        other => Err(Error::Version(other.to_owned())),
    }
}

/// Selects the cipher suites with these Go names. Go and rustls use the same names, except that some older Go names lack the suffix
/// `_SHA256`. Known names that rustls does not offer (CBC, RSA key exchange) are skipped, because administrators usually list them for old
/// clients.
pub(super) fn provider(names: &[String]) -> Result<CryptoProvider, Error> {
    let mut provider = ring::default_provider();
    if names.iter().all(|name| name.trim().is_empty()) {
        return Ok(provider);
    }
    for name in names {
        if !name.starts_with("TLS_") {
            return Err(Error::Cipher(name.clone()));
        }
    }
    let wanted = |suite: &rustls::SupportedCipherSuite| {
        let offered = format!("{:?}", suite.suite());
        // as in Go, TLS 1.3 suites are always enabled and cannot be selected
        suite.tls13().is_some()
            || names.iter().any(|name| {
                let name = name.trim();
                name == offered || format!("{name}_SHA256") == offered
            })
    };
    provider.cipher_suites.retain(wanted);
    Ok(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::default("", 2)]
    #[case::old("VersionTLS10", 2)]
    #[case::only_13("VersionTLS13", 1)]
    fn minimum_version_limits_the_versions(#[case] min: &str, #[case] count: usize) {
        assert_eq!(versions(min).expect("known").len(), count);
    }

    #[test]
    fn unknown_names_are_refused() {
        assert!(matches!(versions("TLS1.2"), Err(Error::Version(_))));
        assert!(matches!(
            provider(&["AES".to_owned()]),
            Err(Error::Cipher(_))
        ));
    }

    #[test]
    fn go_names_choose_the_tls12_suites_and_never_the_tls13_ones() {
        let chosen = provider(&[
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(),
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305".to_owned(),
            "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned(),
        ])
        .expect("some are offered");
        assert_eq!(
            chosen
                .cipher_suites
                .iter()
                .filter(|suite| suite.tls13().is_none())
                .count(),
            2
        );
        assert_eq!(
            chosen
                .cipher_suites
                .iter()
                .filter(|suite| suite.tls13().is_some())
                .count(),
            3
        );
    }
}
