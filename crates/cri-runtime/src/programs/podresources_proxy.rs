//! `podresources-proxy` forwards the kubelet's `PodResources` API (rte.md 4.1), unchanged or without the allocations.

use std::path::PathBuf;

use anyhow::Context as _;
use podresources::MAX_MESSAGE_SIZE;
use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1::pod_resources_lister_client::PodResourcesListerClient;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use podresources::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::stop;

/// Arguments of `podresources-proxy`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Socket of the kubelet.
    #[arg(long, default_value = "/var/lib/kubelet/pod-resources/kubelet.sock")]
    pub kubelet_socket: PathBuf,
    /// Socket to serve the same interface on.
    #[arg(long, default_value = "/run/rte/podresources.sock")]
    pub listen_socket: PathBuf,
    /// Leave out of every pod's containers what was allocated to them (CPUs, memory, devices); pods, containers and what is
    /// allocatable stay. A fault for tests: an exporter behind such a proxy sees a node without allocations.
    #[arg(long)]
    pub hide_allocations: bool,
}

/// Serves until `SIGTERM` or `SIGINT`.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let signalled = stop::signalled().context("cannot watch signals")?;
    serve(args, signalled).await
}

/// Serves until `stop` completes.
pub async fn serve(
    args: Args,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let kubelet = Socket::new(args.kubelet_socket)?.channel();
    let proxy = Proxy {
        kubelet: PodResourcesListerClient::new(kubelet).max_decoding_message_size(MAX_MESSAGE_SIZE),
        hide_allocations: args.hide_allocations,
    };
    let listener = Listener::bind(&Socket::new(args.listen_socket)?, 0o600).await?;
    let service = PodResourcesListerServer::new(proxy);
    listener.serve(Routes::new(service), stop).await?;
    Ok(())
}

/// The forwarding server.
struct Proxy {
    kubelet: PodResourcesListerClient<Channel>,
    hide_allocations: bool,
}

#[tonic::async_trait]
impl PodResourcesLister for Proxy {
    async fn list(
        &self,
        request: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        let mut response = self.kubelet.clone().list(request.into_inner()).await?;
        if self.hide_allocations {
            response
                .get_mut()
                .pod_resources
                .iter_mut()
                .for_each(hide_allocations);
        }
        Ok(response)
    }

    async fn get_allocatable_resources(
        &self,
        request: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.kubelet
            .clone()
            .get_allocatable_resources(request.into_inner())
            .await
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let mut response = self.kubelet.clone().get(request.into_inner()).await?;
        if self.hide_allocations {
            response
                .get_mut()
                .pod_resources
                .iter_mut()
                .for_each(hide_allocations);
        }
        Ok(response)
    }
}

/// Removes every allocation; names of pods and containers stay, so that fingerprints agree.
fn hide_allocations(pod: &mut PodResources) {
    for container in &mut pod.containers {
        container.cpu_ids.clear();
        container.memory.clear();
        container.devices.clear();
        container.dynamic_resources.clear();
    }
}

#[cfg(test)]
mod tests {
    use podresources::v1::{ContainerDevices, ContainerMemory, ContainerResources};

    use super::*;

    #[test]
    fn hiding_keeps_pods_and_containers_only() {
        let mut pod = PodResources {
            name: "p".to_owned(),
            namespace: "n".to_owned(),
            containers: vec![ContainerResources {
                name: "c".to_owned(),
                cpu_ids: vec![2, 3],
                memory: vec![ContainerMemory::default()],
                devices: vec![ContainerDevices::default()],
                ..Default::default()
            }],
        };
        hide_allocations(&mut pod);
        let expected = PodResources {
            name: "p".to_owned(),
            namespace: "n".to_owned(),
            containers: vec![ContainerResources {
                name: "c".to_owned(),
                ..Default::default()
            }],
        };
        assert_eq!(pod, expected);
    }
}
