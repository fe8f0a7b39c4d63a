//! Client of the kubelet's `PodResources` service.

use std::time::Duration;

use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::MAX_MESSAGE_SIZE;
use crate::socket::Socket;
use crate::v1;
use crate::v1::pod_resources_lister_client::PodResourcesListerClient;

/// Asks the kubelet which resources its containers hold. Cheap to clone: clones share one connection. It is opened by the first call, and
/// again after the kubelet has restarted.
#[derive(Clone, Debug)]
pub struct PodResources {
    inner: PodResourcesListerClient<Channel>,
    timeout: Duration,
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No answer in time: the process behind the socket does not answer, or the kubelet is overloaded.
    #[error("{call}: no answer within {} ms", timeout.as_millis())]
    Timeout {
        /// The call, by its name in the interface.
        call: &'static str,
        /// The time limit.
        timeout: Duration,
    },
    /// No process listens on the socket, or the connection broke.
    #[error("{call}: cannot reach the kubelet")]
    Unreachable {
        /// The call, by its name in the interface.
        call: &'static str,
        /// The error of the transport.
        #[source]
        source: Box<Status>,
    },
    /// The kubelet answered with an error, or its answer is not valid.
    #[error("{call}: refused or not understood")]
    Answer {
        /// The call, by its name in the interface.
        call: &'static str,
        /// The status in the answer.
        #[source]
        source: Box<Status>,
    },
}

impl PodResources {
    /// Creates a client of the service at `socket`; each call takes at most `timeout`.
    pub fn new(socket: &Socket, timeout: Duration) -> Self {
        let inner = PodResourcesListerClient::new(socket.channel())
            .max_decoding_message_size(MAX_MESSAGE_SIZE);
        Self { inner, timeout }
    }

    /// Lists all active pods with the resources that their containers hold (kubelet-node.md 10).
    pub async fn list(&self) -> Result<v1::ListPodResourcesResponse, Error> {
        let mut inner = self.inner.clone();
        self.bounded("List", inner.list(v1::ListPodResourcesRequest {}))
            .await
    }

    /// Returns the resources that the node can give to containers, whether held or free.
    pub async fn allocatable(&self) -> Result<v1::AllocatableResourcesResponse, Error> {
        let mut inner = self.inner.clone();
        self.bounded(
            "GetAllocatableResources",
            inner.get_allocatable_resources(v1::AllocatableResourcesRequest {}),
        )
        .await
    }

    /// Returns one pod, also a finished one. The field of the answer is `None` when the kubelet does not know the pod but reports no error.
    pub async fn get(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<v1::GetPodResourcesResponse, Error> {
        let mut inner = self.inner.clone();
        let request = v1::GetPodResourcesRequest {
            pod_name: name.to_owned(),
            pod_namespace: namespace.to_owned(),
        };
        self.bounded("Get", inner.get(request)).await
    }

    async fn bounded<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.timeout, answer).await {
            Err(_elapsed) => Err(Error::Timeout {
                call,
                timeout: self.timeout,
            }),
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => {
                let unreachable = status.code() == Code::Unavailable;
                let source = Box::new(status);
                Err(if unreachable {
                    Error::Unreachable { call, source }
                } else {
                    Error::Answer { call, source }
                })
            }
        }
    }
}
