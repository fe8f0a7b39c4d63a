//! The server as programs start it, use it and shut it down.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::access::accounts::Accounts;
use crate::access::audit;
use crate::access::authn::Users;
use crate::access::authority::Authority;
use crate::access::identity::User;
use crate::access::signer::Signer;
use crate::admission::extent::Ignored;
use crate::admission::strategy::first_service_address;
use crate::error::Error;
use crate::faults;
use crate::registry::Registry;
use crate::serve::{self, Shared};
use crate::storage::Store;

mod bootstrap;

/// How often a real server has etcd compact its history: its default.
const COMPACTION_INTERVAL: Duration = Duration::from_mins(5);

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Users by their bearer tokens, in addition to the administrator.
    pub tokens: HashMap<String, User>,
    /// Number of changes that are kept for watches.
    pub history: usize,
    /// Issuer in the tokens of service accounts.
    pub issuer: String,
    /// Admission plugins that are disabled, by their names in kube-apiserver.
    pub disabled_admission: Vec<String>,
    /// What becomes of objects that the embedded cluster would not act on.
    pub ignored: Ignored,
    /// Whether clients may reach nodes, pods and services on loopback addresses through the server. A real server refuses this, but
    /// simulated nodes have no other addresses.
    pub proxies_to_loopback: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            tokens: HashMap::new(),
            history: 20_000,
            issuer: "https://kubernetes.default.svc.cluster.local".into(),
            disabled_admission: Vec::new(),
            ignored: Ignored::default(),
            proxies_to_loopback: false,
        }
    }
}

/// The embedded API server.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// A running server; it answers until it is shut down or dropped.
#[derive(Debug)]
pub struct Running {
    /// URL of the server.
    pub url: String,
    /// Certificate of its authority as PEM.
    pub ca: String,
    /// Token of a member of `system:masters`.
    pub admin_token: String,
    authority: Arc<Authority>,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    compacting: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.compacting.abort();
        self.accepting.abort();
    }
}

impl Running {
    /// Returns a kubeconfig for the user of a token. It is JSON, which is valid YAML.
    pub fn kubeconfig(&self, token: &str) -> String {
        self.kubeconfig_with(&json!({"token": token}))
    }

    /// Returns a kubeconfig for a user with a client certificate of the cluster's authority.
    pub fn kubeconfig_for_certificate(&self, name: &str, groups: &[&str]) -> Result<String, Error> {
        let (certificate, key) = self.client_certificate(name, groups)?;
        Ok(self.kubeconfig_with(&json!({
            "client-certificate-data": base64(&certificate), "client-key-data": base64(&key),
        })))
    }

    /// Returns certificate and key of a user with this name and these groups, both as PEM.
    pub fn client_certificate(
        &self,
        name: &str,
        groups: &[&str],
    ) -> Result<(String, String), Error> {
        self.authority.client(name, groups)
    }

    /// Returns what signs certificates in the name of the server's authority.
    pub fn signer(&self) -> Signer {
        Signer::new(Arc::clone(&self.authority))
    }

    /// Returns the issuer of the tokens of service accounts, which is also their default audience.
    pub fn service_account_issuer(&self) -> &str {
        self.shared.users.accounts.issuer()
    }

    fn kubeconfig_with(&self, user: &Value) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "embedded", "cluster": {"server": self.url, "certificate-authority-data": base64(&self.ca)}}],
            "users": [{"name": "embedded", "user": user}],
            "contexts": [{"name": "embedded", "context": {"cluster": "embedded", "user": "embedded"}}],
            "current-context": "embedded",
        })
        .to_string()
    }

    /// Returns the handle on the server's faults.
    pub fn faults(&self) -> faults::Faults {
        faults::Faults::new(
            Arc::clone(&self.shared.faults),
            Arc::clone(&self.shared.store),
        )
    }

    /// Starts recording the authorizers' decisions.
    pub fn record_decisions(&self) {
        self.shared.audit.start();
    }

    /// Returns the recorded decisions about a user's requests, sorted.
    pub fn decisions(&self, user: &str) -> Vec<audit::Decision> {
        self.shared.audit.of(user)
    }

    /// Writes an object unchanged, without admission and validation, for clusters that begin with many objects. The object gets what every
    /// object has (unique id, time of creation, version) and replaces one of the same name. Returns false when there is no such kind.
    pub fn seed(&self, mut object: Value) -> bool {
        let mut state = self.shared.store.lock();
        let table = self.shared.registry.table(&state);
        bootstrap::seed(&mut state, &table, &mut object)
    }

    /// Drops the history, so that watches from earlier versions are refused as expired.
    pub fn compact(&self) {
        self.shared.store.lock().compact();
    }

    /// Stops answering and closes all connections.
    pub async fn shutdown(mut self) {
        self.accepting.abort();
        // the task was aborted, so an error here is expected
        let _ = (&mut self.accepting).await;
    }
}

impl Server {
    /// Starts a server with the objects of a new cluster.
    pub async fn start(options: Options) -> Result<Running, Error> {
        let store = Arc::new(Store::new(options.history));
        bootstrap::bootstrap(&store)?;
        let listen = |source| Error::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let authority = Arc::new(Authority::new()?);
        let config = authority.server_config(address, first_service_address())?;
        bootstrap::kubernetes_service(&store, address);
        let admin_token = uuid::Uuid::new_v4().simple().to_string();
        let mut tokens = options.tokens;
        tokens.insert(
            admin_token.clone(),
            User {
                name: "admin".into(),
                groups: vec!["system:masters".into(), "system:authenticated".into()],
                uid: String::new(),
            },
        );
        let shared = Arc::new(Shared {
            address,
            store,
            registry: Registry::default(),
            users: Users {
                tokens,
                accounts: Accounts::new(options.issuer)?,
            },
            disabled_admission: options.disabled_admission,
            ignored: options.ignored,
            proxies_to_loopback: options.proxies_to_loopback,
            faults: Arc::default(),
            audit: audit::Record::default(),
            kubelet_client: Arc::new(authority.kubelet_client_config()?),
        });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let compacting = tokio::spawn(compact(Arc::clone(&shared.store)));
        let accepting = tokio::spawn(serve::accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Running {
            url: format!("https://{address}"),
            ca: authority.pem().to_owned(),
            admin_token,
            authority,
            shared,
            accepting,
            compacting,
        })
    }
}

/// Forgets the history but for the changes since the last time, so that watches and lists in pages expire as with a real server.
async fn compact(store: Arc<Store>) {
    let mut tick = tokio::time::interval(COMPACTION_INTERVAL);
    let mut mark = 0;
    loop {
        tick.tick().await;
        let mut state = store.lock();
        state.compact_to(mark);
        mark = state.version();
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
