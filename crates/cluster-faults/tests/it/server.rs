//! An embedded API server and its administrator's client, which shows every refusal.

use apiserver::{Options, Running, Server};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub(crate) async fn start() -> (Running, Client) {
    let server = Server::start(Options::default()).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(&server.admin_token)).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    (server, Client::try_from(config).unwrap())
}
