//! Server certificates: from files, which are read again when they change, or self-signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Error;
use crate::log::chain;

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
        self.current.lock().key.cert.clone()
    }

    /// Returns the certificate to serve now. Reads the files first if they have changed; keeps the old certificate if they are unusable.
    fn reload_if_changed(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock();
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

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.reload_if_changed())
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
        assert_ne!(files.stamp().ok(), served.current.lock().stamp);
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
