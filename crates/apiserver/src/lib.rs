//! The embedded API server: Kubernetes' API in this process, over TLS, with everything in memory.
//!
//! It has discovery and OpenAPI; the built-in resources of a real server's discovery with their defaults, generations and most common
//! checks; custom resources with structural schemas; create, get, list, watch, replace and all four kinds of patch; delete with
//! preconditions, grace, propagation and finalizers; the subresources that workloads use; tables; fixed tokens, client certificates, tokens
//! of service accounts, impersonation and reviews; role-based access control with the node authorizer; and the admission plugins that pods
//! meet in a real cluster. Requests to kubelets are proxied.
//!
//! It does not have everything: webhooks and admission policies are stored but not called, Pod Security labels are not enforced, secrets do
//! not get tokens of service accounts, certificate requests are not signed, and there is no API aggregation. Rules in CEL are refused if
//! their estimated cost is too high, as in a real server. Their actual cost is not limited, because the interpreter does not report it, so
//! no rule is stopped while it runs. The checks of a definition accept loops with two variables, `sortBy` and `optMap`, but the interpreter
//! does not support them: objects that such a rule applies to are refused.
//!
//! Reading order: [`Server::start`], `serve` (connections and routes), `verbs` (what a request does), `admission`, `strategy` and
//! `validation` (what a write means), `store`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

use self::accounts::Accounts;
use self::authority::Authority;
pub use self::authz::User;
pub use self::defaults::fill_in_pod;
use self::registry::Registry;
use self::store::{Key, Store};

pub mod audit;
pub mod conversation;
pub mod faults;

mod accounts;
mod admission;
mod apply;
mod authn;
mod authority;
mod authz;
mod decode;
mod defaults;
mod definitions;
mod discovery;
mod events;
mod failure;
mod names;
mod occurrences;
mod openapi;
mod pods;
mod protobuf;
mod quantity;
mod registry;
mod reviews;
mod rules;
mod schema;
mod selectors;
mod serve;
mod shape;
mod store;
mod strategic;
mod strategy;
mod times;
mod unstructured;
mod validation;
mod values;
mod verbs;
mod views;

/// The objects in the store of a new cluster, as a real server writes them.
const BOOTSTRAP: &str = include_str!("../corpus/facts/bootstrap.json");

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be generated.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The server could not listen on the address.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The objects of a new cluster could not be parsed.
    #[error("cannot read the objects of a new cluster")]
    Bootstrap(#[from] serde_json::Error),
}

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
            proxies_to_loopback: false,
        }
    }
}

/// The state that all connections share.
#[derive(Debug)]
struct Shared {
    /// The address of the server.
    address: SocketAddr,
    store: Store,
    registry: Registry,
    tokens: HashMap<String, User>,
    accounts: Accounts,
    disabled_admission: Vec<String>,
    proxies_to_loopback: bool,
    faults: faults::State,
    audit: audit::Record,
    kubelet_client: Arc<rustls::ClientConfig>,
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
    authority: Authority,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
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

    /// Returns the issuer of the tokens of service accounts, which is also their default audience.
    pub fn service_account_issuer(&self) -> &str {
        self.shared.accounts.issuer()
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
        faults::Faults::new(Arc::clone(&self.shared))
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
        seed(&mut state, &table, &mut object)
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
        let store = Store::new(options.history);
        bootstrap(&store)?;
        let listen = |source| Error::Listen {
            address: options.address,
            source,
        };
        let listener = TcpListener::bind(options.address).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let authority = Authority::new()?;
        let config = authority.server_config(address, strategy::first_service_address())?;
        kubernetes_service(&store, address);
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
            tokens,
            accounts: Accounts::new(options.issuer)?,
            disabled_admission: options.disabled_admission,
            proxies_to_loopback: options.proxies_to_loopback,
            faults: faults::State::default(),
            audit: audit::Record::default(),
            kubelet_client: Arc::new(authority.kubelet_client_config()?),
        });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(serve::accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Running {
            url: format!("https://{address}"),
            ca: authority.pem().to_owned(),
            admin_token,
            authority,
            shared,
            accepting,
        })
    }
}

/// Stores an object and adds what every object has; returns false when there is no such kind.
fn seed(state: &mut store::State, table: &registry::Table, object: &mut Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(resource) = table.of_kind(&text(&object["apiVersion"]), &text(&object["kind"])) else {
        return false;
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
    state.put(key, object.take());
    true
}

fn bootstrap(store: &Store) -> Result<(), Error> {
    let objects: Vec<Value> = serde_json::from_str(BOOTSTRAP)?;
    let mut state = store.lock();
    let table = Registry::default().table(&state);
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    for mut object in objects {
        if object["data"]["since"].is_string() {
            // the day on which the cluster was created
            object["data"]["since"] = json!(today);
        }
        seed(&mut state, &table, &mut object);
    }
    Ok(())
}

/// Creates the service by which pods find this server, with its endpoints.
fn kubernetes_service(store: &Store, address: SocketAddr) {
    let mut state = store.lock();
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let meta = |labels: &Value| {
        json!({
            "name": "kubernetes", "namespace": "default", "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "labels": labels,
        })
    };
    let first = strategy::first_service_address().to_string();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": meta(&labels),
        "spec": {
            "clusterIP": first, "clusterIPs": [first], "type": "ClusterIP", "sessionAffinity": "None",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": address.port()}],
        },
        "status": {"loadBalancer": {}},
    });
    state.put(Key::new("services", "default", "kubernetes"), service);
    let mirrored = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": meta(&mirrored),
        "subsets": [{"addresses": [{"ip": address.ip().to_string()}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}]}],
    });
    state.put(Key::new("endpoints", "default", "kubernetes"), endpoints);
    let mut slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": meta(&json!({"kubernetes.io/service-name": "kubernetes"})),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    });
    slice["metadata"]["generation"] = json!(1);
    let key = Key::new("endpointslices.discovery.k8s.io", "default", "kubernetes");
    state.put(key, slice);
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
