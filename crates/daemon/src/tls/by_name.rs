//! Further server certificates, each for the names by which clients may ask for it (`--tls-sni-cert-key`, scheduler.md 7.9).

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{Certificate, Error, from_files};

/// Files of a certificate and its key, and the names that it is for: `cert,key:name,*.domain`. Without names it is for those that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFiles {
    /// Certificate.
    pub certificate: PathBuf,
    /// Key.
    pub key: PathBuf,
    /// Host names; `*` stands for the first part of a name.
    pub names: Vec<String>,
}

/// The text does not name a certificate and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected comma separated certificate and key file paths")]
pub struct ParseError;

impl FromStr for NamedFiles {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (files, names) = text.split_once(':').unwrap_or((text, ""));
        let files: Vec<&str> = files.split(',').map(str::trim).collect();
        let [certificate, key] = files[..] else {
            return Err(ParseError);
        };
        if certificate.is_empty() || key.is_empty() {
            return Err(ParseError);
        }
        let names = names.split(',').map(|name| name.trim().to_lowercase());
        Ok(Self {
            certificate: certificate.into(),
            key: key.into(),
            names: names.filter(|name| !name.is_empty()).collect(),
        })
    }
}

/// Chooses a certificate by the name that the client asks for.
#[derive(Debug)]
pub(super) struct ByName {
    named: Vec<(Vec<String>, Certificate)>,
    default: Certificate,
}

impl ByName {
    /// Reads the files of all named certificates.
    pub(super) fn new(default: Certificate, named: &[NamedFiles]) -> Result<Self, Error> {
        let read = |files: &NamedFiles| {
            let certificate = from_files(&files.certificate, &files.key)?;
            Ok((files.names.clone(), certificate))
        };
        Ok(Self {
            named: named.iter().map(read).collect::<Result<_, _>>()?,
            default,
        })
    }

    /// Returns the certificate for a name: a name that is given beats a pattern, and both beat the names in certificates. The first of
    /// several is taken.
    fn choose(&self, name: &str) -> &Certificate {
        let (_, domain) = name.split_once('.').unwrap_or((name, ""));
        let pattern = format!("*.{domain}");
        let given = |wanted: &str| {
            let mut named = self.named.iter();
            named.find(|(names, _)| names.iter().any(|name| name == wanted))
        };
        let own = || {
            let name = ServerName::try_from(name).ok()?;
            self.named
                .iter()
                .find(|(names, certificate)| names.is_empty() && is_for(certificate, &name))
        };
        given(name)
            .or_else(|| given(&pattern))
            .or_else(own)
            .map_or(&self.default, |(_, certificate)| certificate)
    }
}

/// Returns whether a certificate has that name.
fn is_for(certificate: &Certificate, name: &ServerName<'_>) -> bool {
    certificate.chain().first().is_some_and(|leaf| {
        ParsedCertificate::try_from(leaf).is_ok_and(|leaf| verify_server_name(&leaf, name).is_ok())
    })
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = hello
            .server_name()
            .map_or(&self.default, |name| self.choose(&name.to_lowercase()));
        chosen.resolve(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Writes a certificate that has this name.
    fn written(directory: &tempfile::TempDir, name: &str, suffix: &str) -> NamedFiles {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("certificate");
        let file = |end: &str| directory.path().join(format!("{name}.{end}"));
        std::fs::write(file("crt"), made.cert.pem()).expect("written");
        std::fs::write(file("key"), made.signing_key.serialize_pem()).expect("written");
        let text = format!(
            "{},{}{suffix}",
            file("crt").display(),
            file("key").display()
        );
        text.parse().expect("two files")
    }

    #[rstest]
    #[case::own_name("own.example.com", "own.example.com")]
    #[case::given_name("given.other.com", "a.example.com")]
    #[case::pattern("x.other.com", "b.example.com")]
    #[case::a_pattern_stands_for_one_part("x.y.other.com", "localhost")]
    #[case::a_given_name_replaces_those_of_the_certificate("a.example.com", "localhost")]
    #[case::unknown("nowhere.com", "localhost")]
    fn the_certificate_is_chosen_by_name(#[case] asked: &str, #[case] expected: &str) {
        let directory = tempfile::tempdir().expect("directory");
        let named = [
            written(&directory, "own.example.com", ""),
            written(&directory, "b.example.com", ":*.other.com"),
            written(&directory, "a.example.com", ":Given.other.com"),
        ];
        let default = super::super::self_signed(&["localhost".to_owned()]).expect("certificate");
        let certificates = ByName::new(default, &named).expect("all files are there");
        let expected = ServerName::try_from(expected).expect("name");
        assert!(is_for(certificates.choose(asked), &expected));
    }

    #[rstest]
    #[case("x")]
    #[case("x,")]
    #[case("a,b,c")]
    #[case(":name")]
    fn two_files_are_asked_for(#[case] text: &str) {
        assert_eq!(text.parse::<NamedFiles>(), Err(ParseError));
    }
}
