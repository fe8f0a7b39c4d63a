//! Server-side TLS: certificates from files or self-signed; versions and ciphers by their Go names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::log::chain;

/// Requirements of a server for its TLS connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `VersionTLS10` .. `VersionTLS13`, or empty for the default (1.2). rustls supports only 1.2 and 1.3, so lower values mean 1.2.
    pub min_version: String,
    /// Go cipher suite names; empty for the defaults. As in Go, they restrict only TLS 1.2.
    pub cipher_suites: Vec<String>,
    /// PEM file of certificate authorities. Clients must present a certificate of one of them; without a file clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file contains no usable PEM of the expected kind.
    #[error("cannot use {}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The key does not match the certificate, or the combination of options is impossible.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
    /// No certificate could be generated.
    #[error("cannot make a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
    /// Not a Go version name.
    #[error("unknown tls version {0:?}")]
    Version(String),
    /// Not a Go cipher suite name.
    #[error("cipher suite {0} not supported or doesn't exist")]
    Cipher(String),
    /// The client authorities cannot be used.
    #[error("cannot verify clients")]
    ClientAuth(#[source] rustls::server::VerifierBuilderError),
}

/// A server certificate.
#[derive(Debug)]
pub struct Certificate {
    current: Mutex<Loaded>,
    files: Option<Files>,
}

#[derive(Debug)]
struct Loaded {
    key: Arc<CertifiedKey>,
    stamp: Option<Stamp>,
}

#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

type Stamp = (SystemTime, SystemTime);

impl Certificate {
    /// Returns the chain in use, leaf first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .key
            .cert
            .clone()
    }
}

/// Reads a certificate and its key from PEM files. They are read again when their modification times change, so a renewed secret is served
/// without a restart. While the new files are unusable the old certificate stays in use.
pub fn from_files(certificate: &Path, key: &Path) -> Result<Certificate, Error> {
    let files = Files {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let stamp = files.stamp().ok();
    let loaded = Loaded {
        key: Arc::new(files.load()?),
        stamp,
    };
    Ok(Certificate {
        current: Mutex::new(loaded),
        files: Some(files),
    })
}

/// Like [`self_signed`], until both files exist: a secret may be mounted or filled after the start.
pub fn self_signed_until_files(
    certificate: &Path,
    key: &Path,
    names: &[String],
) -> Result<Certificate, Error> {
    let mut made = self_signed(names)?;
    made.files = Some(Files {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    });
    Ok(made)
}

/// Generates a temporary certificate for `names` (host names or addresses).
pub fn self_signed(names: &[String]) -> Result<Certificate, Error> {
    let made = rcgen::generate_simple_self_signed(names).map_err(Error::SelfSigned)?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let key = CertifiedKey::from_der(
        vec![made.cert.der().clone()],
        key,
        &ring::default_provider(),
    )
    .map_err(Error::Setup)?;
    Ok(Certificate {
        current: Mutex::new(Loaded {
            key: Arc::new(key),
            stamp: None,
        }),
        files: None,
    })
}

/// Reads the files if the certificate file exists; otherwise generates a self-signed certificate for `names`.
pub fn from_files_or_self_signed(
    certificate: &Path,
    key: &Path,
    names: &[String],
) -> Result<Certificate, Error> {
    if certificate.exists() {
        from_files(certificate, key)
    } else {
        self_signed(names)
    }
}

/// Builds a rustls configuration for `certificate` and `options`.
pub fn server_config(
    certificate: Certificate,
    options: &Options,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(provider(&options.cipher_suites)?);
    let versions = versions(&options.min_version)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(Error::Setup)?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider)
                    .build()
                    .map_err(Error::ClientAuth)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    Ok(Arc::new(builder.with_cert_resolver(Arc::new(certificate))))
}

fn authorities(path: &Path) -> Result<RootCertStore, Error> {
    let pem = |source| Error::Pem {
        path: path.to_owned(),
        source,
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(pem)? {
        store.add(certificate.map_err(pem)?).map_err(Error::Setup)?;
    }
    Ok(store)
}

static ONLY_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn versions(min: &str) -> Result<&'static [&'static SupportedProtocolVersion], Error> {
    match min {
        "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(rustls::ALL_VERSIONS),
        "VersionTLS13" => Ok(ONLY_13),
        other => Err(Error::Version(other.to_owned())),
    }
}

