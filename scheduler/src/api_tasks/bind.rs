//! Binds a pod to a node.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod as WirePod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::api_tasks::retry::{is_transient, retried};
use crate::api_tasks::volume_bind;
use crate::state::pod::PodKey;

/// Timeout of a binding request.
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
    /// The pod's volumes were not bound.
    #[error(transparent)]
    Volumes(#[from] volume_bind::Error),
    /// The API server did not answer in time.
    #[error("binding pod {pod} to node {node} took too long")]
    Timeout {
        /// The pod.
        pod: PodKey,
        /// The node.
        node: String,
    },
}

impl Error {
    /// Returns whether the pod may have been bound in spite of the error.
    fn may_have_succeeded(&self) -> bool {
        match self {
            Self::Refused { source, .. } => is_transient(source),
            Self::Timeout { .. } => true,
            Self::Volumes(_) => false,
        }
    }
}

/// Binds the pod of that uid, so a later pod of the same name is not bound by mistake. If the answer is lost, the binding counts as
/// successful if the pod has that node.
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
    if error.may_have_succeeded() && has_node(&api, &pod.name, uid, node).await {
        return Ok(());
    }
    Err(error)
}

/// Returns whether the pod of that uid is bound to that node. If that cannot be read, the watch reports it later.
async fn has_node(api: &Api<WirePod>, name: &str, uid: &str, node: &str) -> bool {
    let pod = retried(|| api.get(name)).await;
    pod.is_ok_and(|pod| {
        pod.metadata.uid.as_deref() == Some(uid)
            && pod.spec.and_then(|spec| spec.node_name).as_deref() == Some(node)
    })
}
