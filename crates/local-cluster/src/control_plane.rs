//! The control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes of the holder.
//!
//! They run in the cluster's network namespace, so their ports are fixed and always free.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cluster_spec::kubernetes::{Assets, KUBE_PROXY};
use cluster_spec::subnet::{SERVICE_RANGE, Subnet};
use serde_json::json;

use super::pki::{self, Pki};
use super::supervise::protocol::ProcessSpec;

/// Name of etcd's process.
pub const ETCD: &str = "etcd";
/// Name of the API server's process.
pub const API_SERVER: &str = "kube-apiserver";
/// Name of the controller manager's process.
pub const CONTROLLER_MANAGER: &str = "kube-controller-manager";
/// Name of the default scheduler's process.
pub const SCHEDULER: &str = "kube-scheduler";

const ETCD_URL: &str = "http://127.0.0.1:2379";

/// A user of the API server with a token.
#[derive(Clone, Debug)]
struct User {
    name: String,
    group: &'static str,
    token: String,
}

/// The control plane of a cluster: its files and processes.
#[derive(Clone, Debug)]
pub struct ControlPlane<'a> {
    /// Directory of the cluster.
    pub dir: &'a Path,
    /// The programs.
    pub assets: &'a Assets,
    /// Its network.
    pub subnet: Subnet,
    /// Its keys.
    pub pki: &'a Pki,
}

