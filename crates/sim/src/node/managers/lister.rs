//! The PodResources service.

use std::sync::Arc;

use podresources::v1;
use podresources::v1::pod_resources_lister_server::PodResourcesLister;
use tonic::{Request, Response, Status};

use super::Managers;

/// Answers what the managers have given to pods, and what they can give.
pub(super) struct Lister(pub(super) Arc<Managers>);

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        Ok(Response::new(self.0.lock().node.list()))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        Ok(Response::new(self.0.lock().node.allocatable_resources()))
    }

    async fn get(
        &self,
        request: Request<v1::GetPodResourcesRequest>,
    ) -> Result<Response<v1::GetPodResourcesResponse>, Status> {
        let request = request.into_inner();
        let found = self
            .0
            .lock()
            .node
            .get(&request.pod_namespace, &request.pod_name);
        match found {
            Ok(pod) => Ok(Response::new(v1::GetPodResourcesResponse {
                pod_resources: Some(pod),
            })),
            Err(error) => Err(Status::unknown(error.to_string())),
        }
    }
}
