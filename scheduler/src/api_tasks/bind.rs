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
    /// Returns whether the pod may have been bound in spite of the error. A conflict is also the answer to a binding that was sent again, by the
    /// client or by a proxy, after the answer to the first was lost.
    fn may_have_succeeded(&self) -> bool {
        match self {
            Self::Refused { source, .. } => is_transient(source) || is_conflict(source),
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

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns whether the pod of that uid is bound to that node. If that cannot be read, the watch reports it later.
async fn has_node(api: &Api<WirePod>, name: &str, uid: &str, node: &str) -> bool {
    let pod = retried(|| api.get(name)).await;
    pod.is_ok_and(|pod| {
        pod.metadata.uid.as_deref() == Some(uid)
            && pod.spec.and_then(|spec| spec.node_name).as_deref() == Some(node)
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Builds a client of an API server that answers bindings with this code, and has the pod of uid `u` on this node.
    fn mk_client(code: u16, node: &'static str) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let (status, body) = if request.method() == Method::POST {
                let failure = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
                (code, failure)
            } else {
                let metadata = json!({"name": "p", "namespace": "ns", "uid": "u"});
                let spec = json!({"nodeName": node, "containers": []});
                (200, json!({"metadata": metadata, "spec": spec}))
            };
            let body = Body::from(body.to_string().into_bytes());
            let response = Response::builder().status(status).body(body);
            Ok::<_, Infallible>(response.expect("a response"))
        });
        Client::new(service, "default")
    }

    #[rstest]
    #[case::committed_and_sent_again(409, "n", "u", true)]
    #[case::bound_elsewhere(409, "other", "u", false)]
    #[case::of_a_namesake(409, "n", "v", false)]
    #[case::committed_without_an_answer(504, "n", "u", true)]
    #[case::not_committed(504, "", "u", false)]
    #[case::forbidden(403, "n", "u", false)]
    #[tokio::test(start_paused = true)]
    async fn a_refused_binding_counts_if_the_pod_has_the_node_all_the_same(
        #[case] code: u16,
        #[case] node: &'static str,
        #[case] uid: &str,
        #[case] expected: bool,
    ) {
        let pod = PodKey {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
        };
        let result = bind(mk_client(code, node), &pod, uid, "n").await;
        assert_eq!(result.is_ok(), expected, "{result:?}");
    }
}
