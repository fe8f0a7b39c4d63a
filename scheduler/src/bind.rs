//! Binding a pod to a node.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod as WirePod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::pod::PodKey;

/// An API server that has not answered by then will not; whether the pod was bound, the watch tells.
const LIMIT: Duration = Duration::from_secs(15);

/// Why a pod was not bound.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("cannot bind pod {pod} to node {node}")]
    Refused {
        /// The pod.
        pod: PodKey,
        /// The node.
        node: String,
        /// The reason.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("binding pod {pod} to node {node} took too long")]
    Timeout {
        /// The pod.
        pod: PodKey,
        /// The node.
        node: String,
    },
}

/// Binds the pod of that uid: a namesake is not bound by mistake.
pub async fn bind(client: Client, pod: &PodKey, uid: &str, node: &str) -> Result<(), Error> {
    let api: Api<WirePod> = Api::namespaced(client, &pod.namespace);
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    let params = PostParams::default();
    let call = api.create_subresource::<_, Status>("binding", &pod.name, &params, &binding);
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(Error::Refused {
            pod: pod.clone(),
            node: node.to_owned(),
            source: Box::new(source),
        }),
        Err(_) => Err(Error::Timeout {
            pod: pod.clone(),
            node: node.to_owned(),
        }),
    }
}
