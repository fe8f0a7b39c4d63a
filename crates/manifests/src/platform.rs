//! Properties of the cluster that the objects depend on: its kind and its TLS settings.

use std::fmt;

use api::openshift::config::TlsSecurityProfile;

/// Kind of cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Plain Kubernetes.
    #[default]
    Kubernetes,
    /// OpenShift with machine config pools.
    OpenShift,
    /// OpenShift with a hosted control plane.
    HyperShift,
}

impl Platform {
    /// Parses a name in any case. `None` means that the platform is detected (operator.md 2).
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Kubernetes, Self::OpenShift, Self::HyperShift]
            .into_iter()
            .find(|platform| platform.to_string().eq_ignore_ascii_case(name))
    }

    /// Returns whether this is one of the OpenShift kinds, which sign serving certificates and have security context constraints.
    pub fn is_openshift(self) -> bool {
        self != Self::Kubernetes
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubernetes => "Kubernetes",
            Self::OpenShift => "OpenShift",
            Self::HyperShift => "HyperShift",
        })
    }
}

/// TLS settings of the operands, with Go's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Minimum version, such as `VersionTLS12`; empty for none.
    pub min_version: String,
    /// IANA names separated by commas; empty when only the version counts.
    pub cipher_suites: String,
}

/// The TLS security profile cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The profile is `Custom` but has no settings.
    #[error("the TLS security profile of the cluster is Custom without settings")]
    NoCustomProfile,
}

/// Names of cipher suites: the OpenSSL name, which profiles use, and the IANA name, which programs take. Suites that Go does not have are
/// left out.
const SUITES: [(&str, &str); 21] = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES128-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    ),
    (
        "ECDHE-RSA-AES128-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES128-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    ),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (
        "ECDHE-ECDSA-AES256-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    ),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
    ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
];
/// Number of suites of the Intermediate profile; they come first in [`SUITES`].
const INTERMEDIATE: usize = 9;

impl TlsSettings {
    /// Returns the settings of the Intermediate profile, which is also the default (operator.md 2.2).
    pub fn intermediate() -> Self {
        Self::of(
            "VersionTLS12",
            SUITES[..INTERMEDIATE].iter().map(|suite| suite.0),
        )
    }

    /// Returns the settings of a cluster's profile. An unknown profile counts as Intermediate.
    pub fn of_profile(profile: Option<&TlsSecurityProfile>) -> Result<Self, TlsError> {
        let Some(profile) = profile else {
            return Ok(Self::intermediate());
        };
        Ok(match profile.profile.as_str() {
            "Old" => Self::of("VersionTLS10", SUITES.iter().map(|suite| suite.0)),
            "Modern" => Self::of("VersionTLS13", []),
            "Custom" => {
                let custom = profile.custom.as_ref().ok_or(TlsError::NoCustomProfile)?;
                Self::of(
                    &custom.min_version,
                    custom.ciphers.iter().map(String::as_str),
                )
            }
            _ => Self::intermediate(),
        })
    }

    /// Iterates over the suites.
    pub fn suites(&self) -> impl Iterator<Item = &str> {
        let suites = self.cipher_suites.split(',');
        suites.filter(|suite| !suite.is_empty())
    }

    fn of<'a>(min_version: &str, ciphers: impl IntoIterator<Item = &'a str>) -> Self {
        let iana = |name: &str| {
            let found = SUITES.iter().find(|(openssl, _)| *openssl == name);
            found.map(|(_, iana)| *iana)
        };
        // the suites of TLS 1.3 cannot be selected
        let suites: Vec<&str> = if min_version == "VersionTLS13" {
            Vec::new()
        } else {
            ciphers.into_iter().filter_map(iana).collect()
        };
        Self {
            min_version: min_version.into(),
            cipher_suites: suites.join(","),
        }
    }
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self::intermediate()
    }
}

#[cfg(test)]
mod tests {
    use api::openshift::config::CustomTlsProfile;
    use rstest::rstest;

    use super::*;

    fn named(profile: &str) -> TlsSecurityProfile {
        TlsSecurityProfile {
            profile: profile.into(),
            custom: None,
        }
    }

    #[rstest]
    #[case::none(None, "VersionTLS12", 9)]
    #[case::old(Some("Old"), "VersionTLS10", 21)]
    #[case::intermediate(Some("Intermediate"), "VersionTLS12", 9)]
    #[case::modern(Some("Modern"), "VersionTLS13", 0)]
    #[case::unknown(Some("Future"), "VersionTLS12", 9)]
    fn profiles_by_name(#[case] name: Option<&str>, #[case] version: &str, #[case] suites: usize) {
        let settings = TlsSettings::of_profile(name.map(named).as_ref()).unwrap();
        assert_eq!(settings.min_version, version);
        assert_eq!(settings.suites().count(), suites);
    }

    #[test]
    fn profile_in_full_keeps_its_order_and_loses_what_go_does_not_have() {
        let mut profile = named("Custom");
        assert_eq!(
            TlsSettings::of_profile(Some(&profile)),
            Err(TlsError::NoCustomProfile)
        );
        let ciphers = [
            "ECDHE-RSA-AES256-GCM-SHA384",
            "DHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
        ];
        profile.custom = Some(CustomTlsProfile {
            ciphers: ciphers.map(Into::into).into(),
            min_version: "VersionTLS11".into(),
        });
        assert_eq!(
            TlsSettings::of_profile(Some(&profile)).unwrap(),
            TlsSettings {
                min_version: "VersionTLS11".into(),
                cipher_suites:
                    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
                        .into(),
            }
        );
    }
}
