//! The TLS profile of the cluster, and what exporters are told of it.

use api::openshift::config::TlsSecurityProfile;
use k8s_openapi::api::apps::v1::DaemonSet;

use crate::context::checks::first_container;
use crate::step::StepError;

/// Flag of the smallest version.
pub(super) const MIN_VERSION: &str = "--metrics-tls-min-version";
/// Flag of the suites.
pub(super) const CIPHERS: &str = "--metrics-tls-cipher-suites";

/// Go's names of the suites of the Intermediate profile, in its order.
pub(super) const SUITES: [&str; 9] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// A TLS profile by name, and the exporters' flags under it: the minimum version, and whether suites can be chosen at all.
pub(super) struct Profile {
    pub(super) name: &'static str,
    pub(super) min_version: &'static str,
    pub(super) has_ciphers: bool,
}

impl Profile {
    /// Returns the smallest version and the suites that exporters have to be started with; no suites where they cannot be chosen.
    pub(super) fn flags(&self) -> (String, String) {
        let suites = if self.has_ciphers { &SUITES[..] } else { &[] };
        (self.min_version.to_owned(), suites.join(","))
    }

    /// Returns the profile of a cluster.
    pub(super) fn of(cluster: Option<&TlsSecurityProfile>) -> Result<Self, StepError> {
        match cluster.map(|cluster| cluster.profile.as_str()) {
            None | Some("" | "Intermediate") => Ok(INTERMEDIATE),
            Some("Modern") => Ok(MODERN),
            Some(other) => Err(StepError::Skip(format!(
                "the cluster's TLS profile is {other}"
            ))),
        }
    }
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

pub(super) const INTERMEDIATE: Profile = Profile {
    name: "Intermediate",
    min_version: "VersionTLS12",
    has_ciphers: true,
};
pub(super) const MODERN: Profile = Profile {
    name: "Modern",
    min_version: "VersionTLS13",
    has_ciphers: false,
};

/// Returns the arguments of the first container.
fn arguments(set: &DaemonSet) -> Vec<String> {
    let template = set.spec.as_ref().map(|spec| &spec.template);
    first_container(template)
        .and_then(|one| one.args.clone())
        .unwrap_or_default()
}