impl ControlPlane<'_> {
    /// Returns the URL at which nodes, pods and the host reach the API server.
    pub fn url(&self) -> String {
        format!("https://{}:443", self.subnet.gateway())
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Returns the path of the kubeconfig of a component or of a node's kubelet.
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.dir.join("kubeconfigs").join(user)
    }

    /// Writes the token file and the kubeconfigs of the administrator, the components and the kubelets.
    pub fn write_credentials<'n>(
        &self,
        nodes: impl Iterator<Item = &'n str>,
    ) -> std::io::Result<()> {
        let user = |name: &str, group| User {
            name: name.to_owned(),
            group,
            token: pki::token(),
        };
        let admin = user("admin", "system:masters");
        self.write_kubeconfig(&self.admin_kubeconfig(), &admin)?;
        let mut users = vec![admin];
        fs_err::create_dir_all(self.dir.join("kubeconfigs"))?;
        for component in [CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY] {
            // Members of `system:masters`, because only the kubelets and our own components are under test.
            let user = user(&format!("system:{component}"), "system:masters");
            self.write_kubeconfig(&self.kubeconfig_of(component), &user)?;
            users.push(user);
        }
        for node in nodes {
            let user = user(&format!("system:node:{node}"), "system:nodes");
            self.write_kubeconfig(&self.kubeconfig_of(node), &user)?;
            users.push(user);
        }
        let lines: Vec<String> = users
            .iter()
            .map(|user| {
                format!(
                    "{},{},{},{}\n",
                    user.token, user.name, user.name, user.group
                )
            })
            .collect();
        cluster_state::write_private(&self.tokens(), &lines.concat())
    }

    fn tokens(&self) -> PathBuf {
        self.dir.join("pki/tokens.csv")
    }

    fn write_kubeconfig(&self, path: &Path, user: &User) -> std::io::Result<()> {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.pki.ca_pem);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "local",
                "cluster": { "server": self.url(), "certificate-authority-data": ca },
            }],
            "users": [{ "name": user.name, "user": { "token": user.token } }],
            "contexts": [{ "name": "local", "context": { "cluster": "local", "user": user.name } }],
            "current-context": "local",
        });
        let text = serde_yaml::to_string(&config).map_err(std::io::Error::other)?;
        cluster_state::write_private(path, &text)
    }

    /// Returns the process of etcd.
    pub fn etcd(&self) -> ProcessSpec {
        let data = self.dir.join("etcd");
        self.start(
            ETCD,
            &self.assets.etcd,
            [
                ("name", "local".to_owned()),
                ("data-dir", text(&data)),
                // The data is not needed after the cluster's end.
                ("unsafe-no-fsync", "true".to_owned()),
                ("listen-client-urls", ETCD_URL.to_owned()),
                ("advertise-client-urls", ETCD_URL.to_owned()),
                ("listen-peer-urls", "http://127.0.0.1:2380".to_owned()),
                (
                    "initial-advertise-peer-urls",
                    "http://127.0.0.1:2380".to_owned(),
                ),
                ("initial-cluster", "local=http://127.0.0.1:2380".to_owned()),
            ],
        )
    }

    /// Returns the process of the API server.
    pub fn api_server(&self) -> ProcessSpec {
        let serving = self.pki.serving();
        let accounts = self.pki.service_account();
        let kubelet_client = self.pki.kubelet_client();
        self.start(
            API_SERVER,
            &self.assets.kube_apiserver,
            [
                ("etcd-servers", ETCD_URL.to_owned()),
                ("bind-address", "0.0.0.0".to_owned()),
                ("advertise-address", self.subnet.gateway().to_string()),
                ("secure-port", "443".to_owned()),
                ("tls-cert-file", text(&serving.cert)),
                ("tls-private-key-file", text(&serving.key)),
                ("token-auth-file", text(&self.tokens())),
                ("authorization-mode", "Node,RBAC".to_owned()),
                ("enable-admission-plugins", "NodeRestriction".to_owned()),
                ("service-cluster-ip-range", SERVICE_RANGE.to_owned()),
                (
                    "service-account-issuer",
                    "https://kubernetes.default.svc.cluster.local".to_owned(),
                ),
                ("service-account-key-file", text(&accounts.cert)),
                ("service-account-signing-key-file", text(&accounts.key)),
                ("kubelet-client-certificate", text(&kubelet_client.cert)),
                ("kubelet-client-key", text(&kubelet_client.key)),
                ("kubelet-preferred-address-types", "InternalIP".to_owned()),
                ("allow-privileged", "true".to_owned()),
                ("event-ttl", "6h".to_owned()),
                ("profiling", "false".to_owned()),
            ],
        )
    }

    /// Returns the process of the controller manager.
    pub fn controller_manager(&self) -> ProcessSpec {
        let kubeconfig = text(&self.kubeconfig_of(CONTROLLER_MANAGER));
        self.start(
            CONTROLLER_MANAGER,
            &self.assets.kube_controller_manager,
            [
                ("kubeconfig", kubeconfig),
                // No client uses its port, and the certificates of a port would cost inotify instances.
                ("secure-port", "0".to_owned()),
                ("root-ca-file", text(&self.pki.ca())),
                (
                    "service-account-private-key-file",
                    text(&self.pki.service_account().key),
                ),
                ("leader-elect", "false".to_owned()),
            ],
        )
    }

    /// Returns the process of the default scheduler.
    pub fn scheduler(&self) -> ProcessSpec {
        let kubeconfig = text(&self.kubeconfig_of(SCHEDULER));
        self.start(
            SCHEDULER,
            &self.assets.kube_scheduler,
            [
                ("kubeconfig", kubeconfig),
                // No client uses its port, and the certificates of a port would cost inotify instances.
                ("secure-port", "0".to_owned()),
                ("leader-elect", "false".to_owned()),
            ],
        )
    }

    fn start<const N: usize>(
        &self,
        name: &str,
        program: &Path,
        flags: [(&str, String); N],
    ) -> ProcessSpec {
        let mut argv = vec![text(program)];
        argv.extend(
            flags
                .into_iter()
                .map(|(flag, value)| format!("--{flag}={value}")),
        );
        process(self.dir, name, argv)
    }
}

/// Returns a process with the environment and the log file that all processes of a cluster have.
pub(crate) fn process(dir: &Path, name: &str, argv: Vec<String>) -> ProcessSpec {
    ProcessSpec {
        name: name.to_owned(),
        argv,
        env: BTreeMap::from([
            (
                "PATH".to_owned(),
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
            ),
            ("HOME".to_owned(), "/root".to_owned()),
        ]),
        log: log_file(dir, name),
        cwd: dir.to_owned(),
        join: None,
    }
}

/// Returns the log file of a process of a cluster: `node/worker-0` writes to `logs/node-worker-0.log`.
pub(crate) fn log_file(dir: &Path, name: &str) -> PathBuf {
    dir.join("logs")
        .join(format!("{}.log", name.replace('/', "-")))
}

pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
