//! A stand-in for the operator that signs certificates of services. A service that names a secret gets that secret with a certificate for
//! the service's names; pods wait for it. Every certificate is self-signed.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{Api, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;

/// Annotation of services: the name of the secret to create.
const SECRET_NAME: &str = "service.beta.openshift.io/serving-cert-secret-name";

/// Why a secret was not created.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot write the secret")]
    Secret(#[from] Box<kube::Error>),
    #[error("cannot build the secret")]
    Build(#[from] serde_json::Error),
}

/// Runs until the returned future is dropped.
pub async fn run(client: Client) {
    let services: Api<Service> = Api::all(client.clone());
    let changes = watcher(services, Config::default())
        .default_backoff()
        .applied_objects();
    let mut changes = std::pin::pin!(changes);
    while let Some(change) = changes.next().await {
        let Ok(service) = change else {
            // The watch restarts by itself.
            continue;
        };
        if let Some(secret) = service.annotations().get(SECRET_NAME)
            && let Err(error) = sign(&client, &service, secret).await
        {
            tracing::warn!(service = %service.name_any(), %error, "No certificate for a service");
        }
    }
}

async fn sign(client: &Client, service: &Service, secret: &str) -> Result<(), Error> {
    let namespace = service.namespace().unwrap_or_default();
    let name = format!("{}.{namespace}.svc", service.name_any());
    let signed =
        rcgen::generate_simple_self_signed([name.clone(), format!("{name}.cluster.local")])?;
    let object: Secret = serde_json::from_value(json!({
        "metadata": {"name": secret},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": signed.cert.pem(), "tls.key": signed.signing_key.serialize_pem()},
    }))?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    match secrets.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        // The secret exists already.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Box::new(error).into()),
    }
}
