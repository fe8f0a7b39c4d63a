//! The embedded API server: Kubernetes' API in this process, over TLS, with everything in memory.
//!
//! What it has: discovery, the built-in resources as a real server's discovery names them, custom resources with structural schemas,
//! create, get, list, watch, replace, JSON and merge patches, delete with preconditions and finalizers, the status subresource, tokens
//! and role based access control. What it does not have yet is refused with the API's own answers: no strategic merge patch, no
//! server-side apply, no tables, no defaults of built-in kinds, no rules in CEL.
//!
//! Reading order: [`Server::start`], `serve` (connections and routes), `verbs` (what a request does), `store`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig, pki_types::PrivateKeyDer};

pub use self::authz::User;
use self::registry::Registry;
use self::store::{Key, Store};

pub mod conversation;

mod apply;
mod authz;
mod decode;
mod discovery;
mod failure;
mod quantity;
mod registry;
mod schema;
mod selectors;
mod serve;
mod store;
mod strategic;
mod verbs;

/// What a new cluster's store holds, as a real server writes it.
const BOOTSTRAP: &str = include_str!("../corpus/facts/bootstrap.json");

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The address could not be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The objects of a new cluster could not be read.
    #[error("cannot read the objects of a new cluster")]
    Bootstrap(#[from] serde_json::Error),
}

/// How the server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// Users by their bearer tokens, beside the administrator.
    pub tokens: HashMap<String, User>,
    /// How many changes watches can go back.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: HashMap::new(),
            history: 50_000,
        }
    }
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    store: Store,
    registry: Registry,
    tokens: HashMap<String, User>,
}

/// The embedded API server.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// A server that answers until it is shut down or dropped.
#[derive(Debug)]
pub struct Running {
    /// Where it answers.
    pub url: String,
    /// Certificate of its authority as PEM.
    pub ca: String,
    /// Token of a member of `system:masters`.
    pub admin_token: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Running {
    /// A kubeconfig (JSON is YAML too) for the user of a token.
    pub fn kubeconfig(&self, token: &str) -> String {
        use base64::Engine as _;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca);
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url, "certificate-authority-data": ca}}],
            "users": [{"name": "embedded", "user": {"token": token}}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
            "current-context": "embedded",
        })
        .to_string()
    }

    /// Forgets the history, so that watches from earlier versions are refused as expired.
    pub fn compact(&self) {
        self.shared.store.lock().compact();
    }

    /// Stops answering and closes all connections.
    pub async fn shutdown(mut self) {
        self.accepting.abort();
        // it was told to stop: that it did not end by itself is no news
        let _ = (&mut self.accepting).await;
    }
}

impl Server {
    /// Starts a server with the objects of a new cluster.
    pub async fn start(options: Options) -> Result<Running, Error> {
        let store = Store::new(options.history);
        bootstrap(&store)?;
        let listen = |source| Error::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (config, ca) = tls(address)?;
        let admin_token = uuid::Uuid::new_v4().simple().to_string();
        let mut tokens = options.tokens;
        tokens.insert(
            admin_token.clone(),
            User {
                name: "admin".into(),
                groups: vec!["system:masters".into(), "system:authenticated".into()],
            },
        );
        let shared = Arc::new(Shared {
            store,
            registry: Registry::default(),
            tokens,
        });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(serve::accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Running {
            url: format!("https://{address}"),
            ca,
            admin_token,
            shared,
            accepting,
        })
    }
}

fn bootstrap(store: &Store) -> Result<(), Error> {
    let objects: Vec<Value> = serde_json::from_str(BOOTSTRAP)?;
    let mut state = store.lock();
    let table = Registry::default().table(&state);
    for mut object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(resource) = table.of_kind(&text(&object["apiVersion"]), &text(&object["kind"]))
        else {
            continue;
        };
        object["metadata"]["uid"] = json!(uuid::Uuid::new_v4().to_string());
        object["metadata"]["creationTimestamp"] = json!(
            jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string()
        );
        let key = Key::new(
            &resource.storage,
            &text(&object["metadata"]["namespace"]),
            &text(&object["metadata"]["name"]),
        );
        state.put(key, object);
    }
    Ok(())
}

/// A serving configuration for an address, and the authority that clients trust.
fn tls(address: SocketAddr) -> Result<(ServerConfig, String), Error> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name
        .push(DnType::CommonName, "numaresources-embedded-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate()?;
    let names = vec![
        address.ip().to_string(),
        "localhost".into(),
        "kubernetes.default.svc".into(),
    ];
    let mut serving = CertificateParams::new(names)?;
    serving
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    let certificate = serving.signed_by(&key, &issuer)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((config, ca_pem))
}
