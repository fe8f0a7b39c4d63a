//! A server in place of the kubelet: it answers at any rate, for pods that no machine here could hold.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use fixtures::machines::{Machine, profile};
use podresources::server::Listener;
use podresources::socket::Socket;
use podresources::v1;
use podresources::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Longest time that any number of scans may take.
const DEADLINE: Duration = Duration::from_mins(5);
/// Scans between two changes of the listed pods, so that writing is measured as well.
const CHANGE: usize = 50;
const MEMORY: u64 = 64 << 20;

/// Returns a machine that has a CPU for each of 1,000 containers.
pub(super) fn large_machine() -> anyhow::Result<Machine> {
    let zones = "- {cores: 128, memory: 256Gi}\n".repeat(4);
    let text = format!("name: large\nthreadsPerCore: 2\nzones:\n{zones}");
    Ok(profile::from_yaml(&text)?)
}

/// Lists fake pods.
#[derive(Clone)]
pub(super) struct FakeKubelet(Arc<Answers>);

struct Answers {
    allocatable: v1::AllocatableResourcesResponse,
    pods: Vec<v1::PodResources>,
    lists: AtomicUsize,
}

impl FakeKubelet {
    /// Creates a server that lists this many pods; each container has an exclusive CPU and some memory.
    pub(super) fn new(machine: &Machine, pods: usize, containers: usize) -> Self {
        let cpus = machine.total_cpus();
        let mut free = 0..cpus;
        let mut container = |index: usize| {
            let cpu = free.next();
            let zone = cpu.map_or(0, |cpu| machine.zone_of(cpu));
            v1::ContainerResources {
                name: format!("container-{index}"),
                cpu_ids: cpu.into_iter().map(i64::from).collect(),
                memory: vec![memory(MEMORY, zone)],
                ..v1::ContainerResources::default()
            }
        };
        let pods = (0..pods)
            .map(|index| v1::PodResources {
                name: format!("web-frontend-deployment-68b4594b44-{index:05}"),
                namespace: format!("namespace-{}", index % 20),
                containers: (0..containers).map(&mut container).collect(),
            })
            .collect();
        let zones = machine.zones().iter().enumerate();
        let allocatable = v1::AllocatableResourcesResponse {
            cpu_ids: (0..i64::from(cpus)).collect(),
            memory: zones.map(|(zone, of)| memory(of.memory, zone)).collect(),
            ..v1::AllocatableResourcesResponse::default()
        };
        Self(Arc::new(Answers {
            allocatable,
            pods,
            lists: AtomicUsize::new(0),
        }))
    }

    /// Serves until the task is aborted.
    pub(super) async fn serve(&self, path: &Path) -> anyhow::Result<JoinHandle<()>> {
        // A socket of the previous run is stale.
        let listener = Listener::bind(&Socket::new(path)?, 0o600).await?;
        let routes = Routes::new(PodResourcesListerServer::new(self.clone()));
        Ok(tokio::spawn(async move {
            drop(listener.serve(routes, std::future::pending()).await);
        }))
    }

    /// Waits until this many scans were made.
    pub(super) async fn wait_for_scans(&self, scans: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        while self.0.lists.load(Ordering::Relaxed) < scans {
            if Instant::now() > deadline {
                bail!("the exporter did not make {scans} scans");
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn memory(size: u64, zone: usize) -> v1::ContainerMemory {
    v1::ContainerMemory {
        memory_type: "memory".to_owned(),
        size,
        topology: Some(v1::TopologyInfo {
            nodes: vec![v1::NumaNode {
                id: i64::try_from(zone).unwrap_or(0),
            }],
        }),
    }
}

#[tonic::async_trait]
impl PodResourcesLister for FakeKubelet {
    async fn list(
        &self,
        _request: Request<v1::ListPodResourcesRequest>,
    ) -> Result<Response<v1::ListPodResourcesResponse>, Status> {
        let answers = &self.0;
        let list = answers.lists.fetch_add(1, Ordering::Relaxed);
        let hidden = usize::from((list / CHANGE) % 2 == 1);
        Ok(Response::new(v1::ListPodResourcesResponse {
            pod_resources: answers.pods[hidden.min(answers.pods.len())..].to_vec(),
        }))
    }

    async fn get_allocatable_resources(
        &self,
        _request: Request<v1::AllocatableResourcesRequest>,
    ) -> Result<Response<v1::AllocatableResourcesResponse>, Status> {
        Ok(Response::new(self.0.allocatable.clone()))
    }
}
