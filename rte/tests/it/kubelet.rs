//! A simulated kubelet whose answers the tests set.

use std::path::Path;
use std::sync::{Arc, Mutex};

use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::api_server::PATIENCE;

/// The answers of the kubelet; with `None` pods it refuses to list them.
#[derive(Clone, Default)]
pub(crate) struct Kubelet(Arc<Mutex<Answers>>);

#[derive(Default)]
struct Answers {
    allocatable: v1::AllocatableResourcesResponse,
    pods: Option<Vec<v1::PodResources>>,
    /// Pods of the next answer, before `pods`.
    first: Option<Vec<v1::PodResources>>,
    /// Number of calls that listed the pods.
    lists: usize,
}

impl Kubelet {
    pub(crate) fn new(allocatable: v1::AllocatableResourcesResponse) -> Self {
        Self(Arc::new(Mutex::new(Answers {
            allocatable,
            pods: Some(Vec::new()),
            first: None,
            lists: 0,
        })))
    }

    /// Returns how often the pods were listed.
    pub(crate) fn lists(&self) -> usize {
        self.0.lock().unwrap().lists
    }

    pub(crate) fn set_pods(&self, pods: Option<Vec<v1::PodResources>>) {
        self.0.lock().unwrap().pods = pods;
    }

    /// Answers `first` once, then `pods`.
    pub(crate) fn set_pods_after(&self, first: Vec<v1::PodResources>, pods: Vec<v1::PodResources>) {
        let mut answers = self.0.lock().unwrap();
        answers.first = Some(first);
        answers.pods = Some(pods);
    }

    /// Waits until the pods have been listed `times` more times.
    pub(crate) async fn listed(&self, times: usize) {
        let enough = self.lists() + times;
        let listed = testbed::eventually(PATIENCE, async || match self.lists() {
            lists if lists < enough => Err(format!("{lists} of {enough} lists")),
            _ => Ok(()),
        });
        listed.await.unwrap();
    }

    /// Serves until the test ends.
    pub(crate) async fn serve(&self, path: &Path) {
        let listener = Listener::bind(&Socket::new(path).unwrap(), 0o600)
            .await
            .unwrap();
        let routes = Routes::new(PodResourcesListerServer::new(self.clone()));
        tokio::spawn(listener.serve(routes, std::future::pending()));
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        let pods = {
            let mut answers = self.0.lock().unwrap();
            answers.lists += 1;
            answers.first.take().or_else(|| answers.pods.clone())
        };
        let pod_resources =
            pods.ok_or_else(|| Status::resource_exhausted("rejected by rate limit"))?;
        Ok(Response::new(v1::ListPodResourcesResponse {
            pod_resources,
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        Ok(Response::new(self.0.lock().unwrap().allocatable.clone()))
    }
}