/// Selects the cipher suites with these Go names. Go and rustls use the same names, except that some older Go names lack the suffix
/// `_SHA256`. Known names that rustls does not offer (CBC, RSA key exchange) are skipped, because administrators usually list them for old
/// clients.
fn provider(names: &[String]) -> Result<CryptoProvider, Error> {
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

impl Files {
    fn stamp(&self) -> io::Result<Stamp> {
        Ok((
            fs::metadata(&self.certificate)?.modified()?,
            fs::metadata(&self.key)?.modified()?,
        ))
    }

    fn load(&self) -> Result<CertifiedKey, Error> {
        let read = |path: &Path| {
            fs::read(path).map_err(|source| Error::Read {
                path: path.to_owned(),
                source,
            })
        };
        let pem = |path: &Path| {
            let path = path.to_owned();
            |source| Error::Pem { path, source }
        };
        let text = read(&self.certificate)?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(pem(&self.certificate))?;
        if chain.is_empty() {
            return Err(pem(&self.certificate)(
                rustls::pki_types::pem::Error::NoItemsFound,
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(pem(&self.key))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(Error::Setup)
    }
}

impl Certificate {
    /// Returns the certificate to serve now. Reads the files first if they have changed; keeps the old certificate if they are unusable.
    fn reload_if_changed(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = &self.files
            && let Ok(stamp) = files.stamp()
            && current.stamp != Some(stamp)
        {
            match files.load() {
                Ok(key) => {
                    *current = Loaded {
                        key: Arc::new(key),
                        stamp: Some(stamp),
                    };
                    tracing::info!(file = %files.certificate.display(), "Certificate reloaded");
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "Keeping the old certificate");
                }
            }
        }
        Arc::clone(&current.key)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.reload_if_changed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn write_pair(dir: &Path, name: &str) -> (PathBuf, PathBuf, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("certificate");
        let (certificate, key) = (dir.join("tls.crt"), dir.join("tls.key"));
        fs::write(&certificate, made.cert.pem()).expect("write");
        fs::write(&key, made.signing_key.serialize_pem()).expect("write");
        (certificate, key, made.cert.der().clone())
    }

    #[test]
    fn a_changed_file_is_loaded_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().expect("dir");
        let (certificate, key, first) = write_pair(dir.path(), "first");
        let served = from_files(&certificate, &key).expect("loads");
        assert_eq!(served.chain(), [first]);
        let files = served.files.clone().expect("files");

        let (_, _, second) = write_pair(dir.path(), "second");
        let later = SystemTime::now() + Duration::from_secs(5);
        fs::File::options()
            .write(true)
            .open(&certificate)
            .and_then(|file| file.set_modified(later))
            .expect("touch");
        assert_ne!(
            files.stamp().ok(),
            served.current.lock().expect("lock").stamp
        );
        assert_eq!(files.load().expect("loads").cert, [second]);

        fs::write(&certificate, "nothing").expect("write");
        assert!(files.load().is_err());
    }

    #[test]
    fn files_that_appear_after_the_start_are_served() {
        let dir = tempfile::tempdir().expect("dir");
        let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
        let served =
            self_signed_until_files(&certificate, &key, &["localhost".to_owned()]).expect("made");
        let made = served.chain();
        assert_eq!(
            served.reload_if_changed().cert,
            made,
            "there are no files yet"
        );
        fs::write(&certificate, "half").expect("write");
        assert_eq!(served.reload_if_changed().cert, made, "there is no key yet");
        let (_, _, real) = write_pair(dir.path(), "real");
        assert_eq!(served.reload_if_changed().cert, [real]);
    }

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

    #[test]
    fn a_missing_certificate_gives_a_self_signed_one() {
        let certificate = from_files_or_self_signed(
            Path::new("/nowhere/tls.crt"),
            Path::new("/nowhere/tls.key"),
            &["node".to_owned()],
        );
        assert_eq!(certificate.expect("made").chain().len(), 1);
    }
}
