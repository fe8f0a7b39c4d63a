//! Serves metrics and health as configured (rte.md 8.2).

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daemon::guard::Guard;
use daemon::tls;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{MetricsMode, MetricsTls, TopologyExporter};

/// Where distributions keep the certificates of trusted authorities.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Metrics cannot be served; every cause is an error in the configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The port is not valid.
    #[error("invalid port: {0}")]
    Port(i64),
    /// The address is not valid.
    #[error("invalid address: {0}")]
    Address(String),
    /// Unknown TLS version or cipher suite, or unusable certificate or authorities.
    #[error("metrics TLS policy")]
    Tls(#[source] tls::Error),
    /// Clients must be verified, but there are no certificate authorities.
    #[error("metrics TLS policy: no certificate authorities found on this system")]
    NoAuthorities,
}

/// Serves metrics and `checks` until `stop` is cancelled. A guard says who may read the metrics; without one everybody may. Returns `None` when
/// metrics are disabled, or when the port cannot be bound: that is logged, and the exporter works without metrics.
pub(crate) async fn start(
    config: &TopologyExporter,
    registry: Registry,
    checks: daemon::admin::Checks,
    guard: Option<Guard>,
    stop: CancellationToken,
) -> Result<Option<JoinHandle<()>>, Error> {
    let tls = match config.metrics_mode {
        MetricsMode::Disabled => {
            tracing::info!("Metrics endpoint disabled");
            return Ok(None);
        }
        MetricsMode::Http => None,
        MetricsMode::HttpTls => Some(server_config(&config.metrics_tls)?),
    };
    let port = match u16::try_from(config.metrics_port) {
        Ok(port) if port > 0 => port,
        _ => return Err(Error::Port(config.metrics_port)),
    };
    let address: IpAddr = config
        .metrics_address
        .parse()
        .map_err(|_| Error::Address(config.metrics_address.clone()))?;
    let listener = match TcpListener::bind((address, port)).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%address, port, %error, "Cannot serve metrics");
            return Ok(None);
        }
    };
    let (secure, guarded) = (tls.is_some(), guard.is_some());
    tracing::info!(%address, port, tls = secure, guarded, "Serving metrics");
    let router = daemon::metrics::router(Arc::new(registry)).merge(checks.router());
    let router = match guard {
        Some(guard) => guard.protect(router),
        None => router,
    };
    let server = daemon::serve::serve(listener, tls, router, stop);
    Ok(Some(tokio::spawn(server)))
}

fn server_config(config: &MetricsTls) -> Result<Arc<rustls::ServerConfig>, Error> {
    let dir = Path::new(&config.certs_dir);
    let files = |dir: &Path| (dir.join(&config.cert_file), dir.join(&config.key_file));
    let found = [dir.to_owned(), dir.join("tls")]
        .iter()
        .map(|dir| files(dir))
        .find(|(certificate, key)| certificate.exists() && key.exists());
    let certificate = if let Some((certificate, key)) = found {
        tls::from_files(&certificate, &key)
    } else {
        let (certificate, key) = files(dir);
        tracing::warn!(certificate = %certificate.display(), key = %key.display(),
            "No certificate for metrics, using a self-signed one until there is");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        tls::self_signed_until_files(&certificate, &key, &names)
    };
    let client_ca = if config.want_cli_auth {
        Some(authorities(dir).ok_or(Error::NoAuthorities)?)
    } else {
        None
    };
    let options = tls::Options {
        min_version: config.min_tls_version.clone(),
        cipher_suites: config
            .cipher_suites
            .split(',')
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect(),
        client_ca,
        named: Vec::new(),
    };
    let certificate = certificate.map_err(Error::Tls)?;
    tls::server_config(certificate, &options).map_err(Error::Tls)
}

/// Returns the file with the certificate authorities: `ca.crt` next to the certificate, or in `ca`, where the standalone manifest mounts
/// it, or else the system's authorities. Upstream uses only the last.
fn authorities(dir: &Path) -> Option<PathBuf> {
    [dir.join("ca.crt"), dir.join("ca/ca.crt")]
        .into_iter()
        .chain(SYSTEM_AUTHORITIES.iter().map(PathBuf::from))
        .find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn tls(certs_dir: &Path) -> MetricsTls {
        MetricsTls {
            certs_dir: certs_dir.display().to_string(),
            ..MetricsTls::default()
        }
    }

    #[test]
    fn missing_certificate_is_made_and_a_broken_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(server_config(&tls(dir.path())).is_ok());
        std::fs::write(dir.path().join("tls.crt"), "nothing").unwrap();
        assert!(server_config(&tls(dir.path())).is_ok(), "there is no key");
        std::fs::write(dir.path().join("tls.key"), "nothing").unwrap();
        assert!(matches!(
            server_config(&tls(dir.path())),
            Err(Error::Tls(_))
        ));
    }

    #[rstest]
    #[case::known("VersionTLS13", "", true)]
    #[case::ciphers(
        "",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        true
    )]
    #[case::version("1.2", "", false)]
    #[case::cipher("", "AES", false)]
    fn names_of_versions_and_ciphers_are_gos(
        #[case] min_tls_version: &str,
        #[case] cipher_suites: &str,
        #[case] known: bool,
    ) {
        let config = MetricsTls {
            min_tls_version: min_tls_version.to_owned(),
            cipher_suites: cipher_suites.to_owned(),
            ..tls(Path::new("/nowhere"))
        };
        assert_eq!(server_config(&config).is_ok(), known);
    }

    /// Flaw 30: the standalone manifest mounts certificates and authorities in subdirectories of the directory that it names.
    #[test]
    fn places_of_the_standalone_manifest_are_found() {
        let dir = tempfile::tempdir().unwrap();
        for below in ["tls", "ca"] {
            std::fs::create_dir(dir.path().join(below)).unwrap();
        }
        std::fs::write(dir.path().join("tls/tls.crt"), "broken").unwrap();
        std::fs::write(dir.path().join("tls/tls.key"), "broken").unwrap();
        assert!(
            matches!(server_config(&tls(dir.path())), Err(Error::Tls(_))),
            "it was looked at"
        );
        let authority = dir.path().join("ca/ca.crt");
        std::fs::write(&authority, "").unwrap();
        assert_eq!(authorities(dir.path()), Some(authority));
    }

    /// Flaw 30: upstream verifies clients only with the system's authorities.
    #[test]
    fn authority_beside_the_certificate_is_preferred_to_the_systems() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("ca.crt");
        assert_ne!(authorities(dir.path()), Some(own.clone()));
        std::fs::write(&own, "").unwrap();
        assert_eq!(authorities(dir.path()), Some(own));
    }

    #[tokio::test]
    async fn taken_port_is_no_reason_to_stop() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let config = TopologyExporter {
            metrics_mode: MetricsMode::Http,
            metrics_address: "127.0.0.1".to_owned(),
            metrics_port: i64::from(taken.local_addr().unwrap().port()),
            ..TopologyExporter::default()
        };
        let started = start(
            &config,
            Registry::default(),
            daemon::admin::Checks::new(),
            None,
            CancellationToken::new(),
        )
        .await;
        assert!(started.unwrap().is_none());
    }
}
