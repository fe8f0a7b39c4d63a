//! The TLS profile of the cluster, and what servers are told of it (operator.md 2.2).

use api::openshift::config::TlsSecurityProfile;
use k8s_openapi::api::apps::v1::DaemonSet;

use crate::context::checks::first_container;
use crate::step::StepError;

/// Flag of the smallest version.
pub(super) const MIN_VERSION: &str = "--metrics-tls-min-version";
/// Flag of the suites.
pub(super) const CIPHERS: &str = "--metrics-tls-cipher-suites";

/// A cipher suite: OpenSSL's name, which profiles use, the IANA name, which programs take, and the number on the wire.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suite {
    openssl: &'static str,
    pub(super) iana: &'static str,
    pub(super) number: u16,
}

const fn suite(openssl: &'static str, iana: &'static str, number: u16) -> Suite {
    Suite {
        openssl,
        iana,
        number,
    }
}

/// Every suite of the profile Old that Go has, in the profile's order. Those of Intermediate come first.
static SUITES: [Suite; 21] = [
    suite("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", 0x1301),
    suite("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", 0x1302),
    suite(
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
        0x1303,
    ),
    suite(
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        0xc02b,
    ),
    suite(
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        0xc02f,
    ),
    suite(
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        0xc02c,
    ),
    suite(
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        0xc030,
    ),
    suite(
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        0xcca9,
    ),
    suite(
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        0xcca8,
    ),
    suite(
        "ECDHE-ECDSA-AES128-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        0xc023,
    ),
    suite(
        "ECDHE-RSA-AES128-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        0xc027,
    ),
    suite(
        "ECDHE-ECDSA-AES128-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        0xc009,
    ),
    suite(
        "ECDHE-RSA-AES128-SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        0xc013,
    ),
    suite(
        "ECDHE-ECDSA-AES256-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        0xc00a,
    ),
    suite(
        "ECDHE-RSA-AES256-SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        0xc014,
    ),
    suite(
        "AES128-GCM-SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        0x009c,
    ),
    suite(
        "AES256-GCM-SHA384",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        0x009d,
    ),
    suite("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256", 0x003c),
    suite("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA", 0x002f),
    suite("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA", 0x0035),
    suite("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA", 0x000a),
];
/// Number of suites of the profile Intermediate.
const INTERMEDIATE: usize = 9;

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

impl Version {
    const ALL: [Self; 4] = [Self::Tls10, Self::Tls11, Self::Tls12, Self::Tls13];

    /// Returns the name in profiles and flags.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tls10 => "VersionTLS10",
            Self::Tls11 => "VersionTLS11",
            Self::Tls12 => "VersionTLS12",
            Self::Tls13 => "VersionTLS13",
        }
    }

    /// Returns the number on the wire (RFC 8446, 4.2.1).
    pub(super) fn number(self) -> u16 {
        match self {
            Self::Tls10 => 0x0301,
            Self::Tls11 => 0x0302,
            Self::Tls12 => 0x0303,
            Self::Tls13 => 0x0304,
        }
    }

    /// Returns the version before; `None` for the first.
    pub(super) fn below(self) -> Option<Self> {
        let mut lower = Self::ALL.into_iter().rev();
        lower.find(|other| *other < self)
    }
}

/// A TLS profile.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Profile {
    /// Its name in the cluster's settings.
    pub(super) name: &'static str,
    /// The smallest version.
    pub(super) min_version: Version,
    /// The suites that servers may choose, in order; none where they cannot be chosen, as in TLS 1.3.
    pub(super) suites: Vec<&'static Suite>,
}

impl Profile {
    /// Returns the profile that applies where a cluster names none.
    pub(super) fn intermediate() -> Self {
        let suites = SUITES.iter().take(INTERMEDIATE);
        Self::new("Intermediate", Version::Tls12, suites)
    }

    /// Returns the profile with nothing before TLS 1.3.
    pub(super) fn modern() -> Self {
        Self::new("Modern", Version::Tls13, [].iter())
    }

    fn new(
        name: &'static str,
        min_version: Version,
        suites: impl Iterator<Item = &'static Suite>,
    ) -> Self {
        Self {
            name,
            min_version,
            suites: suites.filter(|_| min_version < Version::Tls13).collect(),
        }
    }

