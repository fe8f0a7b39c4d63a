//! What the objects depend on: the kind of cluster and its TLS settings.

use std::fmt;

/// Kind of cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Any Kubernetes.
    #[default]
    Kubernetes,
    /// OpenShift with machine config pools.
    OpenShift,
    /// OpenShift with a hosted control plane.
    HyperShift,
}

impl Platform {
    /// Reads a name in any case; other names mean that the platform is to be detected (operator.md 2).
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Kubernetes, Self::OpenShift, Self::HyperShift]
            .into_iter()
            .find(|platform| platform.to_string().eq_ignore_ascii_case(name))
    }

    /// Whether this is one of the OpenShift kinds, which sign serving certificates and know security context constraints.
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

/// TLS settings handed to the operands, in Go's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Smallest version, such as `VersionTLS12`; empty for none.
    pub min_version: String,
    /// Comma-joined IANA names; empty when the version alone decides.
    pub cipher_suites: String,
}

impl TlsSettings {
    /// The Intermediate profile, which also holds where no profile is set (operator.md 2.2).
    pub fn intermediate() -> Self {
        let suites = [
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
        Self {
            min_version: "VersionTLS12".into(),
            cipher_suites: suites.join(","),
        }
    }
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self::intermediate()
    }
}
