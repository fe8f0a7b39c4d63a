//! Binding a pod to a node.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod as WirePod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::pod::PodKey;
use crate::retry::{is_passing, retried};
use crate::volume_bind;

/// An API server that has not answered by then will not.
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
    /// The pod's volumes were not bound before it.
    #[error(transparent)]
    Volumes(#[from] volume_bind::Error),
    /// No answer in time.
    #[error("binding pod {pod} to node {node} took too long")]
    Timeout {
        /// The pod.
        pod: PodKey,
        /// The node.
        node: String,
    },
}

impl Error {
    /// Whether the pod may have been bound all the same.
    fn leaves_open(&self) -> bool {
        match self {
            Self::Refused { source, .. } => is_passing(source),
            Self::Timeout { .. } => true,
            Self::Volumes(_) => false,
        }
    }
}

/// Binds the pod of that uid: a namesake is not bound by mistake. A binding whose answer was lost counts if the pod has that node.
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
    let error = match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(source)) => Error::Refused {
            pod: pod.clone(),
            node: node.to_owned(),
            source: Box::new(source),
        },
        Err(_) => Error::Timeout {
            pod: pod.clone(),
            node: node.to_owned(),
        },
    };
    if error.leaves_open() && has_node(&api, &pod.name, uid, node).await {
        return Ok(());
    }
    Err(error)
}

/// Whether the pod of that uid is bound to that node. When that cannot be found out, the watch will tell.
async fn has_node(api: &Api<WirePod>, name: &str, uid: &str, node: &str) -> bool {
    let pod = retried(|| api.get(name)).await;
    pod.is_ok_and(|pod| {
        pod.metadata.uid.as_deref() == Some(uid)
            && pod.spec.and_then(|spec| spec.node_name).as_deref() == Some(node)
    })
}