    /// Returns the profile of a cluster.
    ///
    /// # Errors
    /// Asks to skip what needs it if the profile is one that nobody knows.
    pub(super) fn of(cluster: Option<&TlsSecurityProfile>) -> Result<Self, StepError> {
        let Some(cluster) = cluster else {
            return Ok(Self::intermediate());
        };
        match (cluster.profile.as_str(), &cluster.custom) {
            ("" | "Intermediate", _) => Ok(Self::intermediate()),
            ("Modern", _) => Ok(Self::modern()),
            ("Old", _) => Ok(Self::new("Old", Version::Tls10, SUITES.iter())),
            ("Custom", Some(custom)) => {
                let named = |version: &Version| version.name() == custom.min_version;
                let min_version = Version::ALL.into_iter().find(named).ok_or_else(|| {
                    let version = &custom.min_version;
                    StepError::Skip(format!(
                        "the cluster's TLS profile has the smallest version {version:?}"
                    ))
                })?;
                let suites = custom.ciphers.iter();
                let suites =
                    suites.filter_map(|name| SUITES.iter().find(|suite| suite.openssl == *name));
                Ok(Self::new("Custom", min_version, suites))
            }
            (other, _) => Err(StepError::Skip(format!(
                "the cluster's TLS profile is {other}"
            ))),
        }
    }

    /// Returns the smallest version and the suites that exporters have to be started with; no suites where they cannot be chosen.
    pub(super) fn flags(&self) -> (String, String) {
        let suites: Vec<&str> = self.suites.iter().map(|suite| suite.iana).collect();
        (self.min_version.name().to_owned(), suites.join(","))
    }

    /// Returns the first suite of the profile Old before TLS 1.3 that servers must refuse; `None` where suites cannot be chosen, or all are
    /// allowed (scenarios-other.md 6).
    pub(super) fn refused(&self) -> Option<&'static Suite> {
        let mut older = SUITES.iter().filter(|suite| !is_of_1_3(suite));
        older.find(|suite| self.min_version < Version::Tls13 && !self.suites.contains(suite))
    }

    /// Returns a suite for a client that has to be refused for its version alone: one of the profile's, where it has any before TLS 1.3.
    pub(super) fn accepted(&self) -> &'static Suite {
        let mut own = self.suites.iter().filter(|suite| !is_of_1_3(suite));
        own.next().copied().unwrap_or(&SUITES[3])
    }
}

fn is_of_1_3(suite: &Suite) -> bool {
    suite.openssl.starts_with("TLS_")
}

/// Returns the minimum version and the suites that exporters are started with.
pub(super) fn tls_flags(set: &DaemonSet) -> (String, String) {
    let args = arguments(set);
    let flag = |name: &str| {
        let mut values = args
            .iter()
            .filter_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
        values.next().unwrap_or_default().to_owned()
    };
    (flag(MIN_VERSION), flag(CIPHERS))
}

/// Returns the arguments of the first container.
fn arguments(set: &DaemonSet) -> Vec<String> {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    first_container(template)
        .and_then(|one| one.args.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::openshift::config::CustomTlsProfile;
    use rstest::rstest;

    use super::*;

    fn custom(min_version: &str, ciphers: &[&str]) -> TlsSecurityProfile {
        TlsSecurityProfile {
            profile: "Custom".to_owned(),
            custom: Some(CustomTlsProfile {
                ciphers: ciphers.iter().map(|name| (*name).to_owned()).collect(),
                min_version: min_version.to_owned(),
            }),
        }
    }

    fn named(profile: &str) -> TlsSecurityProfile {
        TlsSecurityProfile {
            profile: profile.to_owned(),
            custom: None,
        }
    }

    #[rstest]
    #[case(named("Intermediate"), Some(Version::Tls11), Some(0xc023))]
    #[case(named("Modern"), Some(Version::Tls12), None)]
    // nothing is below, and everything is allowed
    #[case(named("Old"), None, None)]
    #[case(custom("VersionTLS11", &["ECDHE-RSA-AES128-GCM-SHA256"]), Some(Version::Tls10), Some(0xc02b))]
    #[case(custom("VersionTLS13", &["ECDHE-RSA-AES128-GCM-SHA256"]), Some(Version::Tls12), None)]
    fn what_servers_must_refuse(
        #[case] cluster: TlsSecurityProfile,
        #[case] version: Option<Version>,
        #[case] suite: Option<u16>,
    ) {
        let profile = Profile::of(Some(&cluster)).unwrap();
        assert_eq!(profile.min_version.below(), version);
        assert_eq!(profile.refused().map(|suite| suite.number), suite);
    }

    #[test]
    fn suites_that_go_does_not_have_are_not_in_the_flags() {
        let names = [
            "DHE-RSA-AES128-GCM-SHA256",
            "AES128-SHA",
            "ECDHE-RSA-AES128-GCM-SHA256",
        ];
        let profile = Profile::of(Some(&custom("VersionTLS12", &names))).unwrap();
        let suites = "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let flags = ("VersionTLS12".to_owned(), suites.to_owned());
        assert_eq!(profile.flags(), flags);
    }

    #[rstest]
    #[case(named("Future"))]
    #[case(named("Custom"))]
    #[case(custom("", &[]))]
    fn what_nobody_knows_is_skipped(#[case] cluster: TlsSecurityProfile) {
        let error = Profile::of(Some(&cluster)).unwrap_err();
        assert!(matches!(error, StepError::Skip(_)), "{error:?}");
    }
}
