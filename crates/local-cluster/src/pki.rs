//! Keys, certificates and tokens of one cluster, generated anew for each cluster.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cluster_spec::subnet::{KUBERNETES_SERVICE, Subnet};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

/// Why keys could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be created.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file could not be written.
    #[error("cannot write the keys of the cluster")]
    Write(#[from] std::io::Error),
}

/// The key files of a cluster, all below one directory.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
    /// Certificate of the authority in PEM, for kubeconfigs.
    pub ca_pem: String,
}

impl Pki {
    /// Returns the keys that [`create`] made in this directory.
    pub fn in_dir(dir: &Path) -> std::io::Result<Self> {
        Ok(Self {
            dir: dir.to_owned(),
            ca_pem: fs_err::read_to_string(ca(dir))?,
        })
    }

    /// Returns the path of the authority's certificate.
    pub fn ca(&self) -> PathBuf {
        ca(&self.dir)
    }

    /// Returns the paths of the API server's serving certificate.
    pub fn serving(&self) -> Pair {
        self.pair("apiserver")
    }

    /// Returns the paths of the certificate with which the API server speaks to kubelets.
    pub fn kubelet_client(&self) -> Pair {
        self.pair("apiserver-kubelet-client")
    }

    /// Returns the paths of the key that signs service account tokens, and of its public half.
    pub fn service_account(&self) -> Pair {
        Pair {
            cert: self.dir.join("service-account.pub"),
            key: self.dir.join("service-account.key"),
        }
    }

    fn pair(&self, name: &str) -> Pair {
        Pair {
            cert: self.dir.join(format!("{name}.crt")),
            key: self.dir.join(format!("{name}.key")),
        }
    }
}

/// Returns the path of the authority's certificate in the directory of a cluster's keys.
pub(crate) fn ca(dir: &Path) -> PathBuf {
    dir.join("ca.crt")
}

/// The files of a certificate (or public key) and its private key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Public half.
    pub cert: PathBuf,
    /// Private half.
    pub key: PathBuf,
}

/// Creates every key of a cluster in a new directory.
pub fn create(dir: &Path, subnet: Subnet) -> Result<Pki, Error> {
    fs_err::create_dir_all(dir)?;
    let ca_key = KeyPair::generate()?;
    let mut ca = params("numaresources-testbed-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let issuer = Issuer::new(ca, ca_key);
    let pki = Pki {
        dir: dir.to_owned(),
        ca_pem,
    };
    fs_err::write(pki.ca(), &pki.ca_pem)?;

    let mut serving = params("kube-apiserver");
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    serving.subject_alt_names = serving_names(subnet)?;
    sign(&serving, &issuer, &pki.serving())?;

    let mut kubelet_client = params("kube-apiserver-kubelet-client");
    // the name and the group that kubeadm gives it
    let names = &mut kubelet_client.distinguished_name;
    names.push(DnType::OrganizationName, "system:masters");
    kubelet_client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(&kubelet_client, &issuer, &pki.kubelet_client())?;

    let accounts = KeyPair::generate()?;
    cluster_state::write_private(&pki.service_account().key, &accounts.serialize_pem())?;
    fs_err::write(pki.service_account().cert, accounts.public_key_pem())?;
    Ok(pki)
}

fn serving_names(subnet: Subnet) -> Result<Vec<SanType>, rcgen::Error> {
    let addresses = [
        KUBERNETES_SERVICE,
        subnet.gateway(),
        std::net::Ipv4Addr::LOCALHOST,
    ];
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut list: Vec<SanType> = addresses
        .into_iter()
        .map(|address| SanType::IpAddress(IpAddr::V4(address)))
        .collect();
    for name in names {
        list.push(SanType::DnsName(name.try_into()?));
    }
    Ok(list)
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

fn sign(
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
    pair: &Pair,
) -> Result<(), Error> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    fs_err::write(&pair.cert, certificate.pem())?;
    cluster_state::write_private(&pair.key, &key.serialize_pem())?;
    Ok(())
}

/// Returns a token that nobody can guess.
pub(crate) fn token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
